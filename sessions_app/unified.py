"""Unified mode: which session is behind a web thread, for all that it shows and all that is said in it (rule 4.10).

While its agent is unified, a thread shows and feeds the agent's primary session; its own rows lie still until the
mode is off. Nothing of this is stored, so toggling migrates nothing: each door asks anew, flag and session in one
statement, and who asked just before a toggle came before it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, F, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import Coalesce

from sessions_app.exceptions import NotFound, SessionClosed
from sessions_app.models import PRIMARY_KEY, Session, SessionState, SessionType

WEB = "web"  # the channel whose sub sessions are threads; the sessions of other channels are always their own


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A session as somebody comes into it, and the id of the session behind it: often the same."""

    session: Session
    behind: uuid.UUID


def with_behind(rows: QuerySet[Session]) -> QuerySet[Any]:
    """The rows, each with `behind`: the agent's primary session for a thread of a unified agent, else itself."""
    primary = Session.objects.filter(agent=OuterRef("agent"), key=PRIMARY_KEY).values("pk")[:1]
    unified = When(
        type=SessionType.SUB,
        channel=WEB,
        agent__unified_session=True,
        then=Coalesce(Subquery(primary), F("pk")),
    )
    return rows.annotate(behind=Case(unified, default=F("pk")))


def enter(session_id: uuid.UUID) -> Entered:
    """A session that is about to be written in. NotFound; SessionClosed."""
    session: Any = with_behind(Session.objects.filter(pk=session_id)).first()
    return Entered(session=must_be_open(session), behind=session.behind)


def behind(session_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, uuid.UUID]:
    """The session behind each; those that are gone are missing."""
    rows = with_behind(Session.objects.filter(pk__in=list(session_ids)))
    return dict(rows.values_list("pk", "behind"))


def must_be_open(session: Session | None) -> Session:
    """The session, if it takes input. NotFound; SessionClosed."""
    if session is None:
        raise NotFound("there is no such session")
    if session.state != SessionState.OPEN:
        raise SessionClosed(f"the session is {session.state}")
    return session
