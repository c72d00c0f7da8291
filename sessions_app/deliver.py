"""Deliveries: a turn's answer on its way to a channel outside, written in the turn's own commit (rule 9.3).

`send.py` sends them; here is what begins and ends them from the side of turns and sessions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.channels.base import WEB
from sessions_app.exceptions import NotDead, NotFound
from sessions_app.models import Delivery, DeliveryState, Message, Session, Turn
from sessions_app.wake import wake_postman

log = structlog.get_logger(__name__)

Observer = Callable[[Delivery], None]
Route = Mapping[str, Any]  # channel, chat_id, meta
_observers: list[Observer] = []


def observe(observer: Observer) -> None:
    """Have it told of each delivery that became SENT or FAILED, in the transaction in which it did.

    One that fails is logged: what was sent was sent, and must not be sent again for its sake.
    """
    _observers.append(observer)


def tell(delivery: Delivery) -> None:
    """Tell whoever observes."""
    for observer in _observers:
        try:
            with transaction.atomic():
                observer(delivery)
        except (OperationalError, InterfaceError):
            raise  # the database is away: all of it is done again
        except Exception:
            log.exception("observer_failed", delivery=delivery.pk)


def hand_over(session: Session, message: Message, routes: Iterable[Route | None]) -> None:
    """Write the deliveries of an answer: one for each address outside; nobody gets it twice."""
    outside = [route for route in routes if route and route["channel"] != WEB]
    places = {(route["channel"], route["chat_id"]): route for route in outside}
    made = [
        _delivery(session, message, route, f"msg_{session.pk.hex}_{message.seq}" + (f"_{n}" if n else ""))
        for n, route in enumerate(places.values())
    ]
    if made:
        Delivery.objects.bulk_create(made)
        _wake(made)


def hand_over_judged(turn: Turn, route: Route, *, key: str, withheld: str) -> None:
    """Write the delivery of a turn's answer that was judged; `withheld`: why it is kept back, empty when it is not.

    The same key twice is one delivery.
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


def of_turn(turn_id: int) -> list[Delivery]:
    """The deliveries of a turn's answer; none when it does not leave the server."""
    return list(Delivery.objects.filter(message__turn_id=turn_id).order_by("id"))


def send_again(delivery_id: int) -> Delivery:
    """Take up a dead letter anew. NotFound; NotDead: there is nothing to take up."""
    with transaction.atomic():
        done = Delivery.objects.send_again(delivery_id)
        delivery = Delivery.objects.filter(pk=delivery_id).first()
        if delivery is None:
            raise NotFound("there is no such delivery")
        if not done:
            raise NotDead(f"the delivery is {delivery.state}")
        _wake([delivery])
    return delivery


def let_go(session_ids: list[uuid.UUID]) -> None:
    """The sessions are about to be deleted: what was not sent is closed, and what was sent loses its text."""
    theirs = Delivery.objects.filter(Q(session_id__in=session_ids) | Q(message__session_id__in=session_ids))
    theirs.close("session_deleted")
    theirs.update(message=None)


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
            wake_postman(session_id, channel)
