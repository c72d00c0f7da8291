"""ScheduledMessage: a fixed text that is sent to a private chat at a given time, without a model."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from automations.models.job import known, new_job_id, readable
from sessions_app.models import Message, Session, Turn
from sessions_app.models.session import ChatType

LONGEST_ERROR = 300  # characters


class MessageStatus(models.TextChoices):
    """The status of a scheduled message; MESSAGE_ARROWS lists every transition."""

    PENDING = "pending"
    SENT = "sent"
    CANCELLED = "cancelled"
    FAILED = "failed"


MESSAGE_ARROWS: dict[MessageStatus, tuple[MessageStatus, ...]] = {
    MessageStatus.PENDING: (MessageStatus.SENT, MessageStatus.CANCELLED, MessageStatus.FAILED),
    MessageStatus.SENT: (),
    MessageStatus.CANCELLED: (),
    # a failed delivery may be sent again
    MessageStatus.FAILED: (MessageStatus.SENT,),
}


class MessageTransitions(models.QuerySet["ScheduledMessage"]):
    """The transitions, each one conditional UPDATE; 0 or False: another process was faster."""

    def waiting(self) -> MessageTransitions:
        """Pending messages without a turn."""
        return self.filter(status=MessageStatus.PENDING, taken_at=None)

    def mark_taken(self, ids: Iterable[str]) -> int:
        """Waiting → taken: beat inserts the turn; from now on the message is cancelled by cancelling the turn."""
        return self.waiting().filter(pk__in=ids).update(taken_at=Now(), updated_at=Now())

    def cancel(self, *, tool_call_id: str = "", instead: ScheduledMessage | None = None) -> int:
        """Waiting → CANCELLED; `instead`: the message that replaces it."""
        return self.waiting().update(
            status=MessageStatus.CANCELLED,
            cancelled_by_tool_call_id=tool_call_id,
            replaced_by=instead,
            updated_at=Now(),
        )

    def record_canceller(self, *, tool_call_id: str = "", instead: ScheduledMessage | None = None) -> int:
        """CANCELLED → CANCELLED, with the tool call or the message that cancelled it."""
        rows = self.filter(status=MessageStatus.CANCELLED)
        return rows.update(cancelled_by_tool_call_id=tool_call_id, replaced_by=instead)

    def mark_cancelled(self, message_id: str) -> bool:
        """PENDING → CANCELLED: its turn was cancelled before the text was stored."""
        rows = self.filter(pk=message_id, status=MessageStatus.PENDING)
        return bool(rows.update(status=MessageStatus.CANCELLED, updated_at=Now()))

    def mark_in_history(self, message_id: str, said_id: int, *, leaves: bool) -> bool:
        """PENDING and taken → SENT when its text is in the history; `leaves`: PENDING until the delivery ends."""
        rows = self.filter(pk=message_id, status=MessageStatus.PENDING, taken_at__isnull=False)
        done = {} if leaves else {"status": MessageStatus.SENT, "sent_at": Now()}
        return bool(rows.update(sent_message=said_id, updated_at=Now(), **done))

    def mark_sent(self, said_id: int) -> bool:
        """PENDING or FAILED, with its text in the history → SENT: the channel accepted it."""
        open_ = [MessageStatus.PENDING, MessageStatus.FAILED]
        rows = self.filter(sent_message=said_id, status__in=open_)
        done = rows.update(status=MessageStatus.SENT, sent_at=Now(), last_error="", updated_at=Now())
        return bool(done)

    def mark_given_up(self, said_id: int, reason: str) -> bool:
        """PENDING, with its text in the history → FAILED: the channel did not accept it."""
        rows = self.filter(sent_message=said_id, status=MessageStatus.PENDING)
        return bool(_fail(rows, reason))

    def mark_failed(self, ids: Iterable[str], reason: str) -> int:
        """PENDING → FAILED, with the reason."""
        return _fail(self.filter(pk__in=ids, status=MessageStatus.PENDING), reason)


def _fail(rows: models.QuerySet[ScheduledMessage], reason: str) -> int:
    return rows.update(status=MessageStatus.FAILED, last_error=reason[:LONGEST_ERROR], updated_at=Now())


class ScheduledMessage(models.Model):
    """A text that is sent unchanged. `taken_at`: when beat inserted its turn; it can be cancelled until a claim.

    `sent_message` is its entry in the history. The messages that it replaced have it as `replaced_by`.
    """

    id = models.CharField(primary_key=True, max_length=32, default=new_job_id, editable=False)
    session = models.ForeignKey(
        Session, on_delete=models.CASCADE, related_name="scheduled_messages", db_index=False
    )
    chat_type = models.CharField(max_length=16, choices=ChatType, default=ChatType.PRIVATE)
    message_text = models.TextField()
    send_at = models.DateTimeField()
    status = models.CharField(max_length=16, choices=MessageStatus, default=MessageStatus.PENDING)
    replace_existing = models.BooleanField(default=False)
    replaced_by = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="replaced", db_index=False
    )
    # the turn may have been deleted: clearing this column would read the whole table for each deletion
    created_by_turn = models.ForeignKey(
        Turn,
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    created_by_tool_call_id = models.CharField(max_length=200, blank=True)
    cancelled_by_tool_call_id = models.CharField(max_length=200, blank=True)
    taken_at = models.DateTimeField(null=True, blank=True)
    # DO_NOTHING, so that a long history is deleted by one statement; deleting a session clears this first
    sent_message = models.OneToOneField(
        Message, null=True, blank=True, on_delete=models.DO_NOTHING, related_name="scheduled_message"
    )
    sent_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=LONGEST_ERROR, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now())

    objects = MessageTransitions.as_manager()

    class Meta:
        constraints = [
            known("scheduled_state_known", "status", MessageStatus),
            models.CheckConstraint(condition=Q(chat_type="private"), name="scheduled_private"),
            models.CheckConstraint(
                condition=Q(message_text__regex=r"[^[:space:]]"), name="scheduled_text_not_empty"
            ),
            models.CheckConstraint(
                condition=Q(status="sent", sent_at__isnull=False)
                | (~Q(status="sent") & Q(sent_at__isnull=True)),
                name="scheduled_sent_iff_sent_at",
            ),
            models.CheckConstraint(
                condition=~Q(status="sent") | Q(sent_message__isnull=False),
                name="scheduled_sent_is_in_history",
            ),
            models.CheckConstraint(
                condition=Q(sent_message__isnull=True) | (Q(taken_at__isnull=False) & ~Q(status="cancelled")),
                name="scheduled_said_once_taken",
            ),
            models.CheckConstraint(
                condition=Q(status="failed") & ~Q(last_error="") | (~Q(status="failed") & Q(last_error="")),
                name="scheduled_failed_iff_error",
            ),
            models.CheckConstraint(
                condition=Q(status="cancelled") | Q(replaced_by__isnull=True, cancelled_by_tool_call_id=""),
                name="scheduled_replaced_is_cancelled",
            ),
            models.CheckConstraint(
                condition=Q(replaced_by__isnull=True) | ~Q(replaced_by=models.F("id")),
                name="scheduled_replaced_by_another",
            ),
            models.UniqueConstraint(
                fields=["created_by_turn", "created_by_tool_call_id"],
                condition=Q(created_by_turn__isnull=False) & ~Q(created_by_tool_call_id=""),
                name="scheduled_once_per_tool_call",
            ),
            readable(
                "scheduled_times_readable", "send_at", "taken_at", "sent_at", "created_at", "updated_at"
            ),
        ]
        indexes = [
            models.Index(fields=["created_at", "id"], name="scheduled_by_age"),
            models.Index(
                fields=["send_at", "id"],
                condition=Q(status="pending", taken_at__isnull=True),
                name="scheduled_due",
            ),
            # the first waiting message of a session, and the number of waiting ones
            models.Index(
                fields=["session", "send_at", "id"],
                condition=Q(status="pending", taken_at__isnull=True),
                name="scheduled_head",
            ),
            models.Index(fields=["session", "created_at", "id"], name="scheduled_of_session"),
            models.Index(
                fields=["replaced_by"], condition=Q(replaced_by__isnull=False), name="scheduled_replaced"
            ),
        ]

    def __str__(self) -> str:
        return self.pk
