"""Delivery: handing one message to a channel outside the server. Written in the turn's commit."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models.message import Message
from sessions_app.models.session import LONGEST_ADDRESS, Session


class DeliveryState(models.TextChoices):
    """Where a delivery stands; DELIVERY_ARROWS lists every way on."""

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    WITHHELD = "withheld"
    CLOSED = "closed"


DELIVERY_ARROWS: dict[DeliveryState, tuple[DeliveryState, ...]] = {
    DeliveryState.PENDING: (DeliveryState.SENDING, DeliveryState.CLOSED),
    # back to pending: another attempt
    DeliveryState.SENDING: (
        DeliveryState.SENT,
        DeliveryState.PENDING,
        DeliveryState.FAILED,
        DeliveryState.CLOSED,
    ),
    DeliveryState.SENT: (),
    # a dead letter waits for somebody who sends it again
    DeliveryState.FAILED: (DeliveryState.PENDING, DeliveryState.CLOSED),
    DeliveryState.WITHHELD: (),
    DeliveryState.CLOSED: (),
}
ON_THE_WAY = (DeliveryState.PENDING, DeliveryState.SENDING)


class DeliveryTransitions(models.QuerySet["Delivery"]):
    """The ways on from a state, each one conditional UPDATE; False: somebody else was faster.

    PENDING → SENDING is `send.CLAIM`, since it must pick and take in one statement.
    """

    def sent(self, delivery: Delivery) -> bool:
        """SENDING or PENDING → SENT, whoever has the claim by now: it was taken, and need not be sent again."""
        still = self.filter(pk=delivery.pk, state__in=ON_THE_WAY)
        return self._settle(
            still, delivery, state=DeliveryState.SENT, ended_at=Now(), next_attempt_at=None, last_error=""
        )

    def keep(self, delivery: Delivery, lease: timedelta) -> bool:
        """SENDING, own claim → the same, for longer."""
        return bool(self._mine(delivery).update(next_attempt_at=Now() + lease))

    def try_again(self, delivery: Delivery, error: str, wait: timedelta) -> bool:
        """SENDING, own claim → PENDING until another attempt."""
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

    def send_again(self, delivery_id: int) -> bool:
        """FAILED → PENDING, with all its attempts anew. What lost its text stays where it is."""
        dead = self.filter(pk=delivery_id, state=DeliveryState.FAILED, message__isnull=False)
        return bool(
            dead.update(
                state=DeliveryState.PENDING,
                attempts=0,
                next_attempt_at=Now(),
                hinted_at=None,
                handed_over_at=Now(),
            )
        )

    def move(self, channel: str, before: str, after: str) -> int:
        """Another address for what is on the way or was given up; an attempt under way goes where it went."""
        still = self.filter(state__in=[*ON_THE_WAY, DeliveryState.FAILED])
        return still.filter(channel=channel, address=before).update(address=after)

    def close(self, reason: str) -> int:
        """PENDING, SENDING, FAILED → CLOSED: it will not be sent any more."""
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
    """One message on its way to one address; its `idempotency_key` is what the receiver knows it by.

    Of a session and channel only the oldest one on the way is sent: nothing overtakes. `claim` names the one attempt
    that may settle it; `next_attempt_at` of a row that is being sent is when that attempt is taken for dead.
    A delivery outlives its session, without the text: whether something left the server stays known.
    """

    session = models.ForeignKey(Session, null=True, on_delete=models.SET_NULL, related_name="deliveries")
    session_key = models.CharField(max_length=200)
    # DO_NOTHING keeps the deletion of a long history one statement; whoever deletes messages clears this first
    message = models.ForeignKey(Message, null=True, on_delete=models.DO_NOTHING, related_name="deliveries")
    idempotency_key = models.CharField(max_length=200, unique=True)
    channel = models.CharField(max_length=64)
    address = models.CharField(max_length=LONGEST_ADDRESS)
    meta = models.JSONField(default=dict, blank=True)
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
        help_text="Patience counts from here: when it was made or taken up again.",
    )
    ended_at = models.DateTimeField(null=True, blank=True)

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
        ]
        indexes = [
            # head-first within a session and channel
            models.Index(
                fields=["session", "channel", "id"],
                condition=Q(state__in=["pending", "sending"]),
                name="delivery_on_the_way",
            ),
            models.Index(fields=["id"], condition=Q(state="failed"), name="delivery_dead_letters"),
        ]

    def __str__(self) -> str:
        return f"{self.channel}:{self.address}"
