"""Rule 4.6 by properties: against cronsim and against the rule applied minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import assume
from hypothesis import strategies as st

from automations.schedules.schedule import CronSchedule
from automations.schedules.wall_time import Change, first_change
from tests.automations.schedules.examples import holds_for
from tests.automations.schedules.oracle import ODD_ZONES, ZONES, sim_of, slots, walked

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SOME_ZONES = st.one_of(st.sampled_from(ODD_ZONES), st.sampled_from(ZONES))


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
        *("* * 6-3/2", "* * SAT-WED/2", "1 10-3/2 *", "* OCT-MAR/2 *"),  # steps in ranges that wrap
        *("31 11 FRI", "30-31 2 MON-FRI", "31 4,6 0"),  # a day that never comes, beside a weekday that does
        *("1-31 * MON", "15 * 0-6", "5,* * MON", "15 * 2,*"),  # all days, but no field begins with a star
        *("*,5 * MON", "*/2 * */3", "1-7 * */2"),  # joined by AND
        *("* * 5L", "* * L5"),
    ]
)


def expressions(times: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[str]:
    return st.tuples(times, DATES).map(lambda parts: " ".join((*parts[0], parts[1])))


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone and an instant of 1973 to 2060, usually shortly before a change of its clocks."""
    zone = draw(SOME_ZONES)
    start = datetime(draw(st.integers(1973, 2060)), draw(st.integers(1, 12)), 1, tzinfo=UTC)
    change = first_change(ZoneInfo(zone), start, start + timedelta(days=366))
    before = timedelta(
        seconds=draw(st.integers(0, 30 * 3600)), milliseconds=draw(st.sampled_from([0, 1, 500]))
    )
    return zone, change.at - before if change else start + before


@holds_for(expr=expressions(FIXED), moment=moments())
def test_fixed_times_agree_with_cronsim(expr: str, moment: tuple[str, datetime]) -> None:
    zone, start = moment
    local = start.astimezone(ZoneInfo(zone))
    assume(local.fold == 0)  # started in a second pass cronsim answers with the first, which is past
    theirs = sim_of(expr, local)
    slot: datetime | None = start
    for _ in range(8):
        assert slot is not None
        slot = cron(expr, zone).next(slot)
        assert slot == next(theirs).astimezone(UTC)


@holds_for(few=60, expr=expressions(TIMES), moment=moments(), hours=st.integers(0, 60))
def test_slots_match_the_rule_without_loss_or_duplication(
    expr: str, moment: tuple[str, datetime], hours: int
) -> None:
    zone, after = moment
    schedule, until = cron(expr, zone), after + timedelta(hours=hours)
    expected = slots(expr, zone, after, until)
    found = walked(schedule, after, until)
    assert found == expected
    assert {slot.tzinfo for slot in found} <= {UTC}
    assert schedule.last(after, until) == (expected[-1] if expected else None)
    assert schedule.count(after, until, limit=5000) == len(expected)
    assert schedule.count(after, until, limit=10) == (len(expected) if len(expected) <= 10 else None)
    if (first := schedule.next(after)) is not None:
        tick = timedelta(milliseconds=1)
        assert schedule.last(after, first) == schedule.next(first - tick) == first
        assert schedule.last(after, first - tick) is None
        assert schedule.count(after, first) == 1


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


@holds_for(zone=SOME_ZONES, year=st.integers(1973, 2100))
def test_every_change_of_the_clocks_is_found(zone: str, year: int) -> None:
    start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    found = []
    while (change := first_change(ZoneInfo(zone), start, end)) is not None:
        found.append(change)
        start = change.at
    assert found == jumps(zone, year)
