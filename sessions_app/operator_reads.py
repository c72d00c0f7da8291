"""Reads for operators: of all users, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, Q
from django.db.models.functions import Now

from sessions_app.models import Delivery, DeliveryState, MailboxEvent, Priority, Turn, TurnState, Worker


def live_workers(lost_after: float) -> list[list[str]]:
    """The queues that each worker reads which gave a sign of life within `lost_after` seconds."""
    alive = Worker.objects.filter(heartbeat_at__gt=Now() - timedelta(seconds=lost_after))
    return list(alive.values_list("shards", flat=True))


def open_turns() -> dict[str, int]:
    """How many turns wait and run."""
    counts: dict[str, Any] = {}
    for state in (TurnState.QUEUED, TurnState.RUNNING):
        counts[str(state)] = Turn.objects.filter(state=state).aggregate(n=Count("id"))["n"]
    return counts


@dataclass(frozen=True, kw_only=True)
class Unread:
    """Updates that wait in mailboxes; `urgent` of them."""

    waiting: int
    urgent: int


def unread_mail() -> Unread:
    """What no turn has shown yet, of all sessions."""
    rows = MailboxEvent.objects.filter(acknowledged_at__isnull=True, dropped_at__isnull=True)
    counts: dict[str, Any] = rows.aggregate(
        all=Count("id"), urgent=Count("id", filter=Q(priority=Priority.URGENT))
    )
    return Unread(waiting=counts["all"], urgent=counts["urgent"])


def open_deliveries() -> dict[str, int]:
    """How many deliveries are on the way, and how many were given up: dead letters."""
    counts = {}
    for state in (DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.FAILED):
        counts[str(state)] = Delivery.objects.filter(state=state).count()
    return counts
