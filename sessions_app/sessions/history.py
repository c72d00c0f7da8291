"""The messages and deliveries that a session shows (rule 4.10), and a user's turns and deliveries in all sessions.

Like selectors, each read starts from the user who asks.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import F, OuterRef, Q, QuerySet, Subquery, UUIDField, Value

from sessions_app.channels.webhook import SystemEvents
from sessions_app.exceptions import NotFound
from sessions_app.models import Delivery, Message, Session, Turn
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.compiled import CompiledQuery, Keyed, Parameter, is_any_of
from sessions_app.postgres.merged_rows import Merged
from sessions_app.postgres.search import MOST_SEARCHED, found_in, matching
from sessions_app.postgres.sizes import how_many_fit, size_of_rows
from sessions_app.reads.selectors import keyed_turns, owned, shown_id, turns, with_deliveries
from sessions_app.sessions.thread_history import Beside
from sessions_app.tokens.limits import in_sessions, limit_of

LONGEST_PLACE = 40  # characters


def session_messages(user: AbstractBaseUser, session_id: uuid.UUID, term: str = "") -> Beside | Keyed[Any]:
    """Return the messages that a session shows, each with its `place`, and `thread` for a thread's own. NotFound.

    With a `term`, those of the newest that have it in their content.
    """
    behind = shown_id(user, session_id)
    if behind == session_id:
        keys = _found(Message.objects.filter(session=owned(user, behind)), term, behind)
        keys = keys.annotate(place=F("seq"))
        return Keyed(keys=Merged(keys), load=partial(_LISTED.all, owner=user.pk))
    rows = _with_deliveries()
    primary = _found(rows.filter(session=owned(user, behind)), term, behind)
    return Beside.of(primary, _found(rows.filter(session=owned(user, session_id)), term, session_id))


def _found(rows: QuerySet[Any], term: str, session_id: uuid.UUID) -> QuerySet[Any]:
    """Return the messages of the session that have the term, among its newest, which its `last_seq` tells."""
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
    rows = session_messages(user, session_id)
    order = "place" if after else "-place"
    bound = {"place__gt": after} if after else {"place__lt": before} if before else {}
    keys: Any = rows if isinstance(rows, Beside) else rows.keys
    keys = (keys.filter(**bound) if bound else keys).order_by(order)
    sizes = keys.sizes("pk", "place", size=size_of_rows(keys.first))[: most + 1]
    fitting = how_many_fit(sizes[:most]) or most
    found = keys[:fitting] if isinstance(rows, Beside) else rows.rows([row["pk"] for row in sizes[:fitting]])
    return SomeMessages(rows=found, more=len(sizes) > fitting)


def _with_deliveries() -> QuerySet[Any]:
    return Message.objects.annotate(shown_deliveries=with_deliveries("message_id", OuterRef("pk")))


_LISTED: CompiledQuery[Any] = CompiledQuery(
    lambda: (
        _with_deliveries()
        .filter(is_any_of("pk", "ids"), session__owner_id=Parameter("owner"))
        .annotate(place=F("seq"), thread=Value(None, output_field=UUIDField()))
        .order_by()
    )
)


def turns_of(user: AbstractBaseUser, session_id: uuid.UUID, state: str | None = None) -> Keyed[Turn]:
    """Return the turns that a session shows; a thread of a unified agent also shows those of its own. NotFound.

    `state`: only those in this state.
    """
    behind = shown_id(user, session_id)
    rows = Turn.objects.filter(state=state) if state else Turn.objects.all()
    shown = rows.filter(session=owned(user, behind))
    if behind == session_id:
        return turns(user, shown)
    own = rows.filter(session=owned(user, session_id))
    beside = Message.objects.filter(session=owned(user, session_id), shown_after_seq__isnull=False)
    return turns(user, shown, own.filter(pk__in=beside.values("turn_id")), own.filter(state__in=OPEN_STATES))


def turns_of_user(user: AbstractBaseUser, wanted: Mapping[str, Any], term: str = "") -> Keyed[Turn]:
    """Return the user's turns with these values of fields, in the order in which they were queued."""
    rows = Turn.objects.filter(in_sessions(user), owner_id=user.pk)
    keys = matching(rows, wanted, found_in(term, "content"), time="queued_at")
    return keyed_turns(user, keys)


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
