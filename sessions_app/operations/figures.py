"""Counts over all users, for operators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, Q
from django.db.models.functions import Now

from sessions_app.models import Delivery, DeliveryState, MailboxEvent, Priority, Turn, TurnState, Worker


def live_workers(lost_after: float) -> list[list[str]]:
    """The queues of each worker whose last heartbeat is at most `lost_after` seconds old."""
    alive = Worker.objects.filter(heartbeat_at__gt=Now() - timedelta(seconds=lost_after))
    return list(alive.values_list("shards", flat=True))


def open_turns() -> dict[str, int]:
    """The number of queued and of running turns."""
    states = (TurnState.QUEUED, TurnState.RUNNING)
    return {str(state): Turn.objects.filter(state=state).count() for state in states}


@dataclass(frozen=True, kw_only=True)
class Unread:
    """The number of unread mailbox updates, and of the urgent ones among them."""

    waiting: int
    urgent: int


def unread_mail() -> Unread:
    """The updates of all sessions that no turn has acknowledged."""
    rows = MailboxEvent.objects.filter(acknowledged_at__isnull=True, dropped_at__isnull=True)
    counts: dict[str, Any] = rows.aggregate(
        all=Count("id"), urgent=Count("id", filter=Q(priority=Priority.URGENT))
    )
    return Unread(waiting=counts["all"], urgent=counts["urgent"])


def open_deliveries() -> dict[str, int]:
    """The number of pending, sending and failed deliveries."""
    states = (DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.FAILED)
    return {str(state): Delivery.objects.filter(state=state).count() for state in states}
