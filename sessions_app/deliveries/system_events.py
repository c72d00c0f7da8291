"""System events: what the server tells an agent's owner about failures, as deliveries to the agent's `events_url`.

They are stored in the transaction of what they report, signed, repeated and kept like all deliveries, in a lane of
their own: neither do they wait for answers, nor do answers wait for them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import structlog

from sessions_app.channels.personal import Told
from sessions_app.channels.webhook import Ping, SystemEvents
from sessions_app.deliveries.notifications import notify_owner
from sessions_app.hints import wake_dispatcher
from sessions_app.models import Delivery, DeliveryState, Session, Turn
from sessions_app.models.delivery import ON_THE_WAY
from sessions_app.models.session import WEB

log = structlog.get_logger(__name__)

MOST_WAITING = 100  # events of one session that are not sent yet; more are dropped


# of `budget.near` and `budget.reached`
LIMIT_DATA = ("scope", "name", "limit", "cap", "spent", "resets_at", "turn", "run")
NOTICE = "notice"  # the type of a text of the server's own, as channels get it


class EventName(StrEnum):
    """The types of system events, as receivers get them."""

    RUN_FAILED = "run.failed"
    DELIVERY_FAILED = "delivery.failed"
    BUDGET_NEAR = "budget.near"
    BUDGET_REACHED = "budget.reached"
    PING = "ping"


def report_event(session_id: uuid.UUID, name: EventName, data: Mapping[str, Any], *, of: str) -> None:
    """Write the delivery of an event, if the session's agent has an `events_url`.

    `of` names what it is about, such as a run: a second event of the same name about it is not written.
    """
    session = Session.objects.select_related("agent").filter(pk=session_id).first()
    if session is not None and session.agent.events_url:
        delivery = Delivery(
            channel=SystemEvents.name,
            address=session.agent.events_url,
            idempotency_key=f"{name}_{of}",
            event={"type": name.value, "data": dict(data)},
        )
        _store(session, delivery)


def store_ping(session_id: uuid.UUID, address: str, *, run_id: str, attempt: int) -> None:
    """Write the ping of a run; a second one of the same attempt is not written."""
    session = Session.objects.filter(pk=session_id).first()
    if session is not None:
        delivery = Delivery(
            channel=Ping.name,
            address=address,
            idempotency_key=f"{EventName.PING}_{run_id}" + (f"_{attempt}" if attempt > 1 else ""),
            event={"type": EventName.PING.value, "data": {"run": run_id}},
        )
        _store(session, delivery)


def send_notice(session_id: uuid.UUID, text: str, *, about: Mapping[str, Any], key: str) -> None:
    """Send a text of the server's own to where the session's answers go, and tell its owner as they chose.

    A second notice with the same key is not sent.
    """
    session = Session.objects.filter(pk=session_id).first()
    if session is not None:
        notify_owner(session, Told.FAILURE, of=key, text=text)
    route = session.standing_route if session is not None else {"channel": WEB}
    if session is not None and route["channel"] != WEB:
        delivery = Delivery(
            channel=route["channel"],
            address=route["chat_id"],
            meta=route.get("meta") or {},
            idempotency_key=f"{NOTICE}_{key}",
            event={"type": NOTICE, "text": text, "data": dict(about)},
        )
        _store(session, delivery)


def fail_address(url: str) -> str:
    """The address that says that a run failed: `/fail` after the path."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/fail"))


def _store(session: Session, delivery: Delivery) -> None:
    """Store a delivery without a message, unless too many of its lane wait."""
    waiting = Delivery.objects.filter(session=session, channel=delivery.channel, state__in=ON_THE_WAY)
    if waiting.order_by()[:MOST_WAITING].count() >= MOST_WAITING:
        log.warning("event_dropped", session=str(session.pk), channel=delivery.channel)
        return
    delivery.session_id, delivery.session_key = session.pk, session.key
    Delivery.objects.bulk_create([delivery], ignore_conflicts=True)
    wake_dispatcher(session.pk, delivery.channel)


def report_turn_limit(turn: Turn) -> None:
    """Report a turn that a limit of its policy ended."""
    about = {"scope": "turn", "name": turn.kind, "limit": turn.error_code, "turn": turn.pk}
    run = turn.origin_run or None
    report_limit(turn.session_id, EventName.BUDGET_REACHED, of=str(turn.pk), run=run, **about)


def report_limit(session_id: uuid.UUID, event: EventName, *, of: str, **data: Any) -> None:
    """Report a limit that is reached or nearly so. `data`: those of LIMIT_DATA that are known; the others are null."""
    report_event(session_id, event, dict.fromkeys(LIMIT_DATA) | data, of=of)


def report_dead_letter(delivery: Delivery) -> None:
    """Report a delivery that was given up, unless it was a system event itself. An observer of settled deliveries."""
    if delivery.state != DeliveryState.FAILED or delivery.event is not None or delivery.session_id is None:
        return
    turn = delivery.message and delivery.message.turn
    data = {
        "failed_delivery": delivery.pk,
        "turn": turn and turn.pk,
        "run": (turn and turn.origin_run) or None,
        "channel": delivery.channel,
        "attempts": delivery.attempts,
        "last_error": delivery.last_error,
    }
    report_event(delivery.session_id, EventName.DELIVERY_FAILED, data, of=str(delivery.pk))
