"""Rule 4.6: cron fields on wall time through every kind of change of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from automations.schedules.schedule import CronSchedule
from automations.schedules.wall_time import first_change
from tests.automations.schedules.oracle import ODD_ZONES, is_fixed, slots

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
        (
            "0 2 * * *",
            "America/New_York",
            "2027-03-13T12:00",
            ["2027-03-14T03:00-04:00", "2027-03-15T02:00-04:00"],
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
        (
            "0 2 * * *",
            "Europe/Berlin",
            "2027-10-30T12:00",
            ["2027-10-31T02:00+02:00", "2027-11-01T02:00+01:00"],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2027-11-06T12:00",
            ["2027-11-07T01:30-04:00", "2027-11-08T01:30-05:00"],
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
            "0 0 * * *",
            "Africa/Cairo",
            "2027-04-29T12:00",
            ["2027-04-30T01:00+03:00", "2027-05-01T00:00+03:00"],
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


# Where cronsim differs it breaks rule 4.6: it leaps by whole hours, over a change that is no whole hour, or to a
# midnight that does not exist or comes twice. All of them are of the elapsed kind; ours is what a clock shows.
@pytest.mark.parametrize(
    ("expr", "zone", "after", "ours", "cronsims"),
    [
        # Lord Howe, gap 02:00 to 02:30: 02:31 exists.
        (
            "31 * * * *",
            "Australia/Lord_Howe",
            "2019-10-05T15:25",
            "2019-10-06T02:31+11:00",
            "2019-10-06T03:31+11:00",
        ),
        # Chatham, gap 02:45 to 03:45: 03:45 to 03:59 exist.
        (
            "*/5 3 * * *",
            "Pacific/Chatham",
            "2035-09-29T01:00",
            "2035-09-30T03:45+13:45",
            "2035-10-01T03:00+13:45",
        ),
        # Santiago, no midnight: nothing at hour 0 is named by 01:00.
        (
            "*/5 0 * * 0",
            "America/Santiago",
            "2027-09-04T12:00",
            "2027-09-12T00:00-03:00",
            "2027-09-05T01:00-03:00",
        ),
        # St John's, back from 00:01 to 23:01: after 23:59 midnight comes again; cronsim returns to the first one.
        (
            "* 0 * * *",
            "America/St_Johns",
            "2009-11-01T02:30",
            "2009-11-01T00:00-03:30",
            "2009-11-01T00:00-02:30",
        ),
    ],
)
def test_differences_from_cronsim_are_decided_by_rule_4_6(
    expr: str, zone: str, after: str, ours: str, cronsims: str
) -> None:
    start = datetime.fromisoformat(after).replace(tzinfo=UTC)
    theirs = next(CronSim(expr, start.astimezone(ZoneInfo(zone))))
    by_the_rule = slots(expr, zone, start, start + timedelta(days=9))[0]
    assert walk(expr, zone, after, 1) == [ours]
    assert by_the_rule == datetime.fromisoformat(ours)
    assert theirs.astimezone(UTC) == datetime.fromisoformat(cronsims).astimezone(UTC)


@pytest.mark.parametrize(
    "zone", [*ODD_ZONES, "America/Noronha", "Africa/El_Aaiun", "Asia/Gaza", "Europe/Dublin"]
)
def test_no_change_of_the_clocks_is_overlooked(zone: str) -> None:
    """`first_change` looks once a day; here every hour of many years is compared."""
    tz = ZoneInfo(zone)
    instant, end = datetime(1996, 1, 1, tzinfo=UTC), datetime(2012, 1, 1, tzinfo=UTC)
    changes = []
    while (change := first_change(tz, instant, end)) is not None:
        changes.append(change)
        instant = change.at
    hour = datetime(1996, 1, 1, tzinfo=UTC)
    seen, offset = 0, hour.astimezone(tz).utcoffset()
    while hour < end:
        hour += timedelta(hours=6)
        if hour.astimezone(tz).utcoffset() != offset:
            offset = hour.astimezone(tz).utcoffset()
            assert changes[seen].after == offset
            assert hour - timedelta(hours=6) < changes[seen].at <= hour
            seen += 1
    assert seen == len(changes)
