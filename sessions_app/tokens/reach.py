"""What a request may reach: everything of its user, one agent, or one session.

Each read takes the limit from the user object of the request, so that no caller can forget to pass it. For the request,
rows beyond the limit do not exist (404).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q

from sessions_app.models import Session

_ATTRIBUTE = "rondo_limit"  # of the user object of a request
_NONE = Q(pk__in=[])


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit to `agent_id` or to `session_id`; without both there is none.

    `shown_id`: the session that people are shown in place of the limited one (unified mode).
    """

    agent_id: int | None = None
    session_id: uuid.UUID | None = None
    shown_id: uuid.UUID | None = None

    def __bool__(self) -> bool:
        return self.agent_id is not None or self.session_id is not None

    def own(self, address: str) -> str:
        """Return the address for an idempotency key. Requests with different limits do not share a key."""
        if self.session_id is not None:
            return f"{address} in session {self.session_id}"
        return address if self.agent_id is None else f"{address} in agent {self.agent_id}"

    @property
    def session_ids(self) -> set[uuid.UUID]:
        """The session of the limit and the one shown in its place, whose contents may be read."""
        return {each for each in (self.session_id, self.shown_id) if each is not None}


UNLIMITED = Limit()


def share_of_limited(most: int) -> int:
    """Return what one limited token may use of a limit of its user: half of it, rounded up."""
    return (most + 1) // 2


def put_limit(user: AbstractBaseUser, limit: Limit) -> None:
    """Limit all reads that are made for this user object."""
    setattr(user, _ATTRIBUTE, limit)


def limit_of(user: AbstractBaseUser) -> Limit:
    """Return the limit of the request that this user object belongs to."""
    limit: Limit = getattr(user, _ATTRIBUTE, UNLIMITED)
    return limit


def in_agents(user: AbstractBaseUser, agent: str = "agent") -> Q:
    """Condition on rows that belong to an agent, by the path `agent`. A limit to a session excludes all of them."""
    limit = limit_of(user)
    if limit.session_id is not None:
        return _NONE
    return Q() if limit.agent_id is None else Q(**{agent: limit.agent_id})


def asked_agents(user: AbstractBaseUser) -> Q:
    """Condition on agents that the request may send messages to. With a limit to a session, its agent is included."""
    only = limit_of(user).session_id
    return in_agents(user, "pk") if only is None else Q(sessions=only)


def in_sessions(user: AbstractBaseUser, session: str = "session") -> Q:
    """Condition on rows that belong to a session, by the path `session`."""
    limit = limit_of(user)
    if limit.session_id is not None:
        return Q(**{f"{session}__in": limit.session_ids})
    return Q() if limit.agent_id is None else Q(**{f"{session}__agent": limit.agent_id})


def in_account(user: AbstractBaseUser) -> Q:
    """Condition on rows that belong to the user and to no agent. A limited request reaches none of them."""
    return _NONE if limit_of(user) else Q()


def these_sessions(user: AbstractBaseUser) -> Q:
    """Condition on sessions that the request may reach."""
    limit = limit_of(user)
    if limit.session_id is not None:
        return Q(pk=limit.session_id)
    return Q() if limit.agent_id is None else Q(agent=limit.agent_id)


def reaches_session(user: AbstractBaseUser, session: Any) -> bool:
    """Whether the request reaches this session."""
    limit = limit_of(user)
    if limit.session_id is not None:
        return bool(session.pk == limit.session_id)
    return limit.agent_id is None or bool(session.agent_id == limit.agent_id)


def reaches_contents(user: AbstractBaseUser, session_id: uuid.UUID) -> bool:
    """Whether the request reaches what belongs to this session of the user."""
    limit = limit_of(user)
    if limit.session_id is not None:
        return session_id in limit.session_ids
    return limit.agent_id is None or Session.objects.filter(pk=session_id, agent=limit.agent_id).exists()
