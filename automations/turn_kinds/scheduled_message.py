"""The turn that sends a scheduled message: its answer is the stored text, without a model (rule 8.2).

The commit of the turn checks again whether the message may be sent. On the web the message is sent by the commit; on
another channel the delivery decides.
"""

from __future__ import annotations

from typing import Any

from agent_core.types import Ending, TurnResult
from automations.models import MessageStatus, ScheduledMessage
from automations.runs.describe import NOT_SENT
from automations.runs.skips import LATE_AFTER, GapReason
from automations.schedules.zone_files import zone_or_utc
from automations.turn_kinds.slot import SlotKind
from sessions_app.deliveries import outbox
from sessions_app.models import Delivery, DeliveryState, Message, Session, SessionState, Turn, TurnKind
from sessions_app.models.session import WEB, ChatType
from sessions_app.queue.kinds import CommitRefused, Trigger

SOURCE_KIND = "scheduled_send"
STOPPED = "Its turn failed."


class ScheduledMessageKind(SlotKind):
    """The turn of a scheduled message. The history has the text only, without a trigger.

    A failure is shown in the history; nothing is delivered then, least of all to a group.
    """

    name = TurnKind.SCHEDULED_MESSAGE
    asks_model = False
    trigger_only = True
    may_plan = False
    delivers_answer = False

    def trigger(self, turn: Turn, session: Session) -> Trigger:
        """Return a trigger that adds no input to the history: the stored text becomes the answer."""
        return Trigger(
            content="",
            model_content=turn.content,
            metadata=_marks(turn),
            source={
                "kind": "scheduled_message",
                "id": turn.input.scheduled_message_id,
                "run_id": turn.origin_run,
            },
            route=session.standing_route,
        )

    def answer_without_model(self, turn: Turn) -> str | None:
        """The stored text."""
        return turn.content

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """Store the outcome of the run and of the message. CommitRefused when it may not be sent."""
        super().closed(turn, result, closure)
        if result.ending is Ending.SUCCEEDED:
            _send(turn)
        elif result.ending is Ending.CANCELLED:
            ScheduledMessage.objects.mark_cancelled(turn.input.scheduled_message_id)
        else:
            ScheduledMessage.objects.mark_failed(
                [turn.input.scheduled_message_id], result.error_text or STOPPED
            )


def apply_delivery_result(delivery: Delivery) -> None:
    """Copy a delivery's result to its message, in the transaction that changes the delivery."""
    if delivery.message_id is None:
        return
    if delivery.state == DeliveryState.SENT:
        ScheduledMessage.objects.mark_sent(delivery.message_id)
    else:  # FAILED: the only other settled state
        ScheduledMessage.objects.mark_given_up(delivery.message_id, delivery.last_error)


def _send(turn: Turn) -> None:
    """Send the message if it is still pending and its chat still private; newer messages do not matter."""
    rows = ScheduledMessage.objects.select_for_update(no_key=True, of=("self",)).select_related("session")
    message = rows.filter(pk=turn.input.scheduled_message_id).first()
    if message is None or message.status != MessageStatus.PENDING:
        raise CommitRefused("message_not_pending", "The scheduled message is not pending any more.")
    # not while deleting: a delete may fail and open the session again
    if message.session.state == SessionState.ARCHIVED:
        raise CommitRefused("session_closed", NOT_SENT[GapReason.SESSION_CLOSED])
    if message.session.chat_type != ChatType.PRIVATE:
        raise CommitRefused("not_private", "The conversation is not a private chat any more.")
    said = Message.objects.filter(turn=turn, role="assistant").order_by("-seq")[0]
    route = said.metadata["route"]
    outbox.enqueue_deliveries(message.session, said, [route])
    ScheduledMessage.objects.mark_in_history(message.pk, said.pk, leaves=route["channel"] != WEB)


def _marks(turn: Turn) -> dict[str, Any]:
    zone = zone_or_utc(turn.input.timezone)
    marks: dict[str, Any] = {
        "source_kind": SOURCE_KIND,
        "scheduled_message_id": turn.input.scheduled_message_id,
        "scheduled_for": turn.due_at.astimezone(zone).isoformat(timespec="seconds"),
    }
    # by the start of this attempt: an earlier one may have started in time and failed
    late = (turn.claimed_at or turn.due_at) - turn.due_at
    if late > LATE_AFTER:
        marks |= {"late": True, "late_seconds": round(late.total_seconds())}
    return marks
