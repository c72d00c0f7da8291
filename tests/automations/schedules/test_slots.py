"""Slots of `every` and `at`, the cost of long gaps, and the edges of the calendar."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest
from hypothesis import strategies as st

from automations.exceptions import ScheduleError
from automations.schedules import cron_fields
from automations.schedules.rule_fields import RuleFields
from automations.schedules.schedule import AtSchedule, CronSchedule, EverySchedule, RuleSchedule, Schedule
from tests.automations.schedules.examples import holds_for
from tests.automations.schedules.oracle import walked

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def every(seconds: int, anchor: datetime = NOW) -> EverySchedule:
    return EverySchedule(seconds=seconds, anchor=anchor)


def test_every_begins_at_its_anchor() -> None:
    anchor = NOW + timedelta(hours=1)
    assert every(60, anchor).next(NOW) == anchor
    assert every(60, anchor).next(anchor) == anchor + timedelta(seconds=60)
    assert every(60, anchor).last(NOW, anchor - MILLISECOND) is None
    assert every(60, anchor).count(NOW, anchor) == 1


def test_slots_are_whole_milliseconds_in_utc() -> None:
    anchor = NOW.replace(microsecond=123_999).astimezone(timezone(timedelta(hours=5, minutes=30)))
    for schedule in (every(10, anchor), AtSchedule(at=anchor)):
        slot: Any = schedule.next(NOW - timedelta(days=1))
        assert slot == NOW.replace(microsecond=123_000)
        assert slot.tzinfo is UTC


def test_at_is_one_slot() -> None:
    schedule = AtSchedule(at=NOW)
    assert schedule.next(NOW - MILLISECOND) == NOW
    assert schedule.next(NOW) is None
    assert schedule.last(NOW - MILLISECOND, NOW) == NOW
    assert schedule.last(NOW, NOW + timedelta(days=1)) is None
    assert schedule.count(NOW - timedelta(days=1), NOW + timedelta(days=1)) == 1
    assert schedule.count(NOW, NOW + timedelta(days=1)) == 0


@holds_for(
    few=100,
    seconds=st.integers(1, 10_000_000),
    anchor=st.datetimes(datetime(1975, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001 - made aware below
    number=st.integers(0, 3_000),
    part=st.floats(0, 1, exclude_max=True),
)
def test_an_interval_never_drifts(seconds: int, anchor: datetime, number: int, part: float) -> None:
    """The n-th slot is n intervals after the anchor, whenever it is asked for and however one gets there."""
    begin = anchor.replace(tzinfo=UTC, microsecond=anchor.microsecond // 1000 * 1000)
    schedule, length = every(seconds, begin), timedelta(seconds=seconds)
    slot = begin + number * length
    asked = slot + timedelta(microseconds=int(part * (length / timedelta(microseconds=1))))
    assert schedule.next(asked) == slot + length
    assert schedule.last(begin - length, asked) == slot
    assert schedule.count(begin, asked, limit=5_000) == number
    assert schedule.count(asked, asked + 5 * length, limit=5) == 5
    assert schedule.count(asked, asked + 5 * length, limit=4) is None
    assert walked(schedule, slot, slot + 5 * length) == [slot + n * length for n in range(1, 6)]


LONG_DOWN: list[Schedule] = [
    CronSchedule(expr="* * * * *", timezone="Europe/Berlin"),
    CronSchedule(expr="*/5 * * * *", timezone="Africa/Casablanca"),
    CronSchedule(expr="0-59 0-23 * * *", timezone="Europe/Berlin"),
    CronSchedule(expr="0 * * * *", timezone="UTC"),
    CronSchedule(expr="0 9 * * *", timezone="Asia/Shanghai"),
    every(1, NOW - timedelta(days=4 * 365)),
]


@pytest.mark.parametrize("schedule", LONG_DOWN, ids=str)
def test_a_gap_of_years_costs_few_steps(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    step = cron_fields._step

    def counted(expr: str, wall: datetime, *, back: bool) -> datetime | None:
        nonlocal steps
        steps += 1
        return step(expr, wall, back=back)

    monkeypatch.setattr(cron_fields, "_step", counted)
    cron_fields._day_from.cache_clear()
    cron_fields._day_until.cache_clear()
    long_ago = NOW - timedelta(days=3 * 365)
    last: Any = schedule.last(long_ago, NOW)
    assert NOW - last < timedelta(days=1)
    assert steps <= 3
    assert schedule.count(long_ago, NOW, limit=999) is None
    assert steps <= 1010  # a daily one looks at each day until the limit, a minutely one at one
    if "9" not in str(getattr(schedule, "expr", "")).split():
        assert steps <= 60


def test_the_next_slot_of_an_old_rule_is_found_near_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    days_of = RuleFields.days_of

    def counted(self: RuleFields, window: int) -> tuple[datetime, ...]:
        looked.append(window)
        return days_of(self, window)

    monkeypatch.setattr(RuleFields, "days_of", counted)
    old, zone = datetime(1971, 1, 1, 9), "Europe/Berlin"  # noqa: DTZ001 - wall time
    for rule in ("FREQ=DAILY", "FREQ=WEEKLY;INTERVAL=2", "FREQ=MONTHLY;BYDAY=-1FR", "FREQ=YEARLY;INTERVAL=3"):
        looked.clear()
        schedule = RuleSchedule(rule=rule, starts_at=old, timezone=zone)
        slot: Any = schedule.next(NOW)
        assert schedule.last(NOW - timedelta(days=366 * 4), NOW) is not None
        assert schedule.next(slot - timedelta(milliseconds=1)) == slot
        assert len(looked) <= 3, rule


EDGES = [
    datetime.min.replace(tzinfo=UTC),
    datetime(1900, 1, 1, tzinfo=UTC),
    datetime(9899, 12, 31, 23, 59, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
]


def test_the_edges_of_the_calendar_do_no_harm() -> None:
    leap = CronSchedule(expr="0 0 29 2 *", timezone="America/New_York")
    often = CronSchedule(expr="*/5 * * * *", timezone="Pacific/Kiritimati")
    rule = RuleSchedule(rule="FREQ=WEEKLY;COUNT=1000", starts_at=datetime(1970, 1, 1), timezone="UTC")  # noqa: DTZ001
    long = RuleSchedule(
        rule="FREQ=YEARLY;INTERVAL=10;COUNT=1000", starts_at=NOW.replace(tzinfo=None), timezone="UTC"
    )
    schedules = (leap, often, rule, long, every(315_360_000), AtSchedule(at=NOW))
    for schedule, instant in product(schedules, EDGES):
        slot = schedule.next(instant)
        assert slot is None or slot > instant, (schedule, instant)
        assert schedule.last(instant, instant) is None
        assert schedule.count(instant, instant) == 0
        if slot is not None:
            assert schedule.last(instant, slot) == slot, (schedule, instant)


def test_nothing_lies_between_instants_in_the_wrong_order() -> None:
    for schedule in LONG_DOWN:
        assert schedule.last(NOW, NOW - timedelta(days=1)) is None
        assert schedule.count(NOW, NOW - timedelta(days=1)) == 0


def test_a_naive_instant_is_a_bug() -> None:
    with pytest.raises(ValueError, match="aware"):
        every(5).next(datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_stored_schedule_that_became_unusable_says_so() -> None:
    for expr, zone, code in (
        ("0 9 * * *", "Gone/Zone", "unknown_timezone"),
        ("not a cron at all", "UTC", "bad_cron"),
        ("0 0 31 2 *", "UTC", "never_fires"),
    ):
        with pytest.raises(ScheduleError) as caught:
            CronSchedule(expr=expr, timezone=zone).next(NOW)
        assert caught.value.code == code
