"""Counts over all users, for operators."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Min, Q, QuerySet
from django.db.models.functions import Now

from agent_core.execution import WAITING
from sessions_app.mailbox import updates
from sessions_app.models import (
    ConsentQuestion,
    Delivery,
    DeliveryState,
    ExecutionState,
    Lane,
    Priority,
    Turn,
    TurnState,
    Worker,
)
from sessions_app.reads.usage import AGENT_ID, UsageRow, summed

NEWEST_TURNS = 5_000  # turns of the last 24 hours whose tokens are counted
MOST_FAILED = 2_000  # failed turns that are looked at


def live_workers() -> list[list[str]]:
    """The queues of each worker that does not count as lost."""
    lost_after = timedelta(seconds=settings.RONDO_WORKER_LOST_SECONDS)
    alive = Worker.objects.filter(heartbeat_at__gt=Now() - lost_after)
    return list(alive.values_list("shards", flat=True))


def open_turns() -> dict[str, int]:
    """The number of queued and of running turns."""
    states = (TurnState.QUEUED, TurnState.RUNNING)
    return {str(state): Turn.objects.filter(state=state).count() for state in states}


@dataclass(frozen=True, kw_only=True)
class Queued:
    """The queued turns of a lane, and how long the oldest has waited; 0 without any."""

    count: int
    oldest_seconds: float


def queued_by_lane() -> dict[str, Queued]:
    """The queued turns of each lane, guests of running turns left out."""
    rows = Turn.objects.filter(state=TurnState.QUEUED, host__isnull=True).order_by().values_list("lane")
    found = {
        lane: Queued(count=count, oldest_seconds=max(0.0, waited.total_seconds()))
        for lane, count, waited in rows.annotate(count=Count("id"), waited=Now() - Min("queued_at"))
    }
    return {lane: found.get(lane, Queued(count=0, oldest_seconds=0.0)) for lane in Lane.values}


@dataclass(frozen=True, kw_only=True)
class Unread:
    """The number of unread mailbox updates, and of the urgent ones among them."""

    waiting: int
    urgent: int


def unread_mail() -> Unread:
    """Count the unread updates of all sessions."""
    counts: dict[str, Any] = updates.unread().aggregate(
        all=Count("id"), urgent=Count("id", filter=Q(priority=Priority.URGENT))
    )
    return Unread(waiting=counts["all"], urgent=counts["urgent"])


def open_deliveries() -> dict[str, int]:
    """The number of pending, sending and failed deliveries."""
    states = (DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.FAILED)
    return {str(state): Delivery.objects.filter(state=state).count() for state in states}


def dead_deliveries() -> QuerySet[Delivery]:
    """The deliveries that were given up, newest first."""
    return Delivery.objects.filter(state=DeliveryState.FAILED).order_by("-id")


def failed_turns(since: timedelta) -> Counter[str]:
    """The turns that failed within this time by error code, among the newest MOST_FAILED failures."""
    newest = Turn.objects.filter(state=TurnState.FAILED).order_by("-pk").values("pk")[:MOST_FAILED]
    lately = Turn.objects.filter(pk__in=newest, finished_at__gt=Now() - since).order_by()
    return Counter(dict(lately.values_list("error_code").annotate(Count("pk"))))


def waiting_executions() -> QuerySet[ExecutionState]:
    """The plans that wait for an answer of a person."""
    return ExecutionState.objects.filter(status__in=[each.value for each in WAITING]).order_by("asked_at")


def open_consents() -> QuerySet[ConsentQuestion]:
    """The questions for consent that nobody has answered."""
    return ConsentQuestion.objects.open().order_by("asked_at")


def tokens_by_agent(most: int) -> list[UsageRow]:
    """The agents, by id, that used most tokens in the last 24 hours, in at most the NEWEST_TURNS."""
    newest = Turn.objects.order_by("-pk").values("pk")[:NEWEST_TURNS]
    lately = Turn.objects.filter(pk__in=newest, queued_at__gt=Now() - timedelta(days=1))
    return sorted(summed(lately, AGENT_ID), key=lambda row: -row.tokens)[:most]
