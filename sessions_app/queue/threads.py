"""Unified mode: which session a web thread shows and sends its messages to (rule 4.10).

While its agent is unified, a thread shows the agent's primary session and its messages go there; its own rows are not
used until the mode is off. Nothing of this is stored: each request reads flag and session in one statement. Toggling
the mode changes no rows but unread updates of threads (`mailbox.deposit.moving_undrained`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.db.models import Case, F, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import Coalesce

from sessions_app.exceptions import NotFound, OwnerInactive, SessionClosed, StorageFull
from sessions_app.limits import quotas
from sessions_app.models import PRIMARY_KEY, Session, SessionState, SessionType
from sessions_app.models.session import WEB


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


def addressed_session(session_id: uuid.UUID) -> QuerySet[Any]:
    """Return the session, with its `target_id` and what `check_accepts_input` checks."""
    rows: QuerySet[Session] = with_target(Session.objects.filter(pk=session_id)).order_by()
    return rows.annotate(owner_is_active=F("owner__is_active"), owner_is_full=quotas.is_full("owner_id"))


def find_target(session_id: uuid.UUID) -> uuid.UUID:
    """Return the session that gets this session's input. NotFound; SessionClosed; OwnerInactive; StorageFull."""
    target_id: uuid.UUID = check_accepts_input(addressed_session(session_id).first()).target_id
    return target_id


def check_accepts_input(session: Any) -> Any:
    """Return a session of `addressed_session` if it accepts input; None is no session. It raises as `find_target`."""
    if session is not None and not session.owner_is_active:
        raise OwnerInactive
    if session is not None and session.owner_is_full:
        raise StorageFull(quotas.full_text())
    return must_be_open(session)


def target_ids(session_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, uuid.UUID]:
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
