"""Notifications: tell a session's owner of something that came while they were not there.

Each way that they chose gets a delivery of its own, in the transaction of what it is about. `channels/personal.py`
sends it, unless the owner has seen it by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from sessions_app.channels import base
from sessions_app.channels.personal import FailureMail, Page, Told
from sessions_app.channels.push import Push
from sessions_app.models import Delivery, DeliveryState, PushSubscription, Session, UserSettings

SEEN_AFTER = timedelta(seconds=5)  # by then a window in sight has marked what it shows as read
SHOWN_FOR = timedelta(minutes=3)  # a page that nobody sees asks once a minute
LONGEST_WAIT = timedelta(days=2)  # of a notice for the end of quiet hours
FOLLOWED = "a newer one follows"


def notify_owner(session: Session, told: Told, *, of: str, text: str = "", **about: Any) -> None:
    """Write what the owner is told, on each of their ways. A second notice with the same `of` is not written.

    `about`: `seq` of the message, or the id of the `question`, by which it is known whether the owner has seen it. Of
    several messages of a conversation that wait to be told, only the newest one is told.
    """
    wishes = UserSettings.objects.filter(pk=session.owner_id).first()
    made = [] if wishes is None else list(_deliveries(session, wishes, told))
    if wishes is None or not made:
        return
    now = datetime.now(UTC)
    for each in made:
        each.idempotency_key = f"{each.channel}_{of}"
        each.event = {"type": "notice", "text": text, "data": {"told": told.value, **about}}
        each.next_attempt_at = max(now + SEEN_AFTER, wishes.quiet_until(now) or now)
    lanes = [each.channel for each in made if each.channel != FailureMail.name]
    waiting = Delivery.objects.filter(session=session, channel__in=lanes, state=DeliveryState.PENDING)
    if "seq" in about:
        waiting.filter(event__data__has_key="seq").close(FOLLOWED)
    Delivery.objects.bulk_create(made, ignore_conflicts=True)


def _deliveries(session: Session, wishes: UserSettings, told: Told) -> Iterator[Delivery]:
    """A delivery for each way of the owner. Each browser has a lane of its own."""
    shared = {"session_id": session.pk, "session_key": session.key}
    if wishes.notify_pages:
        yield Delivery(channel=Page.name, **shared)
    if wishes.notify_mail and told is Told.FAILURE and base.sender(FailureMail.name):
        yield Delivery(channel=FailureMail.name, **shared)
    for pk, endpoint in PushSubscription.objects.filter(user=wishes.pk).values_list("pk", "endpoint"):
        where = {"address": urlsplit(endpoint).hostname or "", "meta": {"subscription": pk}}
        yield Delivery(channel=f"{Push.name}:{pk}", **where, **shared)


def told_lately(user: Any) -> dict[uuid.UUID, tuple[int, str]]:
    """By session, what open pages tell now: the number of the notice, which grows, and its words; empty: the first
    words of the message.
    """
    wishes: UserSettings | None = getattr(user, "settings", None)
    if wishes is None or not wishes.notify_pages:
        return {}
    now = datetime.now(UTC)
    since = {"created_at__gt": now - LONGEST_WAIT, "ended_at__gt": now - SHOWN_FOR}
    sent = Delivery.objects.filter(owner_id=user.pk, channel=Page.name, state=DeliveryState.SENT, **since)
    rows = sent.order_by("pk").values_list("session_id", "pk", "event__data__told")
    return {session: (pk, "" if wishes.notify_text else Told(told).words) for session, pk, told in rows}
