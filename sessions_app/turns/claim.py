"""Claim the next turn of a session for this worker, in one statement.

No turn begins for an owner whose account is inactive, or who has the maximum number of turns running. The claims of a
user are made one at a time, so that the count is exact.
"""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from typing import Any

import sqlalchemy as sa
from django.conf import settings
from django.db import transaction

from sessions_app import events, flags, metrics
from sessions_app.limits import running_turns
from sessions_app.models import EventType, Lane, Session, SessionState, Turn, TurnState, TurnStep, Worker
from sessions_app.postgres import event_statements
from sessions_app.postgres.rows import instance_of
from sessions_app.postgres.statements import Statement, seconds_parameter, table
from sessions_app.queue.kinds import kind_of

MAX_RESCUES = 3
MOST_ATTEMPTS = 100  # claims of one turn, including those that were not rescues

HEARTBEATS_OF_A_BREAK = 2  # heartbeats that a worker misses before it counts as having been away
ASKER = sa.bindparam("worker", type_=sa.Uuid())

_turn, _step, _session, _worker = table(Turn), table(TurnStep), table(Session), table(Worker)
_COLUMNS = len(_turn.c)
SESSION_ID = sa.bindparam("session_id", type_=sa.Uuid())


def head_of_lane(lane: str) -> Any:
    """Select the lane's first queued turn that is not a guest: one look into an index."""
    turn = _turn.alias()
    return (
        sa.select(turn.c.id, turn.c.queued_at)
        .where(
            turn.c.session_id == SESSION_ID,
            turn.c.lane == sa.literal_column(f"'{lane}'"),
            turn.c.state == sa.literal_column("'queued'"),
            turn.c.host_id.is_(None),
        )
        .order_by(turn.c.due_at, turn.c.id)
        .limit(1)
    )


def next_id(*, lock: bool = True) -> Any:
    """Select the turn to claim, in this order: a RUNNING one, an automation that waited too long, messages,
    automations.
    """
    running = _turn.alias()
    started = sa.select(running.c.id).where(
        running.c.session_id == SESSION_ID, running.c.state == sa.literal_column("'running'")
    )
    auto = head_of_lane(Lane.AUTO).subquery()
    aged = sa.select(auto.c.id).where(auto.c.queued_at < sa.func.now() - seconds_parameter("max_wait"))
    waiting = [head_of_lane(lane) for lane in (Lane.PEOPLE, Lane.AUTO)]
    heads = [(each.with_for_update() if lock else each).subquery() for each in waiting]
    return sa.func.coalesce(
        started.scalar_subquery(),
        aged.scalar_subquery(),
        *(sa.select(head.c.id).scalar_subquery() for head in heads),
    )


def may_go_on(turn: Any) -> Any:
    """Condition: a running turn is resumed. For an inactive owner it is resumed only to be cancelled."""
    return sa.or_(turn.c.cancel_requested_at.is_not(None), running_turns.is_active(turn.c.owner_id))


def worker_is_gone(worker: Any) -> Any:
    """Condition: the worker sent no heartbeat for `lost_after` seconds, while the server and the asking worker were up.

    After an outage every heartbeat is old, so the first worker that is back must give the others time to return.
    """
    lost, asker = sa.func.now() - seconds_parameter("lost_after"), _worker.alias()
    alive = sa.exists().where(_worker.c.id == worker, _worker.c.heartbeat_at > lost)
    silent = asker.c.heartbeat_at < sa.func.now() - seconds_parameter("break_after")
    was_away = sa.exists().where(asker.c.id == ASKER, sa.or_(silent, asker.c.steady_since > lost))
    return sa.and_(~alive, ~was_away, sa.func.pg_postmaster_start_time() < lost)


def limits_of_silence() -> dict[str, float]:
    """Return the parameters of `worker_is_gone`, in seconds."""
    lost_after = settings.RONDO_WORKER_LOST_SECONDS
    return {
        "lost_after": lost_after,
        "break_after": min(HEARTBEATS_OF_A_BREAK * settings.RONDO_HEARTBEAT_SECONDS, lost_after),
    }


def _claim_statement() -> Any:
    picked = _turn.alias()
    candidate = sa.select(picked.c.id).where(picked.c.id == next_id()).with_for_update().scalar_subquery()
    steps = sa.select(sa.func.coalesce(sa.func.max(_step.c.n) + 1, 0)).where(_step.c.turn_id == _turn.c.id)
    steps_now = steps.scalar_subquery()
    claimed = (
        sa.update(_turn)
        .where(
            _turn.c.id == candidate,
            _is_takeable(),
            sa.exists().where(_session.c.id == SESSION_ID, _session.c.state != SessionState.DELETING),
            sa.or_(_turn.c.lane == Lane.PEOPLE, sa.bindparam("auto_allowed", type_=sa.Boolean())),
        )
        .values(
            state=TurnState.RUNNING,
            claim=sa.bindparam("new_claim", type_=sa.Uuid()),
            worker=ASKER,
            attempt=_turn.c.attempt + 1,
            rescues=_rescues(steps_now),
            steps_at_claim=steps_now,
            claimed_at=sa.func.now(),
            started_at=sa.func.coalesce(_turn.c.started_at, sa.func.now()),
            lock_wait_ms=sa.func.coalesce(_turn.c.lock_wait_ms, _waited_ms()),
        )
        .returning(*_turn.c)
        .cte("claimed")
    )
    attempt = {"kind": claimed.c.kind, "attempt": claimed.c.attempt}
    start = event_statements.insert_from(claimed, EventType.TURN_START, event_statements.object_of(attempt))
    everywhere = event_statements.tell_of_background(claimed, EventType.TURN_START, attempt)
    told = sa.select(everywhere.c.agent_id).scalar_subquery().label("told")
    return sa.select(claimed, told, _without_flush()).add_cte(start)


def _is_takeable() -> Any:
    """Condition: the turn is queued and its owner has room for it, or it was begun by a worker that is gone."""
    has_room = running_turns.has_room(running_turns.count_running_exactly(_turn.c.owner_id), _turn.c.lane)
    unowned = sa.or_(_turn.c.claim.is_(None), _turn.c.worker == ASKER, worker_is_gone(_turn.c.worker))
    return sa.or_(
        sa.and_(_turn.c.state == TurnState.QUEUED, running_turns.is_active(_turn.c.owner_id), has_room),
        sa.and_(_turn.c.state == TurnState.RUNNING, unowned, may_go_on(_turn)),
    )


def _rescues(steps_now: Any) -> Any:
    """Expression: how often the turn was taken over from a lost worker, without a new step in between."""
    rescued = sa.and_(
        _turn.c.state == TurnState.RUNNING, _turn.c.claim.is_not(None), _turn.c.worker.is_distinct_from(ASKER)
    )
    # a turn that the same worker claims again was not lost
    return sa.case(
        (_turn.c.steps_at_claim != steps_now, 0), (rescued, _turn.c.rescues + 1), else_=_turn.c.rescues
    )


def _waited_ms() -> Any:
    waited = sa.func.extract("epoch", sa.func.now() - _turn.c.queued_at) * 1000
    # at least 0: now() is the start of this transaction, which may be before the row was queued
    return sa.func.greatest(sa.cast(waited, sa.BigInteger()), 0)


def _without_flush() -> Any:
    """An expression that lets this transaction commit without waiting for the disk.

    A claim that is lost in a crash of PostgreSQL was followed by no write that was kept: each of them is behind the
    fence, and is flushed with all that was written before it. The turn is queued again, and its worker is stale.
    """
    name, off, local = (sa.literal_column(text) for text in ("'synchronous_commit'", "'off'", "true"))  # type: ignore[var-annotated]
    return sa.func.set_config(name, off, local).label("flush")


CLAIM = Statement(_claim_statement, prepared=True)


def claim_next(session_id: uuid.UUID, worker: uuid.UUID, *, auto_allowed: bool) -> Turn | None:
    """Claim the session's next turn; None if there is none to run. The caller holds the session's lock.

    With `auto_allowed` false nothing is claimed if the next turn is an automation's. None also if the owner has no room
    for it; then a turn of the owner that ends, or else the sweep, finds the session (see `next_lane`).
    """
    # a message has no run to start: one statement commits by itself
    with transaction.atomic() if auto_allowed else nullcontext():
        turn = _begin(CLAIM.first(**claim_parameters(session_id, worker, auto_allowed=auto_allowed)))
        if turn is not None:
            kind_of(turn).started(turn)
    return turn


def claim_parameters(session_id: uuid.UUID, worker: uuid.UUID, *, auto_allowed: bool) -> dict[str, Any]:
    """Return the parameters of `CLAIM`, with a new claim."""
    return {
        "session_id": session_id,
        "worker": worker,
        "new_claim": uuid.uuid4(),
        "auto_allowed": auto_allowed,
        "max_wait": settings.AUTOMATION_MAX_WAIT,
        "everywhere": flags.tells_every_window(),
        **limits_of_silence(),
        **running_turns.bounds(),
    }


def _begin(row: Any | None) -> Turn | None:
    if row is None:
        return None
    turn = instance_of(Turn, row[:_COLUMNS])
    if row.told is not None:
        events.announce(turn.session_id, row.told)
    if turn.attempt == 1:
        metrics.count_lock_wait(turn.lock_wait_ms or 0)
    return turn
