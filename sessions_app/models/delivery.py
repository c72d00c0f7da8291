"""Delivery: handing one message to a channel outside the server. Written in the turn's commit."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models.message import Message
from sessions_app.models.session import Session


class DeliveryState(models.TextChoices):
    """Where a delivery stands; DELIVERY_ARROWS lists every way on."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    WITHHELD = "withheld"
    CLOSED = "closed"


DELIVERY_ARROWS: dict[DeliveryState, tuple[DeliveryState, ...]] = {
    DeliveryState.PENDING: (DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.CLOSED),
    DeliveryState.SENT: (),
    DeliveryState.FAILED: (),
    DeliveryState.WITHHELD: (),
    DeliveryState.CLOSED: (),
}


class Delivery(models.Model):
    """One message on its way to one address; `idempotency_key` makes a second one of the same message impossible.

    A delivery outlives its session, without the text: whether something left the server stays known.
    """

    session = models.ForeignKey(Session, null=True, on_delete=models.SET_NULL, related_name="deliveries")
    session_key = models.CharField(max_length=200)
    # DO_NOTHING keeps the deletion of a long history one statement; whoever deletes messages clears this first
    message = models.OneToOneField(Message, null=True, on_delete=models.DO_NOTHING, related_name="delivery")
    idempotency_key = models.CharField(max_length=200, unique=True)
    channel = models.CharField(max_length=64)
    address = models.CharField(max_length=200)
    meta = models.JSONField(default=dict, blank=True)
    state = models.CharField(max_length=16, choices=DeliveryState, default=DeliveryState.PENDING)
    reason = models.CharField(max_length=300, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "deliveries"
        constraints = [
            models.CheckConstraint(condition=Q(state__in=DeliveryState.values), name="delivery_state_known"),
            models.CheckConstraint(
                condition=Q(state="pending", ended_at__isnull=True)
                | Q(state__in=["sent", "failed", "withheld", "closed"], ended_at__isnull=False),
                name="delivery_ended_iff_not_pending",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["withheld", "closed"]) | ~Q(reason=""),
                name="delivery_kept_back_with_reason",
            ),
        ]
        indexes = [
            # head-first within a session and channel
            models.Index(
                fields=["session", "channel", "id"], condition=Q(state="pending"), name="delivery_pending"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.channel}:{self.address}"
