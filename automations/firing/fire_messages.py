"""Fire scheduled messages: each due message becomes a run and a turn, as a job's slot does (rules 4.4, 8.2).

A message waits until the earlier ones of its session have their turns, so two beats cannot change the order.
Lock order: the message, then the inserted rows. A delete of sessions locks their messages first, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
import structlog
from django.db import DataError

from automations.firing.insert_runs import insert_runs, lag_ms
from automations.firing.one_by_one import Fired, fire_batch
from automations.models import MessageStatus, RunRecord, ScheduledMessage
from automations.runs.describe import NOT_SENT
from automations.runs.skips import GapReason, run_id
from sessions_app.models import Agent, Session, SessionState, TurnInput, TurnKind
from sessions_app.models.session import ChatType
from sessions_app.postgres.statements import Statement, table

log = structlog.get_logger(__name__)

BATCH = 100  # messages of one transaction, one of each session

_message, _session, _agent = table(ScheduledMessage), table(Session), table(Agent)
_first = _message.alias("first")


def _waits(message: Any) -> Any:
    """The condition of the partial indexes, in the same words."""
    pending = message.c.status == sa.literal_column(f"'{MessageStatus.PENDING}'")
    return sa.and_(pending, message.c.taken_at.is_(None))


# The session's first message by a subquery for each due row: an anti-join may be planned as a scan of all waiting
# messages.
_HEAD = (
    sa.select(_first.c.id)
    .where(_first.c.session_id == _message.c.session_id, _waits(_first))
    .order_by(_first.c.send_at, _first.c.id)
    .limit(1)
    .correlate(_message)
    .scalar_subquery()
)
CLAIM = Statement(
    sa.select(_message.c.id)
    .where(
        _waits(_message),
        _message.c.send_at <= sa.select(sa.func.now()).scalar_subquery(),  # as in fire_jobs.py
        _message.c.id == _HEAD,
    )
    .order_by(_message.c.send_at, _message.c.id)
    .limit(sa.bindparam("limit", type_=sa.Integer()))
    .with_for_update(skip_locked=True)
)
READ = Statement(
    sa.select(
        *(_message.c[name] for name in ("id", "message_text", "send_at", "session_id")),
        _session.c.key.label("session_key"),
        _session.c.state.label("session_state"),
        _session.c.chat_type,
        _session.c.owner_id,
        _agent.c.timezone,
        sa.func.now().label("now"),
    )
    .select_from(
        _message.join(_session, _session.c.id == _message.c.session_id).join(
            _agent, _agent.c.id == _session.c.agent_id
        )
    )
    .where(_message.c.id == sa.any_(sa.bindparam("ids", type_=sa.ARRAY(sa.Text()))))
    .order_by(_message.c.send_at, _message.c.id)
)


def fire_due_messages(limit: int = BATCH) -> Fired:
    """Fire up to `limit` due messages, at most one of each session. NothingFires when none of them can be fired."""
    return fire_batch(
        "messages",
        lambda: _claim(limit),
        fire=_fire,
        set_aside=lambda row, reason: _fail(row, GapReason.SCHEDULE_ERROR, reason),
        # A row with bad data fails alone: later messages of its session must not wait for messages elsewhere.
        # IntegrityError is not listed: a constraint of a newer release fails for every row.
        row_errors=(DataError,),
    )


def _claim(limit: int) -> list[Any]:
    """Lock due messages, and read them with their sessions.

    Two statements, so that the second one sees every change of a session that was committed before the lock.
    """
    ids = [row.id for row in CLAIM.all(limit=limit)]
    return READ.all(ids=ids) if ids else []


def _fire(rows: Sequence[Any]) -> list[Any]:
    """Insert the runs and turns of locked messages. Returns what `announce_turns` takes."""
    runs = {}
    for row in rows:
        reason = _skip_reason(row)
        if reason is None:
            runs[row.id] = _run_and_turn(row)
        else:
            _fail(row, reason)
    ScheduledMessage.objects.mark_taken(runs)
    queued = insert_runs(list(runs.values()))
    _fail_without_turn(runs, {turn.origin_run for turn in queued})
    return queued


def _skip_reason(row: Any) -> GapReason | None:
    # In a session that is being deleted the turn waits: a delete may fail and open the session again.
    if row.session_state == SessionState.ARCHIVED:
        return GapReason.SESSION_CLOSED
    return None if row.chat_type == ChatType.PRIVATE else GapReason.NOT_PRIVATE


def _run_and_turn(row: Any) -> dict[str, Any]:
    """One run and its turn, as a row for `insert_runs`."""
    identity = run_id(row.id, row.send_at)
    return {
        "session_id": str(row.session_id),
        "run_id": identity,
        "scheduled_message_id": row.id,
        "owner_id": row.owner_id,
        "scheduled_for": row.send_at,
        "snapshot": {"message": row.message_text},
        "lag_ms": lag_ms(row.now - row.send_at),
        "kind": TurnKind.SCHEDULED_MESSAGE,
        "content": row.message_text,
        "metadata": TurnInput(scheduled_message_id=row.id, timezone=row.timezone).to_json(),
    }


def _fail_without_turn(runs: dict[str, dict[str, Any]], queued: set[str]) -> None:
    """Fail messages whose run existed before: that run's turn has sent the text or never will."""
    left = [message_id for message_id, run in runs.items() if run["run_id"] not in queued]
    if left:
        log.error("messages_have_runs_already", messages=left)
        ScheduledMessage.objects.mark_failed(left, "A run for this message already exists.")


def _fail(message: Any, reason: GapReason, detail: str = "") -> None:
    """Mark the message FAILED and add a SKIPPED run with the reason; `detail` is for operators."""
    RunRecord.objects.add_skipped(
        run_id=run_id(message.id, message.send_at),
        scheduled_message_id=message.id,
        session_id=message.session_id,
        session_key=message.session_key,
        scheduled_for=message.send_at,
        reason=reason,
        error_detail=detail[:2000],
    )
    ScheduledMessage.objects.mark_failed([message.id], NOT_SENT[reason])
