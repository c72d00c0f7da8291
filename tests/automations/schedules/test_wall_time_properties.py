"""Rule 4.6 by properties: against cronsim and against the rule applied minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from automations.schedules.schedule import CronSchedule
from automations.schedules.wall_time import first_change
from tests.automations.schedules.oracle import ODD_ZONES, ZONES, slots

quick = settings(max_examples=250)


def cron(expr: str, zone: str) -> CronSchedule:
    return CronSchedule(expr=expr, timezone=zone)


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    one = st.integers(low, high).map(str)
    several = st.lists(one, min_size=2, max_size=4).map(",".join)
    spans = st.tuples(st.integers(low, high), st.integers(low, high)).filter(lambda ends: ends[0] < ends[1])
    ranges = spans.map(lambda ends: f"{ends[0]}-{ends[1]}")
    steps = st.tuples(ranges, st.integers(2, 5)).map(lambda parts: f"{parts[0]}/{parts[1]}")
    return st.one_of(one, several, ranges, steps)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), st.integers(2, high).map(lambda n: f"*/{n}"), numbers(low, high))


NEAR = st.sampled_from(
    ["0", "1", "2", "3", "23", "0-4", "2,3", "*", "*/2", "*/3"]
)  # hours in which clocks change
FIXED = st.tuples(numbers(0, 59), st.one_of(numbers(0, 23), NEAR.filter(lambda hour: hour[0] != "*")))
TIMES = st.tuples(field(0, 59), st.one_of(field(0, 23), NEAR))
DATES = st.sampled_from(
    [
        "* * *",
        "* * *",
        "* * 1-5",
        "* * 0,6",
        "1-7 * *",
        "*/2 * 1",
        "1 * 1",
        "L * *",
        "* 3,4,9,10 *",
        "15 * MON",
    ]
)


def expressions(times: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[str]:
    return st.tuples(times, DATES).map(lambda parts: " ".join((*parts[0], parts[1])))


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone and an instant of 1973 to 2060, usually shortly before a change of its clocks."""
    zone = draw(st.one_of(st.sampled_from(ODD_ZONES), st.sampled_from(ZONES)))
    start = datetime(draw(st.integers(1973, 2060)), draw(st.integers(1, 12)), 1, tzinfo=UTC)
    change = first_change(ZoneInfo(zone), start, start + timedelta(days=366))
    before = timedelta(
        seconds=draw(st.integers(0, 30 * 3600)), milliseconds=draw(st.sampled_from([0, 1, 500]))
    )
    return zone, change.at - before if change else start + before


@quick
@given(expr=expressions(FIXED), moment=moments())
def test_fixed_times_agree_with_cronsim(expr: str, moment: tuple[str, datetime]) -> None:
    zone, start = moment
    local = start.astimezone(ZoneInfo(zone))
    assume(local.fold == 0)  # started in a second pass cronsim answers with the first, which is past
    theirs = CronSim(expr, local)
    slot: datetime | None = start
    for _ in range(8):
        assert slot is not None
        slot = cron(expr, zone).next(slot)
        assert slot == next(theirs).astimezone(UTC)


WHOLE_HOURS = st.sampled_from(
    ["Europe/Berlin", "America/New_York", "Asia/Shanghai", "Asia/Kathmandu", "Europe/London"]
)


@quick
@given(expr=expressions(TIMES), zone=WHOLE_HOURS, days=st.integers(0, 3650), minutes=st.integers(0, 1439))
def test_wildcards_agree_with_cronsim_across_one_hour_night_changes(
    expr: str, zone: str, days: int, minutes: int
) -> None:
    start = datetime(2021, 1, 1, tzinfo=UTC) + timedelta(days=days, minutes=minutes)
    local = start.astimezone(ZoneInfo(zone))
    assume(local.fold == 0)
    theirs = CronSim(expr, local)
    slot: datetime | None = start
    for _ in range(8):
        assert slot is not None
        slot = cron(expr, zone).next(slot)
        assert slot == next(theirs).astimezone(UTC)


@quick
@given(expr=expressions(TIMES), moment=moments(), hours=st.integers(0, 60))
def test_slots_match_the_rule_without_loss_or_duplication(
    expr: str, moment: tuple[str, datetime], hours: int
) -> None:
    zone, after = moment
    schedule, until = cron(expr, zone), after + timedelta(hours=hours)
    expected = slots(expr, zone, after, until)
    found = []
    slot = schedule.next(after)
    while slot is not None and slot <= until:
        assert slot.tzinfo is UTC
        found.append(slot)
        slot = schedule.next(slot)
    assert found == expected
    assert schedule.last(after, until) == (expected[-1] if expected else None)
    assert schedule.count(after, until, limit=5000) == len(expected)
    assert schedule.count(after, until, limit=10) == (len(expected) if len(expected) <= 10 else None)


@quick
@given(expr=expressions(TIMES), moment=moments())
def test_looking_back_from_a_slot_finds_it(expr: str, moment: tuple[str, datetime]) -> None:
    zone, after = moment
    schedule = cron(expr, zone)
    first = schedule.next(after)
    assume(first is not None)
    assert first is not None
    tick = timedelta(milliseconds=1)
    assert schedule.last(after, first) == first
    assert schedule.last(after, first - tick) is None
    assert schedule.next(first - tick) == first
    assert schedule.count(after, first) == 1
