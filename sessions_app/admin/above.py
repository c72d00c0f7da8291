"""What an app above shows on these pages. It registers; nothing here imports it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from sessions_app.admin.panels import Panel
from sessions_app.delete import Blocker
from sessions_app.models import Session


class Above(Protocol):
    """The pages of what is bound to sessions."""

    def panel(self, session: Session) -> Panel:
        """What is bound to a session, for its page."""

    def page_of(self, blocker_id: str) -> str:
        """The address of the page of something bound."""

    def owned_by(self, agent_ids: Collection[int]) -> tuple[Blocker, ...]:
        """What is bound to sessions of these agents."""


_above: list[Above] = []


def register(above: Above) -> None:
    """Make the pages of an app above known."""
    _above.append(above)


def panels(session: Session) -> Iterable[Panel]:
    """What apps above show on a session's page."""
    return [above.panel(session) for above in _above]


def page_of(blocker_id: str) -> str:
    """The address of the page of something bound to a session; empty when it has none."""
    return next((address for above in _above if (address := above.page_of(blocker_id))), "")


def owned_by(agent_ids: Collection[int]) -> tuple[Blocker, ...]:
    """All that is bound to sessions of these agents."""
    return tuple(blocker for above in _above for blocker in above.owned_by(agent_ids))
