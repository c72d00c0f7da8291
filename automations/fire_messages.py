"""Fire scheduled messages: each that is due becomes a run and a turn, as a job's slot does (rules 4.4, 8.2).

Lock order: the message, then what is inserted. Who deletes sessions locks their messages first, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog
from django.db import DataError, transaction
from django.db.models.functions import Now

from automations import due_messages, rounds
from automations.batch import milliseconds
from automations.due_messages import DueMessage
from automations.models import RunRecord, RunState, ScheduledMessage
from automations.queue_slots import queue
from automations.rounds import Fired, Round, hints_of
from automations.run_words import NOT_SENT
from automations.slots import GapReason, run_id
from sessions_app import events
from sessions_app.models import SessionState, TurnKind
from sessions_app.models.session import ChatType

log = structlog.get_logger(__name__)

BATCH = 100  # messages of one transaction, one of each session


def fire_messages(limit: int = BATCH) -> Fired:
    """Claim due messages and queue their turns; what follows in the same sessions comes with the next call.

    NothingFires when none of them can be fired.
    """
    return rounds.fire(
        Round(
            name="messages",
            batch=lambda: _fire(limit, None),
            due=lambda: due_messages.peek(limit),
            one=lambda message_id: _fire(1, message_id),
            set_aside=set_aside,
            # what else waits in its session comes after it, so it must not wait for a message elsewhere; a
            # constraint says nothing of the kind: every row breaks one that a newer release has added
            own=(DataError,),
        )
    )


def set_aside(message_id: str, reason: str) -> None:
    """Take a message out of firing whose row breaks the batch's own statements.

    One that was taken, cancelled or deleted meanwhile is left to whoever did it.
    """
    with transaction.atomic():
        waiting = ScheduledMessage.objects.waiting().select_for_update(no_key=True, of=("self",))
        message = waiting.select_related("session").filter(pk=message_id).first()
        if message is not None:
            _skip(message, message.session.key, GapReason.SCHEDULE_ERROR, reason)


def _fire(limit: int, only: str | None) -> Fired:
    with transaction.atomic():
        rows = due_messages.claim(limit, only)
        if not rows:
            return Fired()
        good = _kept([row for row in rows if not _skipped(row)])
        ScheduledMessage.objects.take(good)
        queued = queue(list(good.values()))
        _without_a_turn(good, {turn.origin_run for turn in queued})
    for turn in queued:
        events.announce(turn.session_id)
    return Fired(claimed=len(rows), queued=len(queued), hints=hints_of(queued))


def _skipped(row: DueMessage) -> bool:
    reason = _why_not(row)
    if reason is not None:
        _skip(row, row.session_key, reason)
    return reason is not None


def _skip(
    message: DueMessage | ScheduledMessage, session_key: str, reason: GapReason, detail: str = ""
) -> None:
    """A message that is not sent is FAILED, and its run SKIPPED with the reason; `detail`: for operators."""
    run = RunRecord(
        run_id=run_id(message.id, message.send_at),
        scheduled_message_id=message.id,
        session_id=message.session_id,
        session_key=session_key,
        scheduled_for=message.send_at,
        state=RunState.SKIPPED,
        reason=reason,
        error_detail=detail[:2000],
        finished_at=Now(),
    )
    RunRecord.objects.bulk_create([run], ignore_conflicts=True)
    ScheduledMessage.objects.failed([message.id], NOT_SENT[reason])


def _why_not(row: DueMessage) -> GapReason | None:
    # a delete may still fail and open the session again: until then its turn waits
    if row.session_state == SessionState.ARCHIVED:
        return GapReason.SESSION_CLOSED
    return None if row.chat_type == ChatType.PRIVATE else GapReason.NOT_PRIVATE


def _kept(rows: Iterable[DueMessage]) -> dict[str, dict[str, Any]]:
    """Runs with their turns, by the id of their messages. Whatever a row makes go wrong stays with it."""
    found = {}
    for row in rows:
        try:
            found[row.id] = _run_of(row)
        except Exception as error:  # noqa: BLE001 - a row can be poisoned in any way
            log.warning("message_set_aside", message=row.id, error=str(error))
            _skip(row, row.session_key, GapReason.SCHEDULE_ERROR, f"{type(error).__name__}: {error}")
    return found


def _run_of(row: DueMessage) -> dict[str, Any]:
    """One run and its turn, as the insert wants them."""
    identity = run_id(row.id, row.send_at)
    return {
        "session_id": str(row.session_id),
        "session_key": row.session_key,
        "run_id": identity,
        "scheduled_message_id": row.id,
        "scheduled_for": row.send_at.isoformat(),
        "snapshot": {"message": row.message_text},
        "lag_ms": milliseconds(row.now - row.send_at),
        "kind": TurnKind.SCHEDULED_MESSAGE,
        "content": row.message_text,
        "metadata": {"scheduled_message_id": row.id, "timezone": row.timezone},
        "idempotency_key": f"run:{identity}:1",
    }


def _without_a_turn(good: dict[str, dict[str, Any]], queued: set[str]) -> None:
    """A run that was there already has its turn, or had it: there is nothing that would send the text now."""
    left = [message_id for message_id, run in good.items() if run["run_id"] not in queued]
    if left:
        log.error("messages_have_runs_already", messages=left)
        ScheduledMessage.objects.failed(left, "It was being sent already.")
