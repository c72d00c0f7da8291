"""Jobs that are fired together give the ledger that each of them alone gives, and that the rules give row by row."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction

from automations.firing import fire_jobs
from automations.firing.decide import Decision, decide, nothing_due, skip_due
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.runs.skips import GapReason, run_id
from automations.schedules.plan import accounted_to, plan_of, schedule_of
from sessions_app.models import Agent, Event, Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES
from tests.conftest import Person, new_person

pytestmark = [pytest.mark.rule("4.4"), pytest.mark.rule("4.5"), pytest.mark.rule("4.12")]
ROUNDS = int(os.environ.get("RONDO_PROPERTY_EXAMPLES", "20")) // 4
QUICK = 1  # of them in `make test`
JOBS = 60  # in one batch
_numbers = itertools.count(1)


def some_job(of: Random, sessions: list[Session], now: datetime) -> CronJob:
    """A job that was due a while ago. Columns have few values, so that some jobs share a decision."""
    due = whole(now) - timedelta(seconds=of.choice([1, 1, 30, 61, 300, 4_000, 100_000]))
    schedule: dict[str, Any] = of.choice(
        [
            {"schedule_kind": "every", "every_seconds": of.choice([7, 60, 3_600]), "anchor": due},
            {"schedule_kind": "every", "every_seconds": 3_600, "anchor": due - timedelta(hours=30)},
            {"schedule_kind": "cron", "expr": of.choice(["* * * * *", "*/7 * * * *", "0 9 * * *", "61 * * * *"]),
             "timezone": of.choice(["UTC", "Europe/Berlin", "Europe/Berlin", "Mars/Olympus"])},
            {"schedule_kind": "at", "at": due, "timezone": of.choice(["UTC", "Asia/Tokyo"])},
        ]
    )  # fmt: skip
    session = of.choice(sessions)
    job = CronJob.objects.create(
        id=f"job{next(_numbers)}",
        agent_id=session.agent_id,
        session=session,
        name="n",
        message=of.choice(["look", "look\n\u2028\"'\\ twice", ""]),
        overlap=of.choice(["skip", "queue"]),
        catch_up=of.choice(["one", "one", "none", "all"]),
        jitter_seconds=of.choice([0, 0, 0, 90]),
        max_runs=of.choice([None, None, 1, 3]),
        ends_at=of.choice([None, None, None, due, whole(now) + timedelta(seconds=50)]),
        timeout_seconds=of.choice([None, 30]),
        policy=of.choice([{}, {"max_steps": 3, "timeout_seconds": 9}]),
        stranger=of.choice(["", "", "ci"]),
        has_read=of.choice([False, False, True]),
        max_retry=of.randint(0, 2),
        revision=of.randint(1, 3),
        **schedule,
    )
    JobClock.objects.create(
        job=job,
        next_run_at=due,
        last_slot=of.choice([None, None, due - timedelta(hours=1), due, whole(now) + timedelta(days=3)]),
        runs_started=of.choice([0, 0, 1, 2]),
    )
    leave_open(job, of.choice(["", "", "", "queued", "running", "retry"]), now)
    return job


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What firing leaves of each job, without ids and times of the rows themselves."""

    runs: dict[str, list[Any]]
    turns: dict[str, list[Any]]
    clocks: dict[str, Any]
    faults: dict[str, str]


@pytest.fixture
def people(transactional_db: None) -> list[Person]:
    """The second one's account is inactive."""
    found = [new_person(name) for name in ("ada", "bob")]
    found[1].user.is_active = False
    found[1].user.save()
    return found


@pytest.mark.long("sixty jobs are fired together, and each alone")
@pytest.mark.parametrize(
    "seed", [*range(QUICK), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(QUICK, ROUNDS))]
)
def test_a_batch_gives_the_ledger_of_its_jobs_one_by_one(people: list[Person], seed: int) -> None:
    opened = [*(people[0].session() for _ in range(4)), people[1].session()]
    Session.objects.filter(pk=opened[3].pk).update(state="archived")
    of = Random(seed)
    with transaction.atomic():  # so that now() stands still
        made = [some_job(of, opened, database_time()) for _ in range(JOBS)]
        made = [CronJob.objects.get(pk=job.pk) for job in made]
        expected = {job.pk: expected_of(job) for job in made}
        together = ledger_after(made, lambda: fire_jobs.fire_due_jobs(JOBS))
        each_due = [[SimpleNamespace(pk=job.pk, now=database_time())] for job in made]
        alone = ledger_after(made, lambda: [*map(fire_jobs._fire, each_due)])
        transaction.set_rollback(True)
    assert together == alone
    for job in made:
        if expected[job.pk] is not None:
            found = together.runs[job.pk], together.turns[job.pk], together.clocks[job.pk]
            assert found == expected[job.pk], job.pk


def leave_open(job: CronJob, state: str, now: datetime) -> None:
    """A run of an earlier slot that has not ended, if a state is given."""
    if not state or job.session is None:
        return
    turn, is_retry = None, state == "retry"
    if not is_retry:
        # a session has one running turn at a time
        taken = Turn.objects.filter(session=job.session, state="running").exists()
        state = "queued" if taken else state
        turn = Turn.objects.create(session=job.session, kind="automation", lane="auto", state=state)
    RunRecord.objects.create(
        run_id=f"{job.pk}:before", job=job, session=job.session, scheduled_for=now - timedelta(days=40), turn=turn,
        attempt=2, state="queued" if is_retry else state, not_before=now + timedelta(hours=1) if is_retry else None,
    )  # fmt: skip


def ledger_after(made: list[CronJob], fire: Any) -> Ledger:
    """Fire, read what is there, and undo it."""
    with transaction.atomic():
        fire()
        ledger = read_ledger(made)
        transaction.set_rollback(True)
    return ledger


def read_ledger(made: list[CronJob]) -> Ledger:
    ids = [job.pk for job in made]
    clocks = JobClock.objects.values_list("next_run_at", "last_slot", "runs_started")
    by_run = {turn.origin_run: turn for turn in Turn.objects.filter(origin_run__startswith="job")}
    return Ledger(
        runs={pk: [run_row(run) for run in new_runs(pk)] for pk in ids},
        turns={pk: [turn_row(by_run[r.pk]) for r in new_runs(pk) if r.pk in by_run] for pk in ids},
        clocks={pk: clocks.get(pk=pk) for pk in ids},
        faults=dict(CronJob.objects.filter(enabled=False).values_list("pk", "fault")),
    )


def new_runs(job: str) -> Any:
    return RunRecord.objects.filter(job_id=job).exclude(run_id__endswith=":before").order_by("scheduled_for")


def run_row(run: RunRecord) -> Any:
    if run.state == RunState.SKIPPED:
        return run.pk, run.reason, run.slots_from, run.slots_to, run.slots_count, run.session_key
    return run.pk, run.state, run.scheduled_for, run.lag_ms, run.snapshot, run.session_id, run.session_key


def turn_row(turn: Turn) -> Any:
    [event] = Event.objects.filter(turn_id=turn.pk)
    assert (event.type, event.session_id, event.run_id) == ("turn_queued", turn.session_id, turn.origin_run)
    assert event.content == {"text": turn.content, "kind": turn.kind}
    return (
        *(turn.session_id, turn.kind, turn.lane, turn.state, turn.content, turn.metadata, turn.due_at),
        *(turn.origin_attempt, turn.on_busy, turn.idempotency_key, turn.usage, turn.attempt),
    )


def expected_of(job: CronJob) -> Any:
    """The runs, turns and clock by the rules, from the job's own row. None: its schedule cannot be read."""
    now, clock = database_time(), JobClock.objects.get(pk=job.pk)
    try:
        decision = decision_of(job, clock, now)
        snapshot = snapshot_of(job)
    except Exception:  # noqa: BLE001 - a poisoned schedule
        return None
    if decision is None:
        return [], [], (clock.next_run_at, clock.last_slot, clock.runs_started)
    plan, session = plan_of(job, clock.runs_started), job.session
    assert session is not None
    runs: list[Any] = [
        (run_id(job.pk, gap.slots_from), gap.reason, gap.slots_from, gap.slots_to, gap.count, session.key)
        for gap in decision.skipped
    ]
    turns = []
    for slot in decision.run:
        identity, lag = run_id(job.pk, slot), round((now - plan.jitter - slot).total_seconds() * 1000)
        runs.append((identity, "queued", slot, max(0, lag), snapshot, session.pk, session.key))
        turns.append(expected_turn(job, slot, snapshot))
    last = max((each for each in (clock.last_slot, decision.accounted_to) if each), default=None)
    following = plan.firing_of(decision.next_run_at, runs=len(decision.run))
    return runs, turns, (following, last, clock.runs_started + len(decision.run))


def expected_turn(job: CronJob, slot: datetime, snapshot: dict[str, Any]) -> Any:
    marks: dict[str, Any] = {"stranger": job.stranger} if job.stranger else {}
    marks |= {"read_before": True} if job.has_read else {}
    about = {"automation_id": job.pk, "automation_name": job.name, "timezone": job.timezone} | marks
    return (
        *(job.session_id, "automation", "auto", "queued", job.message),
        *(about | ({"policy": snapshot["policy"]} if snapshot["policy"] else {}), slot),
        *(1, "enqueue", f"run:{run_id(job.pk, slot)}:1", {}, 0),
    )


def snapshot_of(job: CronJob) -> dict[str, Any]:
    names = ("name", "message", "timezone", "revision", "max_retry")
    limits = {} if job.timeout_seconds is None else {"timeout_seconds": job.timeout_seconds}
    own = {"schedule": schedule_of(job).to_json(zone=job.timezone), "policy": job.policy | limits}
    return {name: getattr(job, name) for name in names} | own


def decision_of(job: CronJob, clock: JobClock, now: datetime) -> Decision | None:
    """The decision from the job's own row; None: it is not due."""
    if clock.next_run_at is None or clock.next_run_at > now:
        return None
    plan, open_turns = plan_of(job, clock.runs_started), Turn.objects.filter(runs__job=job)
    slot, local = plan.first_slot(clock.next_run_at, accounted_to(clock.last_slot, now)), now - plan.jitter
    if slot is None or slot > local:
        return nothing_due(slot)
    if not Agent.objects.get(pk=job.agent_id).owner.is_active:
        return skip_due(plan.slots, slot, local, GapReason.OWNER_INACTIVE)
    if job.session is None or job.session.state != "open":
        return skip_due(plan.slots, slot, local, GapReason.SESSION_CLOSED)
    return decide(
        schedule=plan.slots, next_run_at=slot, now=local, catch_up=job.catch_up, overlap=job.overlap,
        previous_open=open_turns.filter(state__in=OPEN_STATES).exists(),
        waiting=open_turns.filter(state=TurnState.QUEUED).count(), catch_up_queues=True,
    )  # fmt: skip


def database_time() -> datetime:
    """The transaction's time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        return cursor.fetchone()[0]  # type: ignore[no-any-return]


def whole(instant: datetime) -> datetime:
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)
