"""Claim: which turn of a session runs next, and that it is this worker who runs it. One statement."""

from __future__ import annotations

import json
import uuid
from typing import Any

import sqlalchemy as sa
from django.conf import settings
from django.db import transaction

from sessions_app import events, flags, metrics
from sessions_app.kinds import kind_of
from sessions_app.models import EventType, Lane, Session, SessionState, Turn, TurnState, TurnStep, Worker
from sessions_app.sql import Statement, table

MAX_RESCUES = 3

_turn, _step, _worker, _session = table(Turn), table(TurnStep), table(Worker), table(Session)
_SESSION_ID = sa.bindparam("session_id", type_=sa.Uuid())
_ME = sa.bindparam("worker", type_=sa.Uuid())


def seconds(name: str) -> Any:
    """A bind parameter of that name, in seconds, as an interval."""
    return sa.func.make_interval(0, 0, 0, 0, 0, 0, sa.bindparam(name, type_=sa.Float()))


def worker_is_gone(worker: Any) -> Any:
    """The owner gave no sign of life for `lost_after` seconds, and the server has been up that long itself."""
    alive = sa.exists().where(
        _worker.c.id == worker, _worker.c.heartbeat_at > sa.func.now() - seconds("lost_after")
    )
    return sa.and_(~alive, sa.func.pg_postmaster_start_time() < sa.func.now() - seconds("lost_after"))


def _head(lane: str) -> Any:
    """An index probe: the lane's first queued row that nobody takes along."""
    turn = _turn.alias()
    return (
        sa.select(turn)
        .where(
            turn.c.session_id == _SESSION_ID,
            turn.c.lane == sa.literal_column(f"'{lane}'"),
            turn.c.state == sa.literal_column("'queued'"),
            turn.c.host_id.is_(None),
        )
        .order_by(turn.c.due_at, turn.c.id)
        .limit(1)
    )


def _next_id() -> Any:
    """A RUNNING turn before any other; an automation that waited too long; people; automations by slot."""
    running = _turn.alias()
    started = sa.select(running.c.id).where(
        running.c.session_id == _SESSION_ID, running.c.state == sa.literal_column("'running'")
    )
    auto = _head(Lane.AUTO).subquery()
    aged = sa.select(auto.c.id).where(auto.c.queued_at < sa.func.now() - seconds("max_wait"))
    people = _head(Lane.PEOPLE).with_for_update().subquery()
    by_slot = _head(Lane.AUTO).with_for_update().subquery()
    return sa.func.coalesce(
        started.scalar_subquery(),
        aged.scalar_subquery(),
        sa.select(people.c.id).scalar_subquery(),
        sa.select(by_slot.c.id).scalar_subquery(),
    )


def _claim_statement() -> Statement:
    picked = _turn.alias()
    candidate = sa.select(picked.c.id).where(picked.c.id == _next_id()).with_for_update().scalar_subquery()
    steps = sa.select(sa.func.coalesce(sa.func.max(_step.c.n) + 1, 0)).where(_step.c.turn_id == _turn.c.id)
    steps_now = steps.scalar_subquery()
    unowned = sa.or_(_turn.c.claim.is_(None), _turn.c.worker == _ME, worker_is_gone(_turn.c.worker))
    takeable = sa.or_(_turn.c.state == TurnState.QUEUED, sa.and_(_turn.c.state == TurnState.RUNNING, unowned))
    open_session = sa.exists().where(_session.c.id == _SESSION_ID, _session.c.state != SessionState.DELETING)
    fruitless = sa.and_(
        _turn.c.state == TurnState.RUNNING, _turn.c.claim.is_not(None), _turn.c.steps_at_claim == steps_now
    )
    claimed = (
        sa.update(_turn)
        .where(
            _turn.c.id == candidate,
            takeable,
            open_session,
            sa.or_(_turn.c.lane == Lane.PEOPLE, sa.bindparam("auto_allowed", type_=sa.Boolean())),
        )
        .values(
            state=TurnState.RUNNING,
            claim=sa.bindparam("new_claim", type_=sa.Uuid()),
            worker=_ME,
            attempt=_turn.c.attempt + 1,
            rescues=_turn.c.rescues + sa.case((fruitless, 1), else_=0),
            steps_at_claim=steps_now,
            claimed_at=sa.func.now(),
            started_at=sa.func.coalesce(_turn.c.started_at, sa.func.now()),
            lock_wait_ms=sa.func.coalesce(
                _turn.c.lock_wait_ms,
                # never below 0: now() is this transaction's start, which may lie before the row came
                sa.func.greatest(
                    sa.cast(
                        sa.func.extract("epoch", sa.func.now() - _turn.c.queued_at) * 1000, sa.BigInteger()
                    ),
                    0,
                ),
            ),
        )
        .returning(*_turn.c)
        .cte("claimed")
    )
    start = events.insert_from(
        claimed,
        EventType.TURN_START,
        events.object_of({"attempt": claimed.c.attempt, "kind": claimed.c.kind}),
    )
    attempt = {"kind": claimed.c.kind, "attempt": claimed.c.attempt}
    everywhere = events.tell_of_background(claimed, EventType.TURN_START, attempt)
    told = sa.select(everywhere.c.agent_id).scalar_subquery().label("told")
    return Statement(sa.select(claimed, told).add_cte(start))


CLAIM = _claim_statement()
_JSON = {"metadata", "usage"}


def claim_next(session_id: uuid.UUID, worker: uuid.UUID, *, auto_allowed: bool) -> Turn | None:
    """Take the session's next turn; None when there is none for us. Needs the session's lock.

    With `auto_allowed` false nothing is taken when the next turn in order is an automation's.
    """
    with transaction.atomic():
        row = CLAIM.first(
            session_id=session_id,
            worker=worker,
            new_claim=uuid.uuid4(),
            auto_allowed=auto_allowed,
            lost_after=settings.RONDO_WORKER_LOST_SECONDS,
            max_wait=settings.AUTOMATION_MAX_WAIT,
            everywhere=flags.tells_every_window(),
        )
        if row is None:
            return None
        fields = row._asdict()
        told = fields.pop("told")
        turn = _from_row(fields)
        if told is not None:
            events.announce(session_id, told)
        kind_of(turn).started(turn)
        if turn.attempt == 1:
            metrics.lock_waited(turn.lock_wait_ms or 0)
    return turn


def _from_row(row: dict[str, Any]) -> Turn:
    values = {name: json.loads(value) if name in _JSON else value for name, value in row.items()}
    turn = Turn(**values)
    turn._state.adding = False
    turn._state.db = "default"
    return turn


_look_auto, _look_people = _head(Lane.AUTO).subquery(), _head(Lane.PEOPLE).subquery()
_look_running = sa.select(_turn).where(_turn.c.session_id == _SESSION_ID, _turn.c.state == TurnState.RUNNING)
_handed_back = _look_running.subquery()
LOOK = Statement(
    sa.select(
        sa.func.coalesce(
            sa.select(_handed_back.c.lane).scalar_subquery(),
            sa.select(_look_auto.c.lane)
            .where(_look_auto.c.queued_at < sa.func.now() - seconds("max_wait"))
            .scalar_subquery(),
            sa.select(_look_people.c.lane).scalar_subquery(),
            sa.select(_look_auto.c.lane).scalar_subquery(),
        ).label("lane")
    ).where(
        # whoever runs a turn looks again after it; a session that is being deleted takes no more
        ~sa.exists().where(
            _turn.c.session_id == _SESSION_ID, _turn.c.state == TurnState.RUNNING, _turn.c.claim.is_not(None)
        ),
        sa.exists().where(_session.c.id == _SESSION_ID, _session.c.state != SessionState.DELETING),
    )
)


def look(session_id: uuid.UUID) -> str | None:
    """The lane of the turn that the session could run now, None when there is none."""
    row = LOOK.first(session_id=session_id, max_wait=settings.AUTOMATION_MAX_WAIT)
    return None if row is None else row.lane
