"""Rule 4.6 stated change by change, over every zone: what happens in a gap, in an overlap, and to elapsed time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, given
from hypothesis import strategies as st

from automations.schedules.schedule import (
    CronSchedule,
    EverySchedule,
    Schedule,
)
from automations.schedules.wall_time import Change, first_change
from tests.automations.schedules.oracle import ODD_ZONES, ZONES
from tests.automations.schedules.test_wall_time_properties import TIMES, cron, expressions, quick

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SOME_ZONES = st.one_of(st.sampled_from(ODD_ZONES), st.sampled_from(ZONES))


def walked(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    found = []
    slot = schedule.next(after)
    while slot is not None and slot <= until:
        found.append(slot)
        slot = schedule.next(slot)
    return found


@cache
def jumps(zone: str, year: int) -> list[Change]:
    """The year's changes, by looking at every hour: the code under test looks at every day."""
    tz, found = ZoneInfo(zone), []
    hour = datetime(year, 1, 1, tzinfo=UTC)
    before = hour.astimezone(tz).utcoffset()
    while hour.year == year:
        after = (hour + HOUR).astimezone(tz).utcoffset()
        if before is not None and after is not None and after != before:
            minute = hour
            while minute.astimezone(tz).utcoffset() == before:
                minute += MINUTE
            found.append(Change(at=minute, before=before, after=after))
        hour, before = hour + HOUR, after
    return found


@st.composite
def changes(draw: st.DrawFn, *, gap: bool) -> tuple[str, Change, datetime]:
    """A change of less than half a day, and a minute that it leaves out or repeats, as (naive) wall time."""
    zone = draw(SOME_ZONES)
    start = draw(st.integers(1973, 2050))
    years = ([each for each in jumps(zone, year) if each.is_gap is gap] for year in range(start, start + 10))
    found = next((each for each in years if each), [])
    assume(found)
    change = draw(st.sampled_from(found))
    size = abs(change.after - change.before)
    assume(size < DAY / 2 and not (size % MINUTE or change.before % MINUTE))
    first = change.old_wall if gap else change.new_wall
    return zone, change, first + draw(st.integers(0, size // MINUTE - 1)) * MINUTE


@quick
@given(zone=SOME_ZONES, year=st.integers(1973, 2100))
def test_every_change_of_the_clocks_is_found(zone: str, year: int) -> None:
    start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    found = []
    while (change := first_change(ZoneInfo(zone), start, end)) is not None:
        found.append(change)
        start = change.at
    assert found == jumps(zone, year)


@quick
@given(drawn=changes(gap=True))
def test_fixed_times_in_a_gap_run_once_at_its_end(
    drawn: tuple[str, Change, datetime],
) -> None:
    zone, change, wall = drawn
    daily = cron(f"{wall.minute} {wall.hour} * * *", zone)
    around = change.at - DAY / 2, change.at + DAY / 2
    assert walked(daily, *around) == [change.at]
    assert daily.count(*around) == 1
    assert daily.last(*around) == change.at
    assert (change.at - timedelta(microseconds=1)).astimezone(ZoneInfo(zone)).utcoffset() == change.before


@quick
@given(drawn=changes(gap=False))
def test_fixed_times_in_an_overlap_run_only_the_first_time(
    drawn: tuple[str, Change, datetime],
) -> None:
    zone, change, wall = drawn
    daily = cron(f"{wall.minute} {wall.hour} * * *", zone)
    around = change.at - DAY / 2, change.at + DAY / 2
    first = (wall - change.before).replace(tzinfo=UTC)
    second = (wall - change.after).replace(tzinfo=UTC)
    assert first < change.at <= second
    assert walked(daily, *around) == [first]
    assert daily.count(*around) == 1
    assert daily.last(*around) == first
    assert daily.next(first) != second


@quick
@given(drawn=st.one_of(changes(gap=True), changes(gap=False)), every=st.sampled_from([1, 5, 15, 30]))
def test_wildcards_keep_elapsed_time_through_both(drawn: tuple[str, Change, datetime], every: int) -> None:
    """Where the change is a multiple of the step: half-hour and two-hour shifts among them."""
    zone, change, _ = drawn
    shift, step = change.after - change.before, every * MINUTE
    assume(not shift % step and not change.before % step)
    assert_elapsed(cron(f"*/{every} * * * *", zone), change.at, step)
    if not shift % HOUR and not change.before % HOUR:
        assert_elapsed(cron("0 * * * *", zone), change.at, HOUR)


def assert_elapsed(schedule: Schedule, change: datetime, step: timedelta) -> None:
    """Clocks may change at a minute past (St. John's did): the grid begins at the step before."""
    middle = change - (change - datetime(1970, 1, 1, tzinfo=UTC)) % step
    around = 3 * HOUR // step
    found = walked(schedule, middle - around * step, middle + around * step)
    assert found == [middle + n * step for n in range(1 - around, around + 1)]


@pytest.mark.parametrize(
    ("zone", "year", "sizes"),
    [
        ("Australia/Lord_Howe", 2027, {timedelta(minutes=30), timedelta(minutes=-30)}),
        ("Antarctica/Troll", 2027, {timedelta(hours=2), timedelta(hours=-2)}),
        ("Europe/Berlin", 2027, {HOUR, -HOUR}),
        ("Pacific/Apia", 2011, {HOUR, -HOUR, DAY}),
        ("Asia/Shanghai", 2027, set()),
    ],
)
def test_the_zones_have_the_shifts_that_are_meant(zone: str, year: int, sizes: set[timedelta]) -> None:
    """Else the properties above would prove less than they seem to."""
    assert {each.after - each.before for each in jumps(zone, year)} == sizes


@quick
@given(
    expr=expressions(TIMES),
    zone=st.sampled_from(ZONES),
    hours=st.integers(0, 80 * 365 * 24),
    seconds=st.integers(0, 3599),
)
def test_between_changes_every_expression_agrees_with_cronsim_in_every_zone(
    expr: str, zone: str, hours: int, seconds: int
) -> None:
    start = datetime(1975, 1, 1, tzinfo=UTC) + timedelta(hours=hours, seconds=seconds)
    theirs, slot = CronSim(expr, start.astimezone(ZoneInfo(zone))), start
    for _ in range(3):
        following = next(theirs).astimezone(UTC)
        assume(first_change(ZoneInfo(zone), start - DAY, following + DAY) is None)
        found = CronSchedule(expr=expr, timezone=zone).next(slot)
        assert found == following
        slot = following


@quick
@given(
    seconds=st.integers(1, 10_000_000),
    anchor=st.datetimes(datetime(1975, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001 - made aware below
    number=st.integers(0, 3_000),
    part=st.floats(0, 1, exclude_max=True),
)
def test_an_interval_never_drifts(seconds: int, anchor: datetime, number: int, part: float) -> None:
    """The n-th slot is n intervals after the anchor, whenever it is asked for and however one gets there."""
    begin = anchor.replace(tzinfo=UTC, microsecond=anchor.microsecond // 1000 * 1000)
    every, length = EverySchedule(seconds=seconds, anchor=begin), timedelta(seconds=seconds)
    slot = begin + number * length
    asked = slot + timedelta(microseconds=int(part * (length / timedelta(microseconds=1))))
    assert every.next(asked) == slot + length
    assert every.last(begin - length, asked) == slot
    assert every.count(begin, asked, limit=5_000) == number
    assert walked(every, slot, slot + 5 * length) == [slot + n * length for n in range(1, 6)]
