"""Deliveries: a turn's answer on its way to a channel outside, written in the turn's own commit (rule 9.3).

Sending them is the work of a later release; until then they wait as pending.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models import Delivery, DeliveryState, Message, Session, Turn


def hand_over(turn: Turn, address: dict[str, Any], *, key: str, withheld: str = "") -> None:
    """Write the delivery of a turn's answer; `withheld`: why it is kept back instead.

    `address`: channel, chat_id, meta. The same key twice is one delivery.
    """
    answer = Message.objects.filter(turn=turn, role="assistant").order_by("-seq").first()
    if answer is None:
        return
    delivery = Delivery(
        session_id=turn.session_id,
        session_key=Session.objects.values_list("key", flat=True).get(pk=turn.session_id),
        message=answer,
        idempotency_key=key,
        channel=address["channel"],
        address=address["chat_id"],
        meta=address["meta"],
    )
    if withheld:
        delivery.state, delivery.reason = DeliveryState.WITHHELD, withheld[:300]
        delivery.ended_at = Now()
    Delivery.objects.bulk_create([delivery], ignore_conflicts=True)


def let_go(session_ids: list[uuid.UUID]) -> None:
    """The sessions are about to be deleted: what was not sent is closed, and what was sent loses its text."""
    theirs = Delivery.objects.filter(Q(session_id__in=session_ids) | Q(message__session_id__in=session_ids))
    theirs.filter(state=DeliveryState.PENDING).update(
        state=DeliveryState.CLOSED, reason="session_deleted", ended_at=Now(), next_attempt_at=None
    )
    theirs.update(message=None)
