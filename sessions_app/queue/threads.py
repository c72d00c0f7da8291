"""Unified mode: which session a web thread shows and sends its messages to (rule 4.10).

While its agent is unified, a thread shows the agent's primary session and its messages go there; its own rows are not
used until the mode is off. Nothing of this is stored: each request reads flag and session in one statement. Toggling
the mode changes no rows but unread updates of threads (`mailbox.updates.moving_undrained`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, F, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import Coalesce

from sessions_app.exceptions import NotFound, OwnerInactive, SessionClosed, StorageFull
from sessions_app.limits import quotas
from sessions_app.models import PRIMARY_KEY, Session, SessionState, SessionType
from sessions_app.models.session import WEB
from sessions_app.postgres.compiled import CompiledQuery, Parameter


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A session that was addressed, and the id of the session that its input goes to, which is often the same."""

    session: Session
    target_id: uuid.UUID


def with_target(rows: QuerySet[Session]) -> QuerySet[Any]:
    """Annotate the rows with `target_id`: for a thread of a unified agent the primary session, else itself."""
    primary = Session.objects.filter(agent=OuterRef("agent"), key=PRIMARY_KEY).values("pk")[:1]
    unified = When(
        type=SessionType.SUB,
        channel=WEB,
        agent__unified_session=True,
        then=Coalesce(Subquery(primary), F("pk")),
    )
    return rows.annotate(target_id=Case(unified, default=F("pk")))


def addressed() -> QuerySet[Any]:
    """Return the session of the parameter `session`, with what `admit` checks."""
    rows: QuerySet[Session] = with_target(Session.objects.filter(pk=Parameter("session")))
    return rows.annotate(owner_is_active=F("owner__is_active"), owner_is_full=quotas.is_full("owner_id"))


_ADDRESSED = CompiledQuery(addressed, prepared=True)


def enter(session_id: uuid.UUID) -> Entered:
    """Read a session that input is for. NotFound; SessionClosed; OwnerInactive; StorageFull."""
    return admit(_ADDRESSED.first(session=session_id))


def admit(session: Any) -> Entered:
    """Check that a session of `addressed` accepts input; None is no session. What `enter` raises."""
    if session is not None and not session.owner_is_active:
        raise OwnerInactive
    if session is not None and session.owner_is_full:
        raise StorageFull(quotas.full_text())
    return Entered(session=must_be_open(session), target_id=session.target_id)


def behind(session_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, uuid.UUID]:
    """Return the target of each session, by its id; deleted sessions are missing."""
    rows = with_target(Session.objects.filter(pk__in=list(session_ids)))
    return dict(rows.values_list("pk", "target_id"))


def must_be_open(session: Session | None) -> Session:
    """Return the session if it accepts input. NotFound; SessionClosed."""
    if session is None:
        raise NotFound("there is no such session")
    if session.state != SessionState.OPEN:
        raise SessionClosed(
            "the session is archived; open it again on its page, or by PATCH of"
            f' /api/sessions/{session.pk}/ with {{"archived": false}}'
            if session.state == SessionState.ARCHIVED
            else "the session is being deleted"
        )
    return session
