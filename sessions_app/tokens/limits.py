"""What a request reaches: all of its user, or one agent, or one session.

The reads take the limit from the user who asks, so none of them can forget to be given it. Where a limit does not let a
row be seen, the row does not exist for the request (404).
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
    """`agent_id` or `session_id` limits; neither: all of the user. `shown_id`: the session that the session shows."""

    agent_id: int | None = None
    session_id: uuid.UUID | None = None
    shown_id: uuid.UUID | None = None

    def __bool__(self) -> bool:
        return self.agent_id is not None or self.session_id is not None

    def own(self, address: str) -> str:
        """The address of a create, for its idempotency key: under another limit the key has another answer."""
        if self.session_id is not None:
            return f"{address} in session {self.session_id}"
        return address if self.agent_id is None else f"{address} in agent {self.agent_id}"

    @property
    def session_ids(self) -> set[uuid.UUID]:
        """The sessions whose contents a limit to a session reaches: itself, and the one that it shows."""
        return {each for each in (self.session_id, self.shown_id) if each is not None}


UNLIMITED = Limit()


def share_of_limited(most: int) -> int:
    """What a token of one agent or session has of its user's bound: half of it, rounded up."""
    return (most + 1) // 2


def put_limit(user: AbstractBaseUser, limit: Limit) -> None:
    """Limit all reads that are made for this user object."""
    setattr(user, _ATTRIBUTE, limit)


def limit_of(user: AbstractBaseUser) -> Limit:
    """The limit of the request that this user object belongs to."""
    limit: Limit = getattr(user, _ATTRIBUTE, UNLIMITED)
    return limit


def in_agents(user: AbstractBaseUser, agent: str = "agent") -> Q:
    """Condition on rows that belong to an agent: `agent` is the path to it. A limit to a session reaches none."""
    limit = limit_of(user)
    if limit.session_id is not None:
        return _NONE
    return Q() if limit.agent_id is None else Q(**{agent: limit.agent_id})


def asked_agents(user: AbstractBaseUser) -> Q:
    """Condition on agents to whom the request may send messages. A limit to a session reaches its agent for that."""
    only = limit_of(user).session_id
    return in_agents(user, "pk") if only is None else Q(sessions=only)


def in_sessions(user: AbstractBaseUser, session: str = "session") -> Q:
    """Condition on rows that belong to a session: `session` is the path to it."""
    limit = limit_of(user)
    if limit.session_id is not None:
        return Q(**{f"{session}__in": limit.session_ids})
    return Q() if limit.agent_id is None else Q(**{f"{session}__agent": limit.agent_id})


def in_account(user: AbstractBaseUser) -> Q:
    """Condition on rows that belong to no agent. A limited request reaches none."""
    return _NONE if limit_of(user) else Q()


def these_sessions(user: AbstractBaseUser) -> Q:
    """Condition on sessions."""
    limit = limit_of(user)
    if limit.session_id is not None:
        return Q(pk=limit.session_id)
    return Q() if limit.agent_id is None else Q(agent=limit.agent_id)


def reaches_session(user: AbstractBaseUser, session: Any) -> bool:
    """Whether a session, with its `agent_id`, is one of these."""
    limit = limit_of(user)
    if limit.session_id is not None:
        return bool(session.pk == limit.session_id)
    return limit.agent_id is None or bool(session.agent_id == limit.agent_id)


def reaches_contents(user: AbstractBaseUser, session_id: uuid.UUID) -> bool:
    """Whether what belongs to this session of the user is reached."""
    limit = limit_of(user)
    if limit.session_id is not None:
        return session_id in limit.session_ids
    return limit.agent_id is None or Session.objects.filter(pk=session_id, agent=limit.agent_id).exists()
