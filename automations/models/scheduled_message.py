"""ScheduledMessage: a fixed text for a private chat at an instant; no model is asked when it is sent."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from automations.models.job import new_job_id
from automations.models.times import readable
from sessions_app.models import Message, Session, Turn
from sessions_app.models.session import ChatType

LONGEST_ERROR = 300  # characters


class MessageStatus(models.TextChoices):
    """Where a scheduled message stands; MESSAGE_ARROWS lists every way on."""

    PENDING = "pending"
    SENT = "sent"
    CANCELLED = "cancelled"
    FAILED = "failed"


MESSAGE_ARROWS: dict[MessageStatus, tuple[MessageStatus, ...]] = {
    MessageStatus.PENDING: (MessageStatus.SENT, MessageStatus.CANCELLED, MessageStatus.FAILED),
    MessageStatus.SENT: (),
    MessageStatus.CANCELLED: (),
    # a delivery that was given up may be tried again, and come through
    MessageStatus.FAILED: (MessageStatus.SENT,),
}


class MessageTransitions(models.QuerySet["ScheduledMessage"]):
    """The ways on from a status, each one conditional UPDATE; 0 or False: somebody else was faster."""

    def waiting(self) -> MessageTransitions:
        """Pending, and beat has not made its turn: it can still be cancelled."""
        return self.filter(status=MessageStatus.PENDING, taken_at=None)

    def take(self, ids: Iterable[str]) -> int:
        """Waiting → taken: its turn is made, it cannot be cancelled any more."""
        return self.waiting().filter(pk__in=ids).update(taken_at=Now(), updated_at=Now())

    def cancel(self, *, tool_call_id: str = "", instead: ScheduledMessage | None = None) -> int:
        """Waiting → CANCELLED; `instead`: the message that replaces it."""
        return self.waiting().update(
            status=MessageStatus.CANCELLED,
            cancelled_by_tool_call_id=tool_call_id,
            replaced_by=instead,
            updated_at=Now(),
        )

    def stopped(self, message_id: str) -> bool:
        """PENDING → CANCELLED: its turn was cancelled before it said anything."""
        rows = self.filter(pk=message_id, status=MessageStatus.PENDING)
        return bool(rows.update(status=MessageStatus.CANCELLED, updated_at=Now()))

    def said(self, message_id: str, said_id: int, *, leaves: bool) -> bool:
        """PENDING and taken, its text stands in the history → SENT, or PENDING still while it leaves the server."""
        rows = self.filter(pk=message_id, status=MessageStatus.PENDING, taken_at__isnull=False)
        done = {} if leaves else {"status": MessageStatus.SENT, "sent_at": Now()}
        return bool(rows.update(sent_message=said_id, updated_at=Now(), **done))

    def sent(self, said_id: int) -> bool:
        """PENDING or FAILED, with its text in the history → SENT: the channel took it."""
        open_ = [MessageStatus.PENDING, MessageStatus.FAILED]
        rows = self.filter(sent_message=said_id, status__in=open_)
        done = rows.update(status=MessageStatus.SENT, sent_at=Now(), last_error="", updated_at=Now())
        return bool(done)

    def given_up(self, said_id: int, reason: str) -> bool:
        """PENDING, with its text in the history → FAILED: the channel did not take it."""
        rows = self.filter(sent_message=said_id, status=MessageStatus.PENDING)
        return bool(_fail(rows, reason))

    def failed(self, ids: Iterable[str], reason: str) -> int:
        """PENDING → FAILED, with the reason."""
        return _fail(self.filter(pk__in=ids, status=MessageStatus.PENDING), reason)


def _fail(rows: models.QuerySet[ScheduledMessage], reason: str) -> int:
    return rows.update(status=MessageStatus.FAILED, last_error=reason[:LONGEST_ERROR], updated_at=Now())


class ScheduledMessage(models.Model):
    """A text that is sent as it stands. `taken_at`: when beat made its turn; from then on nobody cancels it.

    `sent_message` is its entry in the history. The messages that it replaced name it as `replaced_by`.
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
    created_by_turn = models.ForeignKey(
        Turn,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    created_by_tool_call_id = models.CharField(max_length=200, blank=True)
    cancelled_by_tool_call_id = models.CharField(max_length=200, blank=True)
    taken_at = models.DateTimeField(null=True, blank=True)
    # DO_NOTHING keeps the deletion of a long history one statement; whoever deletes a session clears this first
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
            models.CheckConstraint(
                condition=Q(status__in=MessageStatus.values), name="scheduled_state_known"
            ),
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
            models.Index(
                fields=["send_at", "id"],
                condition=Q(status="pending", taken_at__isnull=True),
                name="scheduled_due",
            ),
            # the head of a session, and how many wait in it
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
