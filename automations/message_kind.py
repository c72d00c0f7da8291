"""A scheduled message at its instant: a turn that says the stored text, and asks no model (rule 8.2).

Whether it may be sent is looked at once more at the moment of sending, in the commit of its turn. Where the person
writes on the web, the commit is the sending; else the delivery decides.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agent_core.types import Ending, TurnResult
from automations.bound import route_of
from automations.models import MessageStatus, ScheduledMessage
from automations.run_words import NOT_SENT
from automations.slot_kind import SlotKind
from automations.slots import GapReason
from automations.zone_files import zone_or_utc
from sessions_app import deliver
from sessions_app.channels.base import WEB
from sessions_app.kinds import Trigger, Unkept
from sessions_app.models import Delivery, DeliveryState, Message, SessionState, Turn, TurnKind
from sessions_app.models.session import ChatType

LATE_AFTER = timedelta(seconds=60)
SOURCE_KIND = "scheduled_send"
STOPPED = "Its turn failed."


class ScheduledMessageKind(SlotKind):
    """The sending of a scheduled message. Nothing is shown of what triggered it: the text is all there is.

    Of a failure the history tells; it does not leave the server, least of all to a group.
    """

    name = TurnKind.SCHEDULED_MESSAGE
    alone = True
    plans = False
    hands_over = False

    def trigger(self, turn: Turn) -> Trigger:
        """No words of anybody; the text goes where a person last wrote."""
        return Trigger(
            content="",
            model_content=turn.content,
            metadata=_marks(turn),
            source={"kind": "scheduled_message", "id": _id_of(turn), "run_id": turn.origin_run},
            route=route_of(turn.session_id),
        )

    def said(self, turn: Turn) -> str | None:
        """The text, as it was written."""
        return turn.content

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """The run's outcome and the message's. Unkept when it may not be sent."""
        super().closed(turn, result, closure)
        if result.ending is Ending.SUCCEEDED:
            _send(turn)
        elif result.ending is Ending.CANCELLED:
            ScheduledMessage.objects.stopped(_id_of(turn))
        else:
            ScheduledMessage.objects.failed([_id_of(turn)], result.error_text or STOPPED)


def delivered(delivery: Delivery) -> None:
    """What became of the delivery becomes of the message; the transaction of the delivery's change."""
    if delivery.message_id is None:
        return
    if delivery.state == DeliveryState.SENT:
        ScheduledMessage.objects.sent(delivery.message_id)
    else:  # FAILED, with its error: of nothing else is told
        ScheduledMessage.objects.given_up(delivery.message_id, delivery.last_error)


def _send(turn: Turn) -> None:
    """Whether the person wrote meanwhile does not matter; that it waits still, and for one person, does."""
    rows = ScheduledMessage.objects.select_for_update(no_key=True, of=("self",)).select_related("session")
    message = rows.filter(pk=_id_of(turn)).first()
    if message is None or message.status != MessageStatus.PENDING:
        raise Unkept("message_not_pending", "The scheduled message does not wait any more.")
    # a delete may still fail and open the session again, as it is when a message is due
    if message.session.state == SessionState.ARCHIVED:
        raise Unkept("session_closed", NOT_SENT[GapReason.SESSION_CLOSED])
    if message.session.chat_type != ChatType.PRIVATE:
        raise Unkept("not_private", "The conversation is no private chat any more.")
    said = Message.objects.filter(turn=turn, role="assistant").order_by("-seq")[0]
    route = said.metadata["route"]
    deliver.hand_over(message.session, said, [route])
    ScheduledMessage.objects.said(message.pk, said.pk, leaves=route["channel"] != WEB)


def _id_of(turn: Turn) -> str:
    return str(turn.metadata["scheduled_message_id"])


def _marks(turn: Turn) -> dict[str, Any]:
    zone = zone_or_utc(turn.metadata["timezone"])
    marks: dict[str, Any] = {
        "source_kind": SOURCE_KIND,
        "scheduled_message_id": _id_of(turn),
        "scheduled_for": turn.due_at.astimezone(zone).isoformat(timespec="seconds"),
    }
    # of this attempt: the first one may have begun in time, and died
    late = (turn.claimed_at or turn.due_at) - turn.due_at
    if late > LATE_AFTER:
        marks |= {"late": True, "late_seconds": round(late.total_seconds())}
    return marks
