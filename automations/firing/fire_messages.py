"""Fire scheduled messages: each due message becomes a run and a turn, as a job's slot does (rules 4.4, 8.2).

A message waits until the earlier ones of its session have their turns, so two beats cannot change the order.
Lock order: the message, then the inserted rows. A delete of sessions also locks their messages first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from django.db import DataError
from django.db.models import OuterRef, Subquery

from automations.firing.fire_jobs import NOW
from automations.firing.insert_runs import insert_runs, lag_ms
from automations.firing.one_by_one import Fired, fire_batch
from automations.models import RunRecord, ScheduledMessage
from automations.runs.describe import NOT_SENT
from automations.runs.skips import GapReason, run_id
from sessions_app.models import Session, SessionState, TurnInput, TurnKind
from sessions_app.models.session import ChatType

log = structlog.get_logger(__name__)

BATCH = 100  # messages of one transaction, one of each session


def fire_due_messages(limit: int = BATCH) -> Fired:
    """Queue the turns of up to `limit` due scheduled messages, at most one of each session.

    NothingFires if some due messages could be neither queued nor set aside.
    """
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
    waiting = ScheduledMessage.objects.waiting().order_by("send_at", "pk")
    # a subquery for each due row: a join may be planned as a scan of all waiting messages
    first = Subquery(waiting.filter(session=OuterRef("session")).values("pk")[:1])
    due = waiting.filter(send_at__lte=NOW, pk=first).select_for_update(skip_locked=True)
    rows = ScheduledMessage.objects.filter(pk__in=list(due.values_list("pk", flat=True)[:limit]))
    return list(rows.select_related("session__agent").annotate(now=NOW).order_by("send_at", "pk"))


def _fire(messages: Sequence[Any]) -> list[Any]:
    """Insert the runs and turns of locked messages. Returns what `announce_turns` takes."""
    runs = {}
    for message in messages:
        reason = _skip_reason(message.session)
        if reason is None:
            runs[message.pk] = _run_and_turn(message)
        else:
            _fail(message, reason)
    ScheduledMessage.objects.mark_taken(runs)
    queued = insert_runs(list(runs.values()))
    _fail_without_turn(runs, {turn.origin_run for turn in queued})
    return queued


def _skip_reason(session: Session) -> GapReason | None:
    # In a session that is being deleted the turn waits: a delete may fail and open the session again.
    if session.state == SessionState.ARCHIVED:
        return GapReason.SESSION_CLOSED
    return None if session.chat_type == ChatType.PRIVATE else GapReason.NOT_PRIVATE


def _run_and_turn(message: Any) -> dict[str, Any]:
    """One run and its turn, as a row for `insert_runs`."""
    return {
        "session_id": str(message.session_id),
        "run_id": run_id(message.pk, message.send_at),
        "scheduled_message_id": message.pk,
        "owner_id": message.session.owner_id,
        "scheduled_for": message.send_at,
        "snapshot": {"message": message.message_text},
        "lag_ms": lag_ms(message.now - message.send_at),
        "kind": TurnKind.SCHEDULED_MESSAGE,
        "content": message.message_text,
        "metadata": TurnInput(
            scheduled_message_id=message.pk, timezone=message.session.agent.timezone
        ).to_json(),
    }


def _fail_without_turn(runs: dict[str, dict[str, Any]], queued: set[str]) -> None:
    """Fail messages whose run existed before: that run's turn has sent the text or never will."""
    left = [message_id for message_id, run in runs.items() if run["run_id"] not in queued]
    if left:
        log.error("messages_have_runs_already", messages=left)
        ScheduledMessage.objects.mark_failed(left, "A run for this message already exists.")


def _fail(message: ScheduledMessage, reason: GapReason, detail: str = "") -> None:
    """Mark the message FAILED and add a SKIPPED run with the reason; `detail` is for operators."""
    RunRecord.objects.add_skipped(
        run_id=run_id(message.pk, message.send_at),
        scheduled_message_id=message.pk,
        session_id=message.session_id,
        session_key=message.session.key,
        scheduled_for=message.send_at,
        reason=reason,
        error_detail=detail[:2000],
    )
    ScheduledMessage.objects.mark_failed([message.pk], NOT_SENT[reason])
