"""Deliveries as turns and sessions see them: enqueue them in the turn's commit, send one again, close them (rule 9.3).

`send.py` sends them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError, transaction
from django.db.models.functions import Now

from sessions_app.exceptions import NotDead
from sessions_app.hints import wake_dispatcher
from sessions_app.models import Delivery, DeliveryState, Message, Session, Turn
from sessions_app.models.session import WEB
from sessions_app.postgres.rows import existing

log = structlog.get_logger(__name__)

Observer = Callable[[Delivery], None]
Route = Mapping[str, Any]  # channel, chat_id, meta
_observers: list[Observer] = []


def on_settled(observer: Observer) -> None:
    """Call `observer` with each delivery that became SENT or FAILED, in the transaction of that change.

    An exception of the observer is logged only: a sent delivery must not be sent again because of it.
    """
    _observers.append(observer)


def notify_settled(delivery: Delivery) -> None:
    """Call all observers."""
    for observer in _observers:
        try:
            with transaction.atomic():
                observer(delivery)
        except (OperationalError, InterfaceError):
            raise  # the database is down: the whole transaction is repeated
        except Exception:
            log.exception("observer_failed", delivery=delivery.pk)


def enqueue_deliveries(session: Session, message: Message, routes: Iterable[Route | None]) -> None:
    """Write the deliveries of an answer, one for each different address outside the server."""
    outside = [route for route in routes if route and route["channel"] != WEB]
    places = {(route["channel"], route["chat_id"]): route for route in outside}
    made = [
        _delivery(session, message, route, f"msg_{session.pk.hex}_{message.seq}" + (f"_{n}" if n else ""))
        for n, route in enumerate(places.values())
    ]
    if made:
        Delivery.objects.bulk_create(made)
        _wake(made)


def enqueue_judged_delivery(turn: Turn, route: Route, *, key: str, withheld: str) -> None:
    """Write the delivery of a turn's answer that was judged. A second call with the same key writes nothing.

    `withheld` is the reason not to send it, empty when it is sent.
    """
    answer = Message.objects.filter(turn=turn, role="assistant").order_by("-seq").first()
    if answer is None or route["channel"] == WEB:
        return
    session = Session.objects.only("key").get(pk=turn.session_id)
    delivery = _delivery(session, answer, route, key)
    if withheld:
        delivery.state, delivery.reason = DeliveryState.WITHHELD, withheld[:300]
        delivery.ended_at = Now()
    Delivery.objects.bulk_create([delivery], ignore_conflicts=True)
    if not withheld:
        _wake([delivery])


def send_again(delivery_id: int) -> Delivery:
    """Send a dead letter again. NotFound; NotDead when the delivery did not fail."""
    with transaction.atomic():
        done = Delivery.objects.send_again(delivery_id)
        delivery = existing(Delivery.objects.filter(pk=delivery_id))
        if not done:
            raise NotDead(f"the delivery is {delivery.state}")
        _wake([delivery])
    return delivery


def detach_from_sessions(session_ids: list[uuid.UUID]) -> None:
    """Prepare the sessions' deletion: close deliveries that were not sent, and drop the text of all of them."""
    messages = Message.objects.filter(session_id__in=session_ids).values("pk")
    # one after the other: for an OR of the two PostgreSQL reads all deliveries and all messages
    for deliveries in (
        Delivery.objects.filter(session_id__in=session_ids),
        Delivery.objects.filter(message__in=messages),
    ):
        deliveries.close("session_deleted")
        deliveries.update(message=None)


def _delivery(session: Session, message: Message, route: Route, key: str) -> Delivery:
    return Delivery(
        session_id=session.pk,
        session_key=session.key,
        message=message,
        idempotency_key=key,
        channel=route["channel"],
        address=route["chat_id"],
        meta=route.get("meta") or {},
    )


def _wake(deliveries: Iterable[Delivery]) -> None:
    for session_id, channel in {(each.session_id, each.channel) for each in deliveries}:
        if session_id is not None:
            wake_dispatcher(session_id, channel)
