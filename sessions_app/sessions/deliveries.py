"""A user's deliveries: of one session and of all. Like selectors, each read starts from the user who asks."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import F, Q, QuerySet

from sessions_app.channels.webhook import SystemEvents
from sessions_app.exceptions import NotFound
from sessions_app.models import Delivery
from sessions_app.postgres.compiled import Keyed
from sessions_app.postgres.search import found_in, matching
from sessions_app.reads.selectors import owned, shown_id
from sessions_app.tokens.limits import in_sessions, limit_of


def deliveries_of_user(user: AbstractBaseUser, wanted: Mapping[str, Any], term: str = "") -> Keyed[Any]:
    """Return the user's deliveries with these values of fields, in the order in which they were created."""
    rows = Delivery.objects.filter(_reached(user), owner_id=user.pk, session__isnull=False)
    keys = matching(rows, wanted, found_in(term, "address"), time="created_at")
    return Keyed(keys=keys, load=lambda ids: list(_deliveries(user).filter(pk__in=ids)))


def deliveries_of(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[Any]:
    """Return the deliveries of the session that is shown. NotFound."""
    return _deliveries(user).filter(session=owned(user, shown_id(user, session_id)))


def delivery(user: AbstractBaseUser, delivery_id: int) -> Any:
    """Return one delivery of the user. NotFound."""
    found = _deliveries(user).filter(pk=delivery_id).first()
    if found is None:
        raise NotFound("there is no such delivery")
    return found


def _deliveries(user: AbstractBaseUser) -> QuerySet[Any]:
    """Return the user's deliveries, each with `agent_name` and its message's `seq` and `turn`; not those of deleted
    sessions.
    """
    rows = Delivery.objects.filter(_reached(user), session__owner_id=user.pk)
    return rows.annotate(
        agent_name=F("session__agent__name"), seq=F("message__seq"), turn=F("message__turn_id")
    )


def _reached(user: AbstractBaseUser) -> Q:
    """Condition: what a token reaches. Events go to the agent's address, which one that is limited to a session is not
    shown.
    """
    of_agent = Q() if limit_of(user).session_id is None else ~Q(channel=SystemEvents.name)
    return in_sessions(user) & of_agent
