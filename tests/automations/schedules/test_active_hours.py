"""Active hours: slots within them only, on the wall of the zone, over midnight and changes of the clocks (rule 5.1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st

from automations.schedules.active_hours import ActiveHours, ActiveSchedule
from automations.schedules.schedule import EverySchedule
from tests.automations.schedules.examples import holds_for
from tests.automations.schedules.oracle import walked

pytestmark = pytest.mark.rule("5.1", "5.2")

START = datetime(2027, 3, 27, 0, 0, tzinfo=UTC)  # Berlin's clocks go forward on the 28th
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Australia/Lord_Howe", "UTC"]


def schedule(first: int, end: int, zone: str = "UTC", seconds: int = 1800) -> ActiveSchedule:
    hours = ActiveHours(first=first, end=end, timezone=zone)
    return ActiveSchedule(slots=EverySchedule(seconds=seconds, anchor=START), hours=hours)


@pytest.mark.rule("5.3")
@pytest.mark.parametrize(
    ("first", "end", "active"),
    [
        (8, 22, range(8, 22)),
        (22, 6, [*range(6), 22, 23]),
        (0, 24, range(24)),
        (23, 0, [23]),
        (0, 1, [0]),
        (8, 24, range(8, 24)),
    ],
)
def test_the_first_hour_counts_and_the_last_does_not(first: int, end: int, active: list[int]) -> None:
    hours = {slot.hour for slot in walked(schedule(first, end), START, START + timedelta(days=1))}
    assert hours == set(active)


@pytest.mark.timeout(400)
@holds_for(
    many=60,
    zone=st.sampled_from(ZONES),
    first=st.integers(0, 23),
    length=st.integers(1, 23),
    seconds=st.sampled_from([900, 1800, 3600, 7200, 86_400]),
    begin=st.integers(0, 60 * 24 * 3),
    span=st.integers(1, 60 * 24 * 2),
)
def test_it_is_the_schedule_without_what_lies_outside(
    zone: str, first: int, length: int, seconds: int, begin: int, span: int
) -> None:
    wanted = schedule(first, (first + length) % 24, zone, seconds)
    after = START + timedelta(minutes=begin)
    until = after + timedelta(minutes=span)
    inside = {hour % 24 for hour in range(first, first + length)}
    tz = ZoneInfo(zone)
    step = timedelta(seconds=seconds)
    grid = [START + n * step for n in range(timedelta(days=6) // step)]
    expected = [slot for slot in grid if after < slot <= until and slot.astimezone(tz).hour in inside]
    assert walked(wanted, after, until) == expected
    assert wanted.count(after, until, 10_000) == len(expected)
    assert wanted.last(after, until) == (expected[-1] if expected else None)


def test_an_interval_that_never_meets_the_hours_has_no_slot() -> None:
    assert schedule(8, 9, seconds=86_400).next(START) is None


def test_counting_stops_at_the_limit() -> None:
    assert schedule(0, 24, seconds=60).count(START, START + timedelta(days=1), 100) is None
