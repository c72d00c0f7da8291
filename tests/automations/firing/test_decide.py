"""Rule 4.5: each due slot is run, or put into a gap with a reason, or stays due; never two of these, never none."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st

from automations.firing.decide import Decision, decide
from automations.runs.skips import Gap, GapReason, run_id
from automations.schedules.schedule import AtSchedule, CronSchedule, EverySchedule, Schedule
from tests.automations.schedules.examples import holds_for

pytestmark = pytest.mark.rule("4.5")

START = datetime(2027, 3, 27, 0, 0, tzinfo=UTC)
HOURLY = EverySchedule(seconds=3600, anchor=START)


def at(hour: float) -> datetime:
    return START + timedelta(hours=hour)


def decided(now: datetime, first: datetime = START, **given_: Any) -> Decision:
    facts: dict[str, Any] = {"schedule": HOURLY, "catch_up": "one", "overlap": "skip", "previous_open": False}
    return decide(**(facts | given_), next_run_at=first, now=now)


def gap(reason: GapReason, first: float, last: float, count: int | None) -> Gap:
    return Gap(reason=reason, slots_from=at(first), slots_to=at(last), count=count)


def test_a_slot_that_is_not_due_is_left_alone() -> None:
    assert decided(at(-0.001)) == Decision(run=(), skipped=(), accounted_to=None, next_run_at=START)


MISSED, OVERLAP, FULL = GapReason.MISSED, GapReason.OVERLAP, GapReason.QUEUE_FULL
ONE, NONE, ALL = ({"catch_up": each} for each in ("one", "none", "all"))
OPEN, QUEUE = {"previous_open": True}, {"previous_open": True, "overlap": "queue"}
SECOND = 1 / 3600
# when beat looks, in hours; what differs from the usual job; the hour of the slot that is run; what is skipped
CASES: dict[str, list[tuple[float, dict[str, Any], float | None, list[Gap]]]] = {
    "a slot on time is run": [(late, each, 0, []) for each in (ONE, NONE, ALL) for late in (0, 60 * SECOND)],
    "a slot that is merely late is run however late": [(0.99, each, 0, []) for each in (ONE, ALL)],
    "catch-up none misses a slot over a minute late": [(60.001 * SECOND, NONE, None, [gap(MISSED, 0, 0, 1)])],
    "without catching up only a fresh latest slot is run": [
        (5 + 20 * SECOND, NONE, 5, [gap(MISSED, 0, 4, 5)]),
        (5.5, NONE, None, [gap(MISSED, 0, 5, 6)]),
    ],
    "catching up one runs the latest and names the others": [(5.5, ONE, 5, [gap(MISSED, 0, 4, 5)])],
    "catching up all goes back one day, to the millisecond": [
        (100.5, ALL, 77, [gap(MISSED, 0, 76, 77)]),
        (24, ALL, 0, []),
        (100, ALL, 76, [gap(MISSED, 0, 75, 76)]),
    ],
    "an open run skips the slot": [(0, OPEN, None, [gap(OVERLAP, 0, 0, 1)])],
    "missed and overlapping are two gaps": [(5.5, OPEN, None, [gap(MISSED, 0, 4, 5), gap(OVERLAP, 5, 5, 1)])],
    "one run may wait in the queue": [
        (0, QUEUE, 0, []),
        *((0, QUEUE | {"waiting": waiting}, None, [gap(FULL, 0, 0, 1)]) for waiting in (1, 2)),
    ],
}


@pytest.mark.parametrize("what", CASES)
def test_each_due_slot_of_an_hourly_job_is_run_or_skipped_with_its_reason(what: str) -> None:
    for hours, given_, run, skipped in CASES[what]:
        runs = () if run is None else (at(run),)
        handled = max([*runs, *(each.slots_to for each in skipped)])
        following = handled + timedelta(hours=1)
        expected = Decision(run=runs, skipped=tuple(skipped), accounted_to=handled, next_run_at=following)
        assert decided(at(hours), **given_) == expected, (hours, given_)


@pytest.mark.parametrize("catch_up", ["one", "all"])
def test_the_only_due_slot_is_run_weeks_later(catch_up: str) -> None:
    monthly = CronSchedule(expr="0 0 1 * *", timezone="UTC")
    first = datetime(2027, 4, 1, tzinfo=UTC)
    late = decided(first + timedelta(days=29), first, schedule=monthly, catch_up=catch_up)
    assert (late.run, late.skipped) == ((first,), ())
    once = decided(at(9000), schedule=AtSchedule(at=START), catch_up=catch_up)
    assert once == Decision(run=(START,), skipped=(), accounted_to=START, next_run_at=None)


def test_catching_up_all_runs_oldest_and_leaves_the_next_due() -> None:
    now, first = at(5.5), START
    ran: list[datetime] = []
    while first <= now:
        decision: Any = decided(now, first, catch_up="all")
        assert decision.skipped == ()
        ran += decision.run
        first = decision.next_run_at
    assert ran == [at(hour) for hour in range(6)]
    assert first == at(6)


def test_catching_up_all_runs_at_least_the_latest() -> None:
    decision = decided(at(24 * 17), schedule=EverySchedule(seconds=7 * 86_400, anchor=START), catch_up="all")
    assert decision.run == (at(24 * 14),)
    assert decision.skipped == (gap(GapReason.MISSED, 0, 24 * 7, 2),)


@pytest.mark.parametrize("busy", [{"previous_open": True}, {"overlap": "queue", "waiting": 1}])
def test_slots_that_beat_is_a_little_late_for_share_the_gap_of_a_busy_job(busy: dict[str, Any]) -> None:
    """Each look finds three slots of one second: their gaps have one reason, so they are joined to one row."""
    reason = GapReason.OVERLAP if "previous_open" in busy else GapReason.QUEUE_FULL
    secondly, first, joined = EverySchedule(seconds=1, anchor=START), START, None
    for look in range(1, 4):
        decision = decided(START + timedelta(seconds=3 * look - 0.5), first, schedule=secondly, **busy)
        [found] = decision.skipped
        joined = found if joined is None else joined.joined_with(found)
        assert decision.next_run_at is not None
        first = decision.next_run_at
    assert joined == Gap(reason=reason, slots_from=START, slots_to=START + timedelta(seconds=8), count=9)
    late = decided(START + timedelta(seconds=100), schedule=secondly, **busy)
    assert [(each.reason, each.count) for each in late.skipped] == [(GapReason.MISSED, 40), (reason, 61)]


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_slots_being_caught_up_may_queue_behind_an_open_run(overlap: str) -> None:
    busy: dict[str, Any] = {"catch_up": "all", "overlap": overlap, "previous_open": True, "waiting": 3}
    assert decided(at(3.5), **busy).run == ()
    assert decided(at(3.5), **busy, catch_up_queues=True).run == (START,)
    assert decided(START, **busy, catch_up_queues=True).run == ()  # on time: the overlap rule
    assert decided(at(3.5), **(busy | {"catch_up": "one"}), catch_up_queues=True).run == ()


def test_a_first_slot_outside_the_schedule_still_counts() -> None:
    given_first = START + timedelta(minutes=7)
    decision = decided(at(2.5), given_first)
    assert decision.run == (at(2),)
    missed = Gap(reason=GapReason.MISSED, slots_from=given_first, slots_to=at(1), count=2)
    assert decision.skipped == (missed,)
    alone = decided(at(0.5), given_first)
    assert alone.run == (given_first,)
    assert alone.next_run_at == at(1)


def test_slots_are_counted_up_to_a_thousand() -> None:
    secondly = EverySchedule(seconds=1, anchor=START)
    assert decided(START + timedelta(seconds=1000), schedule=secondly).skipped[0].count == 1000
    beyond = decided(START + timedelta(seconds=1001), schedule=secondly)
    assert beyond.skipped[0].count is None
    assert beyond.skipped[0].slots_to == START + timedelta(seconds=1000)


def test_gaps_that_follow_each_other_can_be_told_as_one() -> None:
    first, second = gap(GapReason.OVERLAP, 0, 1, 2), gap(GapReason.OVERLAP, 2, 2, 1)
    assert first.joined_with(second) == gap(GapReason.OVERLAP, 0, 2, 3)
    assert gap(GapReason.OVERLAP, 0, 1, 1000).joined_with(second).count is None
    assert gap(GapReason.OVERLAP, 0, 1, None).joined_with(second).count is None


def test_a_run_is_named_by_job_and_slot() -> None:
    assert run_id("k7m2", datetime(2027, 1, 1, 9, 0, 0, 5_999, tzinfo=UTC)) == "k7m2:1798794000005"
    assert run_id("k7m2", datetime(2027, 1, 1, 0, 0, tzinfo=UTC)) == "k7m2:1798761600000"


EXPRESSIONS = ["* * * * *", "*/20 * * * *", "0 * * * *", "30 2 * * *", "0,30 1-3 * * *", "0 9 * * 1"]
SCHEDULES: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(EverySchedule, seconds=st.sampled_from([1, 7, 60, 3600, 90_000]), anchor=st.just(START)),
    st.builds(
        CronSchedule,
        expr=st.sampled_from(EXPRESSIONS),
        timezone=st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "UTC"]),
    ),
    st.builds(AtSchedule, at=st.just(START + timedelta(hours=1))),
)
SECONDS = st.one_of(st.integers(0, 90), st.integers(0, 7200), st.integers(0, 200_000))
PAUSES = SECONDS.map(lambda seconds: timedelta(seconds=seconds, milliseconds=7))
CATCH_UP, OVERLAPS = st.sampled_from(["one", "none", "all"]), st.sampled_from(["skip", "queue"])
POLICIES = st.fixed_dictionaries(
    {"catch_up": CATCH_UP, "overlap": OVERLAPS, "catch_up_queues": st.booleans()}
)
LOOKS = st.lists(st.tuples(PAUSES, st.booleans(), st.integers(0, 2)), min_size=1, max_size=12)


@holds_for(few=60, schedule=SCHEDULES, looks=LOOKS, policy=POLICIES)
def test_every_slot_is_in_exactly_one_run_or_gap(schedule: Schedule, looks: Any, policy: Any) -> None:
    first = due = schedule.next(START)
    now, accounted = START, START
    told: list[tuple[datetime, datetime, int | None]] = []
    for pause, previous_open, waiting in looks:
        now += pause
        if due is None:
            break
        facts = {"schedule": schedule, "previous_open": previous_open, "waiting": waiting}
        decision = decided(now, due, **facts, **policy)
        assert len(decision.run) <= 1
        told += [(gap.slots_from, gap.slots_to, gap.count) for gap in decision.skipped]
        told += [(slot, slot, 1) for slot in decision.run]
        accounted = decision.accounted_to or accounted
        assert decision.accounted_to is None or due <= decision.accounted_to <= now
        assert decision.next_run_at is None or decision.next_run_at > accounted
        due = decision.next_run_at
    assert due == schedule.next(accounted)
    # the told spans, in the order they were told, are the schedule's slots up to `accounted` without a break
    expected = first
    for start, end, count in told:
        assert start == expected
        others = schedule.count(start, end, limit=999)
        assert count == (None if others is None else 1 + others)
        expected = schedule.next(end)
    assert expected == schedule.next(accounted)
