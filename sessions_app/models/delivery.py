"""Delivery: the sending of one message to a channel outside the server. It is stored in the turn's commit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models.message import Message
from sessions_app.models.session import LONGEST_ADDRESS, Session, has_owner, owner_column


class DeliveryState(models.TextChoices):
    """The state of a delivery; DELIVERY_ARROWS lists every transition."""

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    WITHHELD = "withheld"
    CLOSED = "closed"


DELIVERY_ARROWS: dict[DeliveryState, tuple[DeliveryState, ...]] = {
    DeliveryState.PENDING: (DeliveryState.SENDING, DeliveryState.CLOSED),
    # back to pending: another attempt follows
    DeliveryState.SENDING: (
        DeliveryState.SENT,
        DeliveryState.PENDING,
        DeliveryState.FAILED,
        DeliveryState.CLOSED,
    ),
    DeliveryState.SENT: (),
    # a dead letter: somebody may send it again
    DeliveryState.FAILED: (DeliveryState.PENDING, DeliveryState.CLOSED),
    DeliveryState.WITHHELD: (),
    DeliveryState.CLOSED: (),
}
ON_THE_WAY = (DeliveryState.PENDING, DeliveryState.SENDING)


class DeliveryTransitions(models.QuerySet["Delivery"]):
    """The transitions, each a conditional UPDATE. False: the state had already changed.

    PENDING → SENDING is made by `send.py`, which locks the oldest open delivery of a lane to claim it.
    """

    def sent(self, delivery: Delivery) -> bool:
        """SENDING or PENDING → SENT, whoever has the claim: the receiver has it, so it need not be sent again."""
        still = self.filter(pk=delivery.pk, state__in=ON_THE_WAY)
        return self._settle(
            still,
            delivery,
            state=DeliveryState.SENT,
            ended_at=Now(),
            next_attempt_at=None,
            last_error="",
            number_at_channel=delivery.number_at_channel,
        )

    def keep(self, delivery: Delivery, lease: timedelta) -> bool:
        """SENDING, own claim → the same: extend the lease."""
        return bool(self._mine(delivery).update(next_attempt_at=Now() + lease))

    def try_again(self, delivery: Delivery, error: str, wait: timedelta) -> bool:
        """SENDING, own claim → PENDING: retry after `wait`."""
        again = Now() + wait
        return self._settle(
            self._mine(delivery),
            delivery,
            state=DeliveryState.PENDING,
            last_error=error,
            next_attempt_at=again,
        )

    def give_up(self, delivery: Delivery, error: str) -> bool:
        """SENDING, own claim → FAILED: a dead letter."""
        return self._settle(
            self._mine(delivery), delivery, state=DeliveryState.FAILED, last_error=error, next_attempt_at=None
        )

    def drop(self, delivery: Delivery, reason: str) -> bool:
        """SENDING, own claim → CLOSED: nobody needs it any more."""
        return self._settle(
            self._mine(delivery),
            delivery,
            state=DeliveryState.CLOSED,
            reason=reason,
            ended_at=Now(),
            next_attempt_at=None,
        )

    def send_again(self, delivery_id: int) -> bool:
        """FAILED → PENDING, with attempts counted from 0. Not for a delivery whose message was deleted."""
        dead = self.filter(Q(message__isnull=False) | Q(event__isnull=False), pk=delivery_id)
        dead = dead.filter(state=DeliveryState.FAILED)
        return bool(
            dead.update(
                state=DeliveryState.PENDING,
                attempts=0,
                next_attempt_at=Now(),
                hinted_at=None,
                handed_over_at=Now(),
            )
        )

    def move(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Change address or metadata of unsent and failed deliveries. A running attempt keeps the old address."""
        still = self.filter(state__in=[*ON_THE_WAY, DeliveryState.FAILED], channel=before["channel"])
        there = still.filter(address=before["chat_id"])
        there.filter(meta=before["meta"]).update(meta=after["meta"])
        there.update(address=after["chat_id"])

    def close(self, reason: str) -> int:
        """PENDING, SENDING, FAILED → CLOSED: it is not sent any more."""
        open_ones = self.filter(state__in=[*ON_THE_WAY, DeliveryState.FAILED])
        return open_ones.update(
            state=DeliveryState.CLOSED, reason=reason, ended_at=Now(), next_attempt_at=None, claim=None
        )

    def _mine(self, delivery: Delivery) -> Self:
        return self.filter(pk=delivery.pk, claim=delivery.claim, state=DeliveryState.SENDING)

    def _settle(self, rows: Self, delivery: Delivery, **values: object) -> bool:
        done = bool(rows.update(claim=None, hinted_at=None, **values))
        if done:
            delivery.state = DeliveryState(str(values["state"]))
            delivery.last_error = str(values.get("last_error", delivery.last_error))
        return done


class Delivery(models.Model):
    """The sending of one message to one address. The receiver recognizes repeats by its `idempotency_key`.

    Deliveries of one session and channel are sent in order, one at a time. `claim` names the attempt that may settle
    it. While it is being sent, `next_attempt_at` is the end of that attempt's lease. When its session is deleted, a
    delivery is kept without its text, as a record of what left the server.
    """

    session = models.ForeignKey(
        Session, null=True, on_delete=models.SET_NULL, related_name="deliveries", db_index=False
    )
    session_key = models.CharField(max_length=200)
    owner_id = owner_column()
    # DO_NOTHING: a long history is deleted with one statement; code that deletes messages clears this column first
    message = models.ForeignKey(Message, null=True, on_delete=models.DO_NOTHING, related_name="deliveries")
    idempotency_key = models.CharField(max_length=200, unique=True)
    channel = models.CharField(max_length=64)
    address = models.CharField(max_length=LONGEST_ADDRESS)
    meta = models.JSONField(default=dict, blank=True)
    event = models.JSONField(
        null=True, blank=True, help_text="The type and data of a system event, which has no message."
    )
    state = models.CharField(max_length=16, choices=DeliveryState, default=DeliveryState.PENDING)
    reason = models.CharField(max_length=300, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    claim = models.UUIDField(null=True, blank=True, editable=False)
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    tried_at = models.DateTimeField(null=True, blank=True)
    hinted_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    handed_over_at = models.DateTimeField(
        db_default=Now(),
        editable=False,
        help_text="When it was created or last sent again. The time limit for retries counts from here.",
    )
    ended_at = models.DateTimeField(null=True, blank=True)
    number_at_channel = models.BigIntegerField(
        null=True,
        editable=False,
        help_text="Its place among the messages of the chat, if the channel numbers them.",
    )

    objects = DeliveryTransitions.as_manager()

    class Meta:
        verbose_name_plural = "deliveries"
        constraints = [
            models.CheckConstraint(condition=Q(state__in=DeliveryState.values), name="delivery_state_known"),
            models.CheckConstraint(
                condition=Q(state__in=["pending", "sending", "failed"], ended_at__isnull=True)
                | Q(state__in=["sent", "withheld", "closed"], ended_at__isnull=False),
                name="delivery_ended_iff_nothing_follows",
            ),
            models.CheckConstraint(
                condition=Q(state="sending", claim__isnull=False, next_attempt_at__isnull=False)
                | ~Q(state="sending") & Q(claim__isnull=True),
                name="delivery_claimed_iff_sending",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["withheld", "closed"]) | ~Q(reason=""),
                name="delivery_kept_back_with_reason",
            ),
            models.CheckConstraint(
                condition=~Q(state="failed") | ~Q(last_error=""), name="delivery_failed_with_error"
            ),
            has_owner("delivery_has_owner", unless=Q(session__isnull=True)),
            models.CheckConstraint(
                condition=Q(event__isnull=True) | Q(message__isnull=True), name="delivery_of_message_or_event"
            ),
        ]
        indexes = [
            # the oldest delivery of a session and channel
            models.Index(
                fields=["session", "channel", "id"],
                condition=Q(state__in=["pending", "sending"]),
                name="delivery_on_the_way",
            ),
            models.Index(fields=["id"], condition=Q(state="failed"), name="delivery_dead_letters"),
            # lists of a session's deliveries, newest first: all, and the few that are not sent
            models.Index(fields=["session", "id"], name="delivery_of_session"),
            models.Index(
                fields=["session", "state", "id"], condition=~Q(state="sent"), name="delivery_by_state"
            ),
            # lists of a user's deliveries by time: all deliveries, and those that were not sent
            models.Index(
                fields=["owner_id", "created_at", "id"],
                condition=Q(session__isnull=False),
                name="delivery_of_owner",
            ),
            models.Index(
                fields=["owner_id", "state", "created_at", "id"],
                condition=Q(session__isnull=False) & ~Q(state="sent"),
                name="delivery_of_owner_by_state",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.channel}:{self.address}"
