"""Rows that apps above bind to sessions. Those apps register them; nothing here imports them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Blocker:
    """Something bound to a session: it prevents its deletion, or goes along."""

    id: str
    name: str
    enabled: bool


class SessionDependent(Protocol):
    """Rows that an app above binds to sessions."""

    def blockers(self, session_id: uuid.UUID, *, with_agent: bool) -> tuple[Blocker, ...]:
        """List what would be deleted with the session, disabled ones too; `with_agent`: its agent is deleted."""

    def companions(self, session_id: uuid.UUID) -> tuple[Blocker, ...]:
        """List what is deleted with the session without blocking that, and would still have done something."""

    def lock(self, session_ids: list[uuid.UUID], agent_id: int | None) -> tuple[str, ...]:
        """Lock what is bound to these sessions, before the sessions. Returns the ids of what would be deleted.

        With `agent_id` it also locks what is deleted with the agent without blocking the delete.
        """

    def delete(self, ids: tuple[str, ...]) -> None:
        """Delete what was locked, in the same transaction."""

    def detach_from_sessions(self, session_ids: list[uuid.UUID]) -> tuple[str, ...]:
        """End what used these sessions and is not deleted with them, in the same transaction.

        Returns the ids of what is moved to the primary session.
        """


_dependents: list[SessionDependent] = []


def register_session_dependent(dependent: SessionDependent) -> None:
    """Register rows that are bound to sessions."""
    _dependents.append(dependent)


def session_dependents() -> tuple[SessionDependent, ...]:
    """Everything that is registered."""
    return tuple(_dependents)


def blockers_of(session_id: uuid.UUID, *, with_agent: bool = False) -> tuple[Blocker, ...]:
    """List what prevents deleting the session, alone or with its agent."""
    return tuple(
        blocker
        for dependent in _dependents
        for blocker in dependent.blockers(session_id, with_agent=with_agent)
    )


def companions_of(session_id: uuid.UUID) -> tuple[Blocker, ...]:
    """List what is deleted with the session without preventing that."""
    return tuple(each for dependent in _dependents for each in dependent.companions(session_id))
