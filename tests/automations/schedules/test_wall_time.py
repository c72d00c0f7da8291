"""Rule 4.6: cron fields on wall time through every kind of change of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from automations.schedules.schedule import CronSchedule
from tests.automations.schedules.oracle import is_fixed, slots

pytestmark = pytest.mark.rule("4.6")


def cron(expr: str, zone: str) -> CronSchedule:
    return CronSchedule(expr=expr, timezone=zone)


def walk(expr: str, zone: str, after: str, count: int) -> list[str]:
    """The next slots after a UTC reading, as wall times with offset."""
    tz = ZoneInfo(zone)
    found = []
    slot: datetime | None = datetime.fromisoformat(after).replace(tzinfo=UTC)
    for _ in range(count):
        assert slot is not None
        slot = cron(expr, zone).next(slot)
        assert slot is not None
        found.append(slot.astimezone(tz).isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("expr", "zone", "after", "expected"),
    [
        # Gap: the first instant after it, the next day as usual.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2027-03-27T12:00",
            ["2027-03-28T03:00+02:00", "2027-03-29T02:30+02:00"],
        ),
        # Two fixed times in one gap, and one at its end, are one slot.
        (
            "0,30 2,3 * * *",
            "Europe/Berlin",
            "2027-03-28T00:30",
            ["2027-03-28T03:00+02:00", "2027-03-28T03:30+02:00"],
        ),
        # Overlap: the first of two.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2027-10-30T12:00",
            ["2027-10-31T02:30+02:00", "2027-11-01T02:30+01:00"],
        ),
        # Asked within the second pass: it has no fixed times left.
        ("45 2 * * *", "Europe/Berlin", "2027-10-31T01:10", ["2027-11-01T02:45+01:00"]),
        # Elapsed time goes through both.
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2027-03-28T00:00",
            ["2027-03-28T01:30+01:00", "2027-03-28T03:00+02:00"],
        ),
        (
            "0 * * * *",
            "Europe/Berlin",
            "2027-10-30T23:30",
            ["2027-10-31T02:00+02:00", "2027-10-31T02:00+01:00", "2027-10-31T03:00+01:00"],
        ),
        # Half an hour, two hours, midnight, a whole day.
        ("15 2 * * *", "Australia/Lord_Howe", "2027-10-02T12:00", ["2027-10-03T02:30+11:00"]),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2027-04-03T12:00",
            ["2027-04-04T01:45+11:00", "2027-04-05T01:45+10:30"],
        ),
        (
            "10 2 * * *",
            "Antarctica/Troll",
            "2027-03-27T12:00",
            ["2027-03-28T03:00+02:00", "2027-03-29T02:10+02:00"],
        ),
        (
            "0 0 * * *",
            "America/Santiago",
            "2027-09-04T12:00",
            ["2027-09-05T01:00-03:00", "2027-09-06T00:00-03:00"],
        ),
        (
            "0 9 * * *",
            "Pacific/Apia",
            "2011-12-29T20:00",
            ["2011-12-31T00:00+14:00", "2011-12-31T09:00+14:00"],
        ),
        (
            "0 9 30 12 *",
            "Pacific/Apia",
            "2011-12-29T20:00",
            ["2011-12-31T00:00+14:00", "2012-12-30T09:00+14:00"],
        ),
        (
            "30 2 * * *",
            "Africa/Casablanca",
            "2027-02-06T12:00",
            ["2027-02-07T02:30+01:00", "2027-02-08T02:30+00:00"],
        ),
        # Elapsed time over a change that is no whole hour, or to a midnight that does not exist or comes twice.
        # cronsim differs in these: it leaps by whole hours. Ours is what a clock shows.
        ("31 * * * *", "Australia/Lord_Howe", "2019-10-05T15:25", ["2019-10-06T02:31+11:00"]),
        ("*/5 3 * * *", "Pacific/Chatham", "2035-09-29T01:00", ["2035-09-30T03:45+13:45"]),
        ("*/5 0 * * 0", "America/Santiago", "2027-09-04T12:00", ["2027-09-12T00:00-03:00"]),
        ("* 0 * * *", "America/St_Johns", "2009-11-01T02:30", ["2009-11-01T00:00-03:30"]),
    ],
)
def test_fixed_times_run_once_and_wildcards_follow_elapsed_time(
    expr: str, zone: str, after: str, expected: list[str]
) -> None:
    assert walk(expr, zone, after, len(expected)) == expected
    schedule, start = cron(expr, zone), datetime.fromisoformat(after).replace(tzinfo=UTC)
    last = datetime.fromisoformat(expected[-1])
    assert schedule.count(start, last) == len(expected)
    assert schedule.last(start, last) == last


@pytest.mark.parametrize(
    ("expr", "fixed"),
    [
        ("0 9 * * *", True),
        ("0 0-23 * * *", True),  # every hour of the day, yet each once: the fields are fixed
        ("0 0-23/2 * * *", True),
        ("0 1/2 * * *", True),
        ("5,*/10 3 * * *", True),  # only a star at the beginning counts
        ("0 */2 * * *", False),
        ("0 * * * *", False),
        ("*/5 2 * * *", False),
        ("*,5 2 * * *", False),
    ],
)
def test_a_field_starting_with_a_star_is_a_wildcard(expr: str, fixed: bool) -> None:
    again = datetime(2027, 10, 31, 0, 59, 59, tzinfo=UTC)  # Berlin, the last second before 02:00 comes again
    first = datetime(2027, 10, 30, 23, 0, tzinfo=UTC)
    second_pass = slots(expr, "Europe/Berlin", again, again + timedelta(hours=1))
    assert is_fixed(expr) is fixed
    assert not (fixed and second_pass)
    count = cron(expr, "Europe/Berlin").count(first, again + timedelta(hours=1))
    assert count == len(slots(expr, "Europe/Berlin", first, again + timedelta(hours=1)))
