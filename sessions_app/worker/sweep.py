"""The sweep that sends lost hints again, and the watchdog for tools that hang."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from agent_core.exceptions import Stale
from sessions_app.agents.budgets import settle_abandoned
from sessions_app.exceptions import OwnerInactive
from sessions_app.hints import Hint, send
from sessions_app.journal import Journal
from sessions_app.limits import running_turns
from sessions_app.models import (
    ClosedBecause,
    ConsentQuestion,
    Lane,
    Session,
    SessionState,
    Turn,
    TurnState,
    Worker,
)
from sessions_app.postgres import statements
from sessions_app.postgres.notify import CONTROL, publisher
from sessions_app.postgres.rows import fetch
from sessions_app.postgres.statements import Statement, seconds_parameter, table
from sessions_app.questions import unattended
from sessions_app.queue.kinds import kinds_without_model
from sessions_app.turns.claim import ASKER, limits_of_silence, worker_is_gone
from sessions_app.turns.commit import commit
from sessions_app.turns.context import prepare_failure
from sessions_app.turns.lock import Handle, SessionLocks

log = structlog.get_logger(__name__)

# sweeps; a new row is not hinted at within its first sweep, since its own hint is on its way
HINT_AGAIN_AFTER = 2
ASK_EVERYONE_AFTER = 6  # sweeps; then workers of all shards are asked
MOST_HINTS = 1_000  # sent by one sweep
FORGET_WORKER_AFTER = timedelta(hours=1)
SWEEP_LOCK = 0x526F6E646F  # one sweep at a time in the whole fleet

_turn, _session = table(Turn), table(Session)
_SWEEP = seconds_parameter("sweep")
_QUEUED: Any = sa.literal_column("'queued'")
_COLUMNS = ("session_id", "lane", "id", "hinted_at", "queued_at")


def _waiting_sessions() -> Statement:
    """Find sessions with queued turns, no running turn and no recent hint, and store that they are hinted at now.

    Agents take turns. An agent gets no more hints than its owner has room for.
    """
    # each session's first waiting row of each lane
    heads = statements.heads(
        _turn, _COLUMNS, ("session_id", "lane"), ("due_at", "id"), lambda rows: rows.c.state == _QUEUED
    )
    is_busy = sa.exists().where(_turn.c.session_id == heads.c.session_id, _turn.c.state == TurnState.RUNNING)
    silent = sa.or_(
        heads.c.hinted_at < sa.func.now() - HINT_AGAIN_AFTER * _SWEEP,
        sa.and_(heads.c.hinted_at.is_(None), heads.c.queued_at < sa.func.now() - _SWEEP),
    )
    people_first = (heads.c.lane != sa.literal_column(f"'{Lane.PEOPLE}'"), heads.c.queued_at, heads.c.id)
    rank = sa.func.row_number().over(partition_by=_session.c.agent_id, order_by=people_first)
    waiting = (
        sa.select(heads.c.id, heads.c.lane, _session.c.owner_id, rank.label("rank"))
        .join(_session, _session.c.id == heads.c.session_id)
        .where(
            ~is_busy,
            silent,
            _session.c.state != SessionState.DELETING,
            running_turns.is_active(_session.c.owner_id),
        )
        .subquery()
    )
    running = running_turns.count_running(waiting.c.owner_id) + waiting.c.rank - 1
    chosen = (
        sa.select(waiting.c.id)
        # the first condition follows from the second, and spares most rows the count
        .where(
            waiting.c.rank <= running_turns.MOST_OF_PEOPLE, running_turns.has_room(running, waiting.c.lane)
        )
        .order_by(waiting.c.rank, waiting.c.id)
        .limit(MOST_HINTS)
    )
    return _stamp(sa.and_(_turn.c.id.in_(chosen), _turn.c.state == TurnState.QUEUED))


def _abandoned() -> Statement:
    """RUNNING turns that nobody runs: handed back, of a lost worker, or of this worker but not held by it."""
    own = sa.and_(
        _turn.c.worker == ASKER,
        _turn.c.session_id != sa.all_(sa.bindparam("held", type_=sa.ARRAY(sa.Uuid()))),
        _turn.c.claimed_at < sa.func.now() - _SWEEP,
    )
    nobody = sa.or_(_turn.c.claim.is_(None), own, worker_is_gone(_turn.c.worker))
    silent = sa.func.coalesce(_turn.c.hinted_at, _turn.c.claimed_at) < sa.func.now() - _SWEEP
    return _stamp(sa.and_(_turn.c.state == TurnState.RUNNING, nobody, silent))


def _of_inactive_owners() -> Statement:
    """Cancel the running turns of inactive owners.

    Turns that ask no model are left out: they end at once. What they send waits for the owner.
    """
    without_model = sa.bindparam("without_model", type_=sa.ARRAY(sa.Text()))
    rows = sa.update(_turn).where(
        _turn.c.state == sa.literal_column("'running'"),
        _turn.c.cancel_requested_at.is_(None),
        _turn.c.kind != sa.all_(without_model),
        ~running_turns.is_active(_turn.c.owner_id),
    )
    return Statement(
        rows.values(cancel_requested_at=sa.func.now(), cancel_reason=OwnerInactive.code).returning(
            _turn.c.id, _turn.c.session_id, _turn.c.lane
        )
    )


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


WAITING, ABANDONED, CANCEL_INACTIVE = _waiting_sessions(), _abandoned(), _of_inactive_owners()


def sweep_turns(worker_id: uuid.UUID, held: Callable[[], list[Handle]]) -> int:
    """Send hints for sessions that wait, cancel running turns of inactive owners, and settle the reservations of dead
    workers. Returns the number of hints.

    Every worker checks the turns it has claimed; the rest is done by one worker at a time.
    """
    rows = ABANDONED.all(
        worker=worker_id,
        held=[handle.session_id for handle in held()],
        sweep=settings.RONDO_SWEEP_SECONDS,
        **limits_of_silence(),
    )
    stopped = []
    with transaction.atomic():
        [(is_alone,)] = fetch("SELECT pg_try_advisory_xact_lock(%s)", [SWEEP_LOCK])
        if is_alone:
            stopped = CANCEL_INACTIVE.all(without_model=kinds_without_model())
            # the commit of a host misses a guest that joins it at the same instant
            guests = Turn.objects.filter(state=TurnState.QUEUED, host__isnull=False)
            guests.exclude(host__state=TurnState.RUNNING).update(host=None)
            rows += WAITING.all(sweep=settings.RONDO_SWEEP_SECONDS, **running_turns.bounds())
            unattended.close(ConsentQuestion.objects.expired(), ClosedBecause.EXPIRED)
            gone = Worker.objects.filter(heartbeat_at__lt=Now() - FORGET_WORKER_AFTER)
            gone.exclude(pk=worker_id).delete()
    if is_alone:
        settle_abandoned()
    if rows or stopped:
        log.info("swept", sessions=len(rows), stopped=len(stopped))
    for row in stopped:  # its worker listens; without one, the hint brings a worker that cancels it
        publisher().notify(CONTROL, {"cancel": row.id})
    hints = [Hint(session_id=row.session_id, lane=row.lane, anywhere=row.anywhere) for row in rows]
    send([*hints, *(Hint(session_id=row.session_id, lane=row.lane) for row in stopped)])
    return len(rows)


class ToolHung(Exception):
    """A tool ran past its deadline."""

    code = "tool_hung"
    text = "A tool did not return in time."


def fail_hung_tools(locks: SessionLocks, grace: float) -> None:
    """Fail the turns whose tool is `grace` seconds past its deadline, and release their sessions.

    The tool's thread cannot be stopped, but the fence rejects whatever it still writes.
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
        commit(*prepare_failure(turn, Journal(turn), ToolHung("the tool ran past its deadline")))
        log.error("tool_hung", turn=turn.pk)
    except (Turn.DoesNotExist, Stale):
        log.info("hung_tool_had_ended", turn=handle.turn_id)
    handle.control.tool_deadline = None
