"""Reading a schedule: what is refused when saved, with which code (rule 4.6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from automations.schedules.schedule import (
    MAX_EVERY_SECONDS,
    AtSchedule,
    CronSchedule,
    EverySchedule,
    Schedule,
    ScheduleError,
    parse_schedule,
)

NOW = datetime(2026, 11, 21, 12, 0, 0, 123_456, tzinfo=UTC)


def read(data: Any, zone: str = "Europe/Berlin", now: datetime = NOW) -> Schedule:
    return parse_schedule(data, default_timezone=zone, now=now)


def refusal(data: Any, zone: str = "Europe/Berlin", now: datetime = NOW) -> ScheduleError:
    with pytest.raises(ScheduleError) as caught:
        read(data, zone, now)
    return caught.value


def cron(expr: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "cron", "expr": expr, **more}


def zoned(name: Any) -> dict[str, Any]:
    return cron("0 9 * * *", timezone=name)


def every(seconds: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "every", "seconds": seconds, **more}


def at(text: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "at", "at": text, **more}


def test_a_cron_takes_the_agents_zone_when_none_is_given() -> None:
    assert read(cron("0  9 * * *")) == CronSchedule(expr="0 9 * * *", timezone="Europe/Berlin")
    assert read(zoned("Asia/Shanghai")) == CronSchedule(expr="0 9 * * *", timezone="Asia/Shanghai")


def test_the_grid_of_every_begins_when_it_is_saved() -> None:
    schedule = read(every(300))
    assert schedule == EverySchedule(seconds=300, anchor=NOW.replace(microsecond=123_000))
    assert schedule.next(NOW) == NOW.replace(microsecond=123_000) + timedelta(seconds=300)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2027-01-01T09:00:00+01:00", "2027-01-01T08:00:00+00:00"),
        ("2027-01-01T09:00+0100", "2027-01-01T08:00:00+00:00"),
        ("2027-01-01T09:00:00Z", "2027-01-01T09:00:00+00:00"),
        ("2027-01-01t09:00:00.123456z", "2027-01-01T09:00:00.123000+00:00"),
        ("2027-01-01T09:00:00.123456789Z", "2027-01-01T09:00:00.123000+00:00"),  # as in Go and Java
        ("2027-01-01 09:00", "2027-01-01T08:00:00+00:00"),  # the agent's zone
        ("2027-07-01T09:00:00", "2027-07-01T07:00:00+00:00"),
        ("2027-03-28T02:30:00", "2027-03-28T01:00:00+00:00"),  # in the gap: the first instant after it
        ("2027-10-31T02:30:00", "2027-10-31T00:30:00+00:00"),  # in the overlap: the first
        ("2899-01-01T00:00:00Z", "2899-01-01T00:00:00+00:00"),  # far, and yet it comes
    ],
)
def test_an_at_without_offset_is_in_the_agents_zone(text: str, expected: str) -> None:
    assert read(at(text)) == AtSchedule(at=datetime.fromisoformat(expected))


def as_it_is(data: Any) -> Any:
    return data


FAR = MAX_EVERY_SECONDS + 1
REFUSED: list[tuple[str, Callable[[Any], Any], tuple[Any, ...]]] = [  # with this code, made so, each of these
    ("bad_schedule", as_it_is, (None, [], "0 9 * * *", {}, {"expr": "0 9 * * *"})),
    ("bad_schedule", as_it_is, ({"kind": None}, {"kind": "weekly"}, {"kind": ["cron"]})),
    ("bad_schedule", as_it_is, ({"kind": "cron"}, {"kind": "every"}, {"kind": "at"})),
    ("bad_schedule", as_it_is, (cron("0 9 * * *", seconds=5), cron("0 9 * * *", tz="UTC"))),
    ("bad_schedule", as_it_is, (every(5, anchor="2026-01-01T00:00:00Z"), every(5) | {1: 2})),
    ("bad_schedule", as_it_is, (at("2027-01-01T09:00:00Z", timezone="UTC"),)),
    ("bad_interval", every, (0, -1, FAR, 10**400, 1.5, 300.0, float("nan"), float("inf"))),
    ("bad_interval", every, (True, False, None, "300", [300])),
    ("unknown_timezone", zoned, (None, 5, "", " ", "+01:00", "x" * 5000)),
    ("unknown_timezone", zoned, ("Mars/Base", "Europe", "\u0415vropa/Berlin", "UTC\x00")),
    ("unknown_timezone", zoned, ("europe/berlin", "Europe/Berlin ", "Europe//Berlin", "Europe/../UTC")),
    ("unknown_timezone", zoned, ("../etc/passwd", "/etc/passwd", "zone.tab", "tzdata.zi", "posixrules")),
    ("unknown_timezone", zoned, ("right/Europe/Berlin", "posix/UTC", "localtime", "Factory")),
    ("bad_time", at, (None, 5, True, "", "tomorrow", "2027-01-01", "09:00", "2027-01-01T09")),
    ("bad_time", at, ("20270101T090000Z", "2027-W01-1T09:00", "12027-01-01T09:00", "0000-01-01T00:00:00Z")),
    ("bad_time", at, ("2027-13-01T09:00", "2027-02-30T09:00", "2027-01-01T24:00", "2027-01-01T09:60")),
    ("bad_time", at, ("2027-01-01T23:59:60Z", "2027-01-01T09:00:00.1234567891Z", "2027-01-01T09:00\n")),
    ("bad_time", at, ("2027-01-01T09:00:00+25:00", "2027-01-01T09:00+01:00:30", "2027-01-01T09:00 UTC")),
    ("bad_time", at, ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59", "9950-01-01T00:00:00Z")),
    ("bad_time", at, ("\u0662\u0660\u0662\u0667-01-01T09:00",)),
    ("past_at", at, ("2026-11-21T12:00:00.123Z", "2026-11-21T12:59", "2020-01-01T00:00Z")),
    ("past_at", at, ("0001-01-01T00:00:00Z", "1969-01-01T00:00")),
]


def test_what_cannot_be_read_is_refused_with_its_code() -> None:
    for code, make, given in REFUSED:
        for each in given:
            assert refusal(make(each)).code == code, each


@pytest.mark.parametrize("seconds", [1, MAX_EVERY_SECONDS])
def test_the_ends_of_the_interval_are_allowed(seconds: int) -> None:
    assert read(every(seconds)).next(NOW) is not None


def test_an_agents_unknown_zone_is_refused_only_where_needed() -> None:
    assert refusal(cron("0 9 * * *"), "Mars/Base").code == "unknown_timezone"
    assert refusal(at("2027-01-01T09:00:00"), "Mars/Base").code == "unknown_timezone"
    assert isinstance(read(at("2027-01-01T09:00:00Z"), "Mars/Base"), AtSchedule)


def test_this_very_instant_has_passed() -> None:
    now = NOW.replace(microsecond=123_000)
    assert refusal(at("2026-11-21T12:00:00.123Z"), now=now).code == "past_at"
    assert isinstance(read(at("2026-11-21T12:00:00.124Z"), now=now), AtSchedule)


def test_a_schedule_is_written_as_it_is_read() -> None:
    for data in (
        {"kind": "cron", "expr": "0 9 * * MON", "timezone": "Asia/Shanghai"},
        every(300),
        at("2027-01-01T09:00:00+01:00"),
    ):
        assert read(data).to_json(zone="Europe/Berlin") == data


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-10-24T23:00:00+00:00", "2026-10-25T00:30:00+00:00"),  # both lie ahead: the first
        ("2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00"),  # the first is now
        ("2026-10-25T00:45:00+00:00", "2026-10-25T01:30:00+00:00"),
    ],
)
def test_the_second_of_two_repeated_times_counts_after_the_first(now: str, expected: str) -> None:
    schedule = read(at("2026-10-25T02:30:00"), now=datetime.fromisoformat(now))
    assert isinstance(schedule, AtSchedule)
    assert schedule.at == datetime.fromisoformat(expected)


def test_repeated_and_skipped_local_times_are_refused_once_past() -> None:
    for text, now in (
        ("2026-10-25T02:30:00", "2026-10-25T01:30:00+00:00"),
        ("2026-03-29T02:30:00", "2026-03-29T01:00:00+00:00"),
    ):
        assert refusal(at(text), now=datetime.fromisoformat(now)).code == "past_at"
