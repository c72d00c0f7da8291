"""Recover: the sweep that finds what nobody woke, and the watchdog of tools that hang."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
import structlog
from django.conf import settings
from django.db import connection, transaction

from agent_core.exceptions import Stale
from sessions_app import sql
from sessions_app.claim import seconds, worker_is_gone
from sessions_app.commit import commit
from sessions_app.context import broken
from sessions_app.journal import Journal
from sessions_app.lock import Handle, SessionLocks
from sessions_app.models import Lane, Session, SessionState, Turn, TurnState, Worker
from sessions_app.sql import Statement, table
from sessions_app.wake import Hint, send

log = structlog.get_logger(__name__)

# in sweeps: a fresh row's own hint is on its way for one; after two the hint is sent again; after six everyone is asked
HINT_AGAIN_AFTER = 2
ASK_EVERYONE_AFTER = 6
MOST_HINTS = 1_000  # of one sweep
FORGET_WORKER_AFTER: Any = sa.literal_column("interval '1 hour'")
SWEEP_LOCK = 0x526F6E646F  # one sweep at a time in the whole fleet

_turn, _session, _worker = table(Turn), table(Session), table(Worker)
_SWEEP = seconds("sweep")
_QUEUED: Any = sa.literal_column("'queued'")
_COLUMNS = ("session_id", "lane", "id", "hinted_at", "queued_at")


def _asleep() -> Statement:
    """Sessions with waiting rows, nobody running and no fresh hint; agents take turns. Stamps and returns them."""
    # each session's first waiting row of each lane
    heads = sql.heads(
        _turn, _COLUMNS, ("session_id", "lane"), ("due_at", "id"), lambda rows: rows.c.state == _QUEUED
    )
    running = sa.exists().where(_turn.c.session_id == heads.c.session_id, _turn.c.state == TurnState.RUNNING)
    silent = sa.or_(
        heads.c.hinted_at < sa.func.now() - HINT_AGAIN_AFTER * _SWEEP,
        sa.and_(heads.c.hinted_at.is_(None), heads.c.queued_at < sa.func.now() - _SWEEP),
    )
    by_agent = sa.func.row_number().over(partition_by=_session.c.agent_id, order_by=heads.c.queued_at)
    waiting = (
        sa.select(heads.c.id, by_agent.label("rank"))
        .join(_session, _session.c.id == heads.c.session_id)
        .where(~running, silent, _session.c.state != SessionState.DELETING)
        .subquery()
    )
    chosen = sa.select(waiting.c.id).order_by(waiting.c.rank, waiting.c.id).limit(MOST_HINTS)
    return _stamp(sa.and_(_turn.c.id.in_(chosen), _turn.c.state == TurnState.QUEUED))


def _abandoned() -> Statement:
    """RUNNING turns that nobody runs: handed back, their worker gone, or ours and yet not in our guard."""
    own = sa.and_(
        _turn.c.worker == sa.bindparam("worker", type_=sa.Uuid()),
        _turn.c.session_id != sa.all_(sa.bindparam("held", type_=sa.ARRAY(sa.Uuid()))),
        _turn.c.claimed_at < sa.func.now() - _SWEEP,
    )
    nobody = sa.or_(_turn.c.claim.is_(None), own, worker_is_gone(_turn.c.worker))
    silent = sa.func.coalesce(_turn.c.hinted_at, _turn.c.claimed_at) < sa.func.now() - _SWEEP
    return _stamp(sa.and_(_turn.c.state == TurnState.RUNNING, nobody, silent))


def _stamp(which: Any) -> Statement:
    return Statement(
        sa.update(_turn)
        .where(which)
        .values(hinted_at=sa.func.now())
        .returning(
            _turn.c.session_id,
            _turn.c.lane,
            (_turn.c.queued_at < sa.func.now() - ASK_EVERYONE_AFTER * _SWEEP).label("anywhere"),
        )
    )


ASLEEP, ABANDONED = _asleep(), _abandoned()
FORGET = Statement(sa.delete(_worker).where(_worker.c.heartbeat_at < sa.func.now() - FORGET_WORKER_AFTER))


def sweep(worker_id: uuid.UUID, held: Callable[[], list[Handle]]) -> int:
    """Hint at every session that waits and that nobody woke; the number of hints.

    Each worker looks after the turns in its own name; the rest is done by one worker at a time.
    """
    rows = ABANDONED.all(
        worker=worker_id,
        held=[handle.session_id for handle in held()],
        lost_after=settings.RONDO_WORKER_LOST_SECONDS,
        sweep=settings.RONDO_SWEEP_SECONDS,
    )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [SWEEP_LOCK])
        if cursor.fetchone()[0]:
            rows += ASLEEP.all(sweep=settings.RONDO_SWEEP_SECONDS)
            FORGET.run()
    if rows:
        log.info("swept", sessions=len(rows))
    send(Hint(session_id=row.session_id, lane=row.lane, anywhere=row.anywhere) for row in rows)
    return len(rows)


class ToolHung(Exception):
    """A tool went on past its deadline."""

    code = "tool_hung"
    text = "A tool did not come back."


def fail_hung_tools(locks: SessionLocks, grace: float) -> None:
    """Fail the turns whose tool is `grace` seconds past its deadline, and free their sessions.

    The thread cannot be stopped; whatever it still writes, the fence refuses.
    """
    for handle in locks.held():
        deadline = handle.control.tool_deadline
        if deadline is not None and time.monotonic() > deadline + grace:
            handle.control.lose()
            _fail(handle)
            locks.release(handle)
            send([Hint(session_id=handle.session_id, lane=Lane.PEOPLE)])


def _fail(handle: Handle) -> None:
    try:
        turn = Turn.objects.get(pk=handle.turn_id or 0, claim=handle.claim, state=TurnState.RUNNING)
        commit(*broken(turn, Journal(turn), ToolHung("the tool ran past its deadline")))
        log.error("tool_hung", turn=turn.pk)
    except (Turn.DoesNotExist, Stale):
        log.info("hung_tool_had_ended", turn=handle.turn_id)
    handle.control.tool_deadline = None
