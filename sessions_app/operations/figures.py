"""Counts over all users, for operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Min, Q, QuerySet
from django.db.models.functions import Now

from agent_core.execution import WAITING
from sessions_app.connections.prices import Cost, Used, costs_of
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
from sessions_app.postgres.rows import fetch

NEWEST_TURNS = 5_000  # turns of the last 24 hours whose tokens are counted
MOST_FAILED = 2_000  # failed turns that are looked at
_DAY = "interval '24 hours'"
# each session is looked up by its key: a join would read all sessions
_TOKENS = f"""
SELECT agent.id, agent.name, owner.username, owner.id, of.model, sum(of.turns), sum(of.given), sum(of.made),
  coalesce(sum(of.usd) * 1000000, 0)::bigint FROM (
  SELECT session_id, model, count(*) AS turns, sum((usage->>'input_tokens')::bigint) AS given,
    sum((usage->>'output_tokens')::bigint) AS made, sum((usage->>'usd')::numeric) AS usd
  FROM (SELECT session_id, model, usage, queued_at FROM sessions_app_turn ORDER BY id DESC LIMIT %s) AS newest
  WHERE queued_at > now() - {_DAY} AND usage ? 'requests' GROUP BY session_id, model, usage ? 'usd'
) AS of
CROSS JOIN LATERAL (SELECT agent_id FROM sessions_app_session WHERE id = of.session_id OFFSET 0) AS session
JOIN sessions_app_agent AS agent ON agent.id = session.agent_id JOIN auth_user AS owner ON owner.id = agent.owner_id
GROUP BY agent.id, agent.name, owner.id, owner.username, of.model, of.usd IS NULL
ORDER BY sum(of.given + of.made) DESC"""  # noqa: S608 - a constant
_FAILED = """
SELECT error_code, count(*) FROM (
  SELECT error_code, finished_at FROM sessions_app_turn WHERE state = 'failed' ORDER BY id DESC LIMIT %s
) AS newest WHERE finished_at > now() - make_interval(secs => %s) GROUP BY error_code"""


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
    return Counter(dict(fetch(_FAILED, [MOST_FAILED, since.total_seconds()])))


def waiting_executions() -> QuerySet[ExecutionState]:
    """The plans that wait for an answer of a person."""
    return ExecutionState.objects.filter(status__in=[each.value for each in WAITING]).order_by("asked_at")


def open_consents() -> QuerySet[ConsentQuestion]:
    """The questions for consent that nobody has answered."""
    return ConsentQuestion.objects.open().order_by("asked_at")


@dataclass(frozen=True, kw_only=True)
class AgentTokens:
    """The tokens that an agent's turns used, and what they cost."""

    agent_id: int
    name: str
    owner: str
    turns: int
    input_tokens: int
    output_tokens: int
    cost: Cost


def tokens_by_agent(most: int) -> Sequence[AgentTokens]:
    """The agents that used most tokens in the last 24 hours, in at most the NEWEST_TURNS."""
    by_agent: dict[tuple[int, str, str], list[tuple[int, Used]]] = {}
    for agent_id, name, owner, owner_id, model, turns, given, made, micro_usd in fetch(
        _TOKENS, [NEWEST_TURNS]
    ):
        used = Used(
            owner_id=owner_id,
            model=model,
            input_tokens=int(given),
            output_tokens=int(made),
            micro_usd=int(micro_usd),
        )
        by_agent.setdefault((agent_id, name, owner), []).append((int(turns), used))
    found = sorted(by_agent.items(), key=lambda each: -_tokens(used for _, used in each[1]))[:most]
    costs = costs_of([used for _, used in parts] for _, parts in found)
    return [
        AgentTokens(
            agent_id=agent_id,
            name=name,
            owner=owner,
            turns=sum(turns for turns, _ in parts),
            input_tokens=sum(used.input_tokens for _, used in parts),
            output_tokens=sum(used.output_tokens for _, used in parts),
            cost=cost,
        )
        for ((agent_id, name, owner), parts), cost in zip(found, costs, strict=True)
    ]


def _tokens(parts: Iterable[Used]) -> int:
    return sum(used.input_tokens + used.output_tokens for used in parts)
