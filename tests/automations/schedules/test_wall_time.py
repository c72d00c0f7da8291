"""Rule 4.6: cron fields on wall time through every kind of change of the clocks.

By properties, too: against cronsim and against the rule applied minute by minute.
"""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st

from automations.schedules.excepted_days import ExceptedDays
from automations.schedules.schedule import CronSchedule, RuleSchedule
from automations.schedules.wall_time import Change, first_change
from tests.automations.schedules.examples import holds_for, rules
from tests.automations.schedules.oracle import DAY, ODD_ZONES, ZONES, is_fixed, slots, walked

pytestmark = pytest.mark.rule("4.6")


def cron(expr: str, zone: str) -> CronSchedule:
    return CronSchedule(expr=expr, timezone=zone)


def walk(expr: str, zone: str, after: str, count: int) -> list[str]:
    """The next slots after a UTC reading, as wall times with offset."""
    tz, found = ZoneInfo(zone), []
    slot: datetime | None = datetime.fromisoformat(after).replace(tzinfo=UTC)
    for _ in range(count):
        assert slot is not None
        slot = cron(expr, zone).next(slot)
        assert slot is not None
        found.append(slot.astimezone(tz).isoformat(timespec="minutes"))
    return found


BERLIN, SANTIAGO, APIA = "Europe/Berlin", "America/Santiago", "Pacific/Apia"
LORD_HOWE, TWICE = "Australia/Lord_Howe", ["2027-10-31T02:00+02:00", "2027-10-31T02:00+01:00"]
CHANGES: list[tuple[str, str, str, list[str]]] = [
    # Gap: the first instant after it, the next day as usual.
    ("30 2 * * *", BERLIN, "2027-03-27T12:00", ["2027-03-28T03:00+02:00", "2027-03-29T02:30+02:00"]),
    # Two fixed times in one gap, and one at its end, are one slot.
    ("0,30 2,3 * * *", BERLIN, "2027-03-28T00:30", ["2027-03-28T03:00+02:00", "2027-03-28T03:30+02:00"]),
    # Overlap: the first of two.
    ("30 2 * * *", BERLIN, "2027-10-30T12:00", ["2027-10-31T02:30+02:00", "2027-11-01T02:30+01:00"]),
    # Asked within the second pass: it has no fixed times left.
    ("45 2 * * *", BERLIN, "2027-10-31T01:10", ["2027-11-01T02:45+01:00"]),
    # Elapsed time goes through both.
    ("*/30 * * * *", BERLIN, "2027-03-28T00:00", ["2027-03-28T01:30+01:00", "2027-03-28T03:00+02:00"]),
    ("0 * * * *", BERLIN, "2027-10-30T23:30", [*TWICE, "2027-10-31T03:00+01:00"]),
    # Half an hour, midnight, a whole day.
    ("15 2 * * *", LORD_HOWE, "2027-10-02T12:00", ["2027-10-03T02:30+11:00"]),
    ("0 0 * * *", SANTIAGO, "2027-09-04T12:00", ["2027-09-05T01:00-03:00", "2027-09-06T00:00-03:00"]),
    ("0 9 * * *", APIA, "2011-12-29T20:00", ["2011-12-31T00:00+14:00", "2011-12-31T09:00+14:00"]),
    ("0 9 30 12 *", APIA, "2011-12-29T20:00", ["2011-12-31T00:00+14:00", "2012-12-30T09:00+14:00"]),
    # Elapsed time over a change that is no whole hour, or to a midnight that does not exist or comes twice.
    # cronsim differs in these: it leaps by whole hours. Ours is what a clock shows.
    ("31 * * * *", LORD_HOWE, "2019-10-05T15:25", ["2019-10-06T02:31+11:00"]),
    ("*/5 3 * * *", "Pacific/Chatham", "2035-09-29T01:00", ["2035-09-30T03:45+13:45"]),
    ("*/5 0 * * 0", SANTIAGO, "2027-09-04T12:00", ["2027-09-12T00:00-03:00"]),
    ("* 0 * * *", "America/St_Johns", "2009-11-01T02:30", ["2009-11-01T00:00-03:30"]),
]


@pytest.mark.parametrize(("expr", "zone", "after", "expected"), CHANGES)
def test_each_slot_at_a_change_of_clocks(expr: str, zone: str, after: str, expected: list[str]) -> None:
    assert walk(expr, zone, after, len(expected)) == expected
    schedule, start = cron(expr, zone), datetime.fromisoformat(after).replace(tzinfo=UTC)
    last = datetime.fromisoformat(expected[-1])
    assert schedule.count(start, last) == len(expected)
    assert schedule.last(start, last) == last


# every hour of the day, yet each once: its fields are fixed; and only a star at the beginning counts
FIXED = {"0 0-23 * * *": True, "5,*/10 3 * * *": True, "0 */2 * * *": False, "*,5 2 * * *": False}


@pytest.mark.parametrize(("expr", "fixed"), FIXED.items())
def test_a_field_starting_with_a_star_is_a_wildcard(expr: str, fixed: bool) -> None:
    again = datetime(2027, 10, 31, 0, 59, 59, tzinfo=UTC)  # Berlin, the last second before 02:00 comes again
    first = datetime(2027, 10, 30, 23, 0, tzinfo=UTC)
    second_pass = slots(cron(expr, "Europe/Berlin"), again, again + timedelta(hours=1))
    assert is_fixed(expr) is fixed
    assert not (fixed and second_pass)
    count = cron(expr, "Europe/Berlin").count(first, again + timedelta(hours=1))
    assert count == len(slots(cron(expr, "Europe/Berlin"), first, again + timedelta(hours=1)))


MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SOME_ZONES = st.one_of(st.sampled_from(ODD_ZONES), st.sampled_from(ZONES))


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    one = st.integers(low, high).map(str)
    several = st.lists(one, min_size=2, max_size=4).map(",".join)
    spans = st.tuples(st.integers(low, high), st.integers(low, high)).filter(lambda ends: ends[0] < ends[1])
    ranges = spans.map(lambda ends: f"{ends[0]}-{ends[1]}")
    steps = st.tuples(ranges, st.integers(2, 5)).map(lambda parts: f"{parts[0]}/{parts[1]}")
    return st.one_of(one, several, ranges, steps)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), st.integers(2, high).map(lambda n: f"*/{n}"), numbers(low, high))


# hours in which clocks change
NEAR = st.sampled_from(["0", "1", "2", "3", "23", "0-4", "2,3", "*", "*/2", "*/3"])
TIMES = st.tuples(field(0, 59), st.one_of(field(0, 23), NEAR))
DATES = st.sampled_from(
    [
        *("* * *", "* * *", "* * 1-5", "* * 0,6", "1-7 * *", "*/2 * 1", "1 * 1", "L * *"),
        *("* 3,4,9,10 *", "15 * MON"),
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
    seconds, milliseconds = draw(st.integers(0, 30 * 3600)), draw(st.sampled_from([0, 1, 500]))
    before = timedelta(seconds=seconds, milliseconds=milliseconds)
    return zone, change.at - before if change else start + before


@st.composite
def planned(draw: st.DrawFn) -> tuple[CronSchedule | RuleSchedule, datetime]:
    """A schedule and an instant: cron fields or a rule that began before or soon, often with days excepted nearby."""
    zone, after = draw(moments())
    wall = after.astimezone(ZoneInfo(zone)).replace(tzinfo=None, second=0, microsecond=0)
    near = st.lists(st.integers(-1, 3), max_size=2).map(
        lambda days: sorted({wall.date() + day * DAY for day in days})
    )
    holidays = st.sampled_from(["", "", "DE", "US-CA"])
    excepted = ExceptedDays(dates=tuple(draw(near)), holidays=draw(holidays))
    if draw(st.booleans()):
        return CronSchedule(expr=draw(expressions(TIMES)), timezone=zone, excepted=excepted), after
    start = wall - timedelta(minutes=draw(st.integers(-2880, 60 * 24 * 400)))
    return RuleSchedule(rule=draw(rules()), starts_at=start, timezone=zone, excepted=excepted), after


@holds_for(few=100, many=400, plan=planned(), hours=st.integers(0, 60))
def test_slots_match_the_rule_each_once(
    plan: tuple[CronSchedule | RuleSchedule, datetime], hours: int
) -> None:
    schedule, after = plan
    until = after + timedelta(hours=hours)
    expected, found = slots(schedule, after, until), walked(schedule, after, until)
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


def test_a_day_that_another_one_interrupts_is_excepted_alone() -> None:
    """St. John's clocks went back from one minute past midnight, and the day before went on."""
    after, until = datetime(2009, 11, 1, tzinfo=UTC), datetime(2009, 11, 2, 12, tzinfo=UTC)
    for day in (date(2009, 10, 31), date(2009, 11, 1)):
        excepted = ExceptedDays(dates=(day,))
        schedule = CronSchedule(expr="*/20 * * * *", timezone="America/St_Johns", excepted=excepted)
        expected = slots(schedule, after, until)
        assert walked(schedule, after, until) == expected
        for minutes in range(0, 36 * 60, 10):
            asked = after + timedelta(minutes=minutes)
            assert schedule.last(after, asked) == max(
                (each for each in expected if each <= asked), default=None
            )


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
