"""Fire scheduled messages: each due message becomes a run and a turn, as a job's slot does (rules 4.4, 8.2).

Lock order: the message, then the inserted rows. A delete of sessions locks their messages first, too.
"""

from __future__ import annotations

from typing import Any

import structlog
from django.db import DataError, transaction

from automations.firing.due_messages import DueMessage, claim_due_messages, due_message_ids
from automations.firing.insert_runs import announce_turns, insert_runs, lag_ms
from automations.firing.one_by_one import Fired, fire_batch
from automations.models import RunRecord, ScheduledMessage
from automations.runs.describe import NOT_SENT
from automations.runs.skips import GapReason, run_id
from sessions_app.models import SessionState, TurnKind
from sessions_app.models.session import ChatType

log = structlog.get_logger(__name__)

BATCH = 100  # messages of one transaction, one of each session


def fire_due_messages(limit: int = BATCH) -> Fired:
    """Fire up to `limit` due messages, at most one of each session. NothingFires when none of them can be fired."""
    return fire_batch(
        "messages",
        limit,
        fire=_fire,
        due_ids=due_message_ids,
        set_aside=set_aside_message,
        # A row with bad data fails alone: later messages of its session must not wait for messages elsewhere.
        # IntegrityError is not listed: a constraint of a newer release fails for every row.
        row_errors=(DataError,),
    )


def _fire(limit: int, only: str | None = None) -> Fired:
    """Claim due messages, insert runs and turns; after the commit, announce the turns. A bad row fails alone."""
    with transaction.atomic():
        rows = claim_due_messages(limit, only)
        runs = {}
        for row in rows:
            reason = _skip_reason(row)
            if reason is not None:
                _fail(row, row.session_key, reason)
                continue
            try:
                runs[row.id] = _run_and_turn(row)
            except Exception as error:  # bad data can raise anything
                log.exception("message_set_aside", message=row.id)
                _fail(row, row.session_key, GapReason.SCHEDULE_ERROR, f"{type(error).__name__}: {error}")
        ScheduledMessage.objects.mark_taken(runs)
        queued = insert_runs(list(runs.values()))
        _fail_without_turn(runs, {turn.origin_run for turn in queued})
    return Fired(claimed=len(rows), queued=len(queued), hints=announce_turns(queued))


def _skip_reason(row: DueMessage) -> GapReason | None:
    # In a session that is being deleted the turn waits: a delete may fail and open the session again.
    if row.session_state == SessionState.ARCHIVED:
        return GapReason.SESSION_CLOSED
    return None if row.chat_type == ChatType.PRIVATE else GapReason.NOT_PRIVATE


def _run_and_turn(row: DueMessage) -> dict[str, Any]:
    """One run and its turn, as a row for `insert_runs`."""
    identity = run_id(row.id, row.send_at)
    return {
        "session_id": str(row.session_id),
        "run_id": identity,
        "scheduled_message_id": row.id,
        "scheduled_for": row.send_at.isoformat(),
        "snapshot": {"message": row.message_text},
        "lag_ms": lag_ms(row.now - row.send_at),
        "kind": TurnKind.SCHEDULED_MESSAGE,
        "content": row.message_text,
        "metadata": {"scheduled_message_id": row.id, "timezone": row.timezone},
    }


def _fail_without_turn(runs: dict[str, dict[str, Any]], queued: set[str]) -> None:
    """Fail messages whose run existed before: that run's turn has sent the text or never will."""
    left = [message_id for message_id, run in runs.items() if run["run_id"] not in queued]
    if left:
        log.error("messages_have_runs_already", messages=left)
        ScheduledMessage.objects.mark_failed(left, "A run for this message already exists.")


def set_aside_message(message_id: str, reason: str) -> None:
    """Fail a message whose row makes the batch's statements fail, unless it was taken, cancelled or deleted since."""
    with transaction.atomic():
        waiting = ScheduledMessage.objects.waiting().select_for_update(no_key=True, of=("self",))
        message = waiting.select_related("session").filter(pk=message_id).first()
        if message is not None:
            _fail(message, message.session.key, GapReason.SCHEDULE_ERROR, reason)


def _fail(
    message: DueMessage | ScheduledMessage, session_key: str, reason: GapReason, detail: str = ""
) -> None:
    """Mark the message FAILED and add a SKIPPED run with the reason; `detail` is for operators."""
    RunRecord.objects.add_skipped(
        run_id=run_id(message.id, message.send_at),
        scheduled_message_id=message.id,
        session_id=message.session_id,
        session_key=session_key,
        scheduled_for=message.send_at,
        reason=reason,
        error_detail=detail[:2000],
    )
    ScheduledMessage.objects.mark_failed([message.id], NOT_SENT[reason])
