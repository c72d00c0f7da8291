"""Extensions of the admin by higher apps, which register them here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from interfaces.admin.panels import Panel
from sessions_app.models import Session
from sessions_app.sessions.dependents import Blocker


class AdminExtension(Protocol):
    """What an app adds for the rows that it binds to sessions."""

    def panel(self, session: Session) -> Panel:
        """A panel for the session's page."""

    def blocker_url(self, blocker_id: str) -> str:
        """The URL of a blocker's page; empty when it is not of this app."""

    def owned_by(self, agent_ids: Collection[int]) -> tuple[Blocker, ...]:
        """The rows bound to sessions of these agents, which block their deletion."""


_registered: list[AdminExtension] = []


def register_pages(extension: AdminExtension) -> None:
    """Register the extension of an app."""
    _registered.append(extension)


def panels(session: Session) -> Iterable[Panel]:
    """The panels of all extensions for a session's page."""
    return [extension.panel(session) for extension in _registered]


def blocker_url(blocker_id: str) -> str:
    """The URL of a blocker's page; empty when it has none."""
    return next((url for extension in _registered if (url := extension.blocker_url(blocker_id))), "")


def owned_by(agent_ids: Collection[int]) -> tuple[Blocker, ...]:
    """What blocks the deletion of these agents, from all extensions."""
    return tuple(blocker for extension in _registered for blocker in extension.owned_by(agent_ids))
