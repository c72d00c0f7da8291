"""A past to prune: rows as they would lie there after days."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.runs.skips import run_id
from sessions_app.models import Event, EventType, Message, Session, Turn, TurnKind, TurnState, TurnStep
from sessions_app.models.turn import OPEN_STATES
from sessions_app.retention.walk import BATCH, prune_batch, walks
from tests.automations.jobs.made import EVERY_SECOND, new


def ago(days: float) -> datetime:
    instant = datetime.now(UTC) - timedelta(days=days)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def past_turn(session: Session, days: float, state: str = TurnState.SUCCEEDED, **fields: Any) -> Turn:
    """A turn with two steps, two events and, if it has ended, two messages."""
    when = ago(days)
    is_open = state in OPEN_STATES
    values: dict[str, Any] = {"kind": TurnKind.MESSAGE, "lane": "turns", "content": "hello", "state": state}
    values |= dict.fromkeys(("queued_at", "due_at", "claimed_at", "finished_at"), when)
    if is_open:
        values["finished_at"] = None
    if state == TurnState.RUNNING:
        values["claim"] = uuid.uuid4()
    turn = Turn.objects.create(session=session, **(values | fields))
    TurnStep.objects.bulk_create(
        TurnStep(turn=turn, n=n, kind="prompt" if n == 0 else "response", data={}, created_at=when)
        for n in range(2)
    )
    Event.objects.bulk_create(
        Event(agent_id=session.agent_id, session=session, turn_id=turn.pk, type=kind, created_at=when)
        for kind in (EventType.TURN_QUEUED, EventType.TURN_END)
    )
    if not is_open:
        say(session, turn, when)
    return turn


def say(session: Session, turn: Turn, when: datetime) -> None:
    """The turn's two messages, as its commit appends them."""
    session.refresh_from_db()
    Message.objects.bulk_create(
        Message(
            session=session, turn=turn, seq=session.last_seq + n, role=role, content=role, created_at=when
        )
        for n, role in enumerate(("user", "assistant"), 1)
    )
    Session.objects.filter(pk=session.pk).update(
        last_seq=session.last_seq + 2, revision=session.revision + 1, updated_at=when
    )


def ticking(session: Session, **fields: Any) -> CronJob:
    """A job with a slot each second, which nothing fires before its clock is set back."""
    job = new(session, schedule=EVERY_SECOND, **fields)
    JobClock.objects.filter(job=job).update(next_run_at=ago(-1000))
    return job


def past_run(
    job: CronJob, slot: datetime, state: str = RunState.SUCCEEDED, turn: Turn | None = None, **fields: Any
) -> RunRecord:
    """A run of a slot; its clock has accounted for it."""
    is_open = state in {RunState.QUEUED, RunState.RUNNING}
    values: dict[str, Any] = {"run_id": run_id(job.pk, slot), "session_id": job.session_id, "state": state}
    values |= {"turn": turn}
    values |= {"scheduled_for": slot, "created_at": slot, "finished_at": None if is_open else slot}
    if state == RunState.SKIPPED:
        values |= {"reason": "overlap", "slots_from": slot, "slots_to": slot, "slots_count": 1}
    clock = JobClock.objects.get(job=job)
    if clock.last_slot is None or clock.last_slot < slot:
        JobClock.objects.filter(job=job).update(last_slot=slot)
    return RunRecord.objects.create(job=job, **(values | fields))


def prune_all(limit: int = BATCH, *names: str) -> dict[str, int]:
    """Every walk to its end; what went, by name."""
    removed = {}
    for walk in walks():
        if names and walk.name not in names:
            continue
        step = prune_batch(walk, limit)
        removed[walk.name] = step.removed
        while step.more:
            step = prune_batch(walk, limit)
            removed[walk.name] += step.removed
    return {name: count for name, count in removed.items() if count}
