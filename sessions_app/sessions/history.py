"""The messages and deliveries that a session shows (rule 4.10), and a user's turns and deliveries in all sessions.

Like selectors, each read starts from the user who asks.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Value

from sessions_app.channels.webhook import SystemEvents
from sessions_app.models import Delivery, Message, Session, Turn
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.pages import MOST_SEARCHED, PagedQuery, found_in, how_many_fit, search_newest
from sessions_app.postgres.rows import existing
from sessions_app.reads.selectors import owned, shown_id, turns
from sessions_app.reads.session_reads import with_deliveries
from sessions_app.tokens.reach import in_sessions, limit_of

LONGEST_PLACE = 40  # characters


def session_messages(user: AbstractBaseUser, session_id: uuid.UUID, term: str = "") -> PagedQuery[Any]:
    """Return the messages that a session shows, each with `thread`, for a thread's own its id. NotFound.

    Older automations and scheduled messages of a thread still write to the thread while its agent is unified. Each such
    message stores after which message of the primary session it is shown. With a `term`: only those of the newest
    messages that have it in their content.
    """
    target = shown_id(user, session_id)
    parts = [_messages(user, target, term).annotate(after=F("seq"), own=Value(0))]
    if target != session_id:
        beside = _messages(user, session_id, term).filter(shown_after_seq__isnull=False)
        parts.append(beside.annotate(after=F("shown_after_seq"), own=F("seq")))

    def load(ids: list[Any]) -> list[Any]:
        rows = Message.objects.filter(pk__in=ids, session__owner_id=user.pk).order_by()
        found: list[Any] = [*rows.annotate(shown_deliveries=with_deliveries("message_id", OuterRef("pk")))]
        for row in found:
            row.thread = None if row.session_id == target else row.session_id
        return found

    return PagedQuery(parts=parts, order=("after", "own"), load=load)


def _messages(user: AbstractBaseUser, session_id: uuid.UUID, term: str) -> QuerySet[Any]:
    """Return the messages of the session that have the term, among its newest, which its `last_seq` tells."""
    rows = Message.objects.filter(session=owned(user, session_id))
    if not term:
        return rows
    session = Session.objects.filter(pk=session_id)
    newest = Subquery(session.values(before=F("last_seq") - MOST_SEARCHED))
    return rows.filter(found_in(term, "content"), seq__gt=newest)


class SomeMessages(NamedTuple):
    """A part of a history. `more`: further messages follow."""

    rows: list[Any]
    more: bool


def some_messages(
    user: AbstractBaseUser, session_id: uuid.UUID, most: int, *, before: str = "", after: str = ""
) -> SomeMessages:
    """Return at most `most` of these messages, fewer long ones: the newest first, or those after a place in order.

    NotFound; ValueError for a malformed place.
    """
    if len(before + after) > LONGEST_PLACE:
        raise ValueError("not a place in a history")
    messages = session_messages(user, session_id)
    if after:
        messages = messages.filter(place__gt=after)
    elif before:
        messages = messages.filter(place__lt=before)
    keys = messages.order_by("place" if after else "-place")[: most + 1]
    fitting = how_many_fit(keys[:most]) or most
    return SomeMessages(rows=messages.rows(keys[:fitting]), more=len(keys) > fitting)


def turns_of(user: AbstractBaseUser, session_id: uuid.UUID, state: str | None = None) -> PagedQuery[Turn]:
    """Return the turns that a session shows; a thread of a unified agent also shows those of its own. NotFound.

    `state`: only those in this state.
    """
    target = shown_id(user, session_id)
    rows = Turn.objects.filter(state=state) if state else Turn.objects.all()
    parts = [rows.filter(session=owned(user, target))]
    if target != session_id:
        own = rows.filter(session=owned(user, session_id))
        beside = Message.objects.filter(session=owned(user, session_id), shown_after_seq__isnull=False)
        parts += [own.filter(pk__in=beside.values("turn_id")), own.filter(state__in=OPEN_STATES)]
    return turns(user, *parts, order=("id",))


def turns_of_user(user: AbstractBaseUser, wanted: Mapping[str, Any], term: str = "") -> PagedQuery[Turn]:
    """Return the user's turns with these values of fields, in the order in which they were queued."""
    rows = Turn.objects.filter(in_sessions(user), owner_id=user.pk)
    found = search_newest(rows, found_in(term, "content"), time="queued_at").filter(**wanted)
    return turns(user, found, order=("queued_at", "pk"))


def deliveries_of_user(user: AbstractBaseUser, wanted: Mapping[str, Any], term: str = "") -> PagedQuery[Any]:
    """Return the user's deliveries with these values of fields, in the order in which they were created."""
    rows: QuerySet[Any] = Delivery.objects.filter(_reached(user), owner_id=user.pk, session__isnull=False)
    rows = search_newest(rows, found_in(term, "address"), time="created_at").filter(**wanted)
    return PagedQuery(
        parts=[rows], order=("created_at", "pk"), load=lambda ids: _deliveries(user).filter(pk__in=ids)
    )


def deliveries_of(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[Any]:
    """Return the deliveries of the session that is shown. NotFound."""
    return _deliveries(user).filter(session=owned(user, shown_id(user, session_id)))


def delivery(user: AbstractBaseUser, delivery_id: int) -> Any:
    """Return one delivery of the user. NotFound."""
    return existing(_deliveries(user).filter(pk=delivery_id))


def _deliveries(user: AbstractBaseUser) -> QuerySet[Any]:
    """Return the user's deliveries, each with `agent_name` and its message's `seq` and `turn`; not those of deleted
    sessions.
    """
    rows = Delivery.objects.filter(_reached(user), session__owner_id=user.pk)
    return rows.annotate(
        agent_name=F("session__agent__name"), seq=F("message__seq"), turn=F("message__turn_id")
    )


def _reached(user: AbstractBaseUser) -> Q:
    """Condition: deliveries that the token reaches. A token limited to a session is not shown system events, which go
    to the agent's address.
    """
    of_agent = Q() if limit_of(user).session_id is None else ~Q(channel=SystemEvents.name)
    return in_sessions(user) & of_agent
