"""What apps above keep for each agent. They register; nothing here imports them."""

from __future__ import annotations

from typing import Protocol

from sessions_app.models import Agent


class Belongings(Protocol):
    """Things of an agent that live and change with it; each question in the transaction of the change."""

    def made(self, agent: Agent) -> None:
        """The agent was made."""

    def lock(self, agent_id: int) -> None:
        """Lock what the agent's change or deletion concerns, before the agent's own row is locked."""

    def heartbeat_changed(self, agent: Agent) -> None:
        """The agent has other heartbeat settings now; what concerns it was locked."""

    def zone_changed(self, agent: Agent, before: str) -> None:
        """The agent has another time zone now; what concerns it was locked."""


_belongings: list[Belongings] = []


def register(belongings: Belongings) -> None:
    """Make something known that belongs to agents."""
    _belongings.append(belongings)


def made(agent: Agent) -> None:
    """An agent was made."""
    for each in _belongings:
        each.made(agent)


def lock(agent_id: int) -> None:
    """Lock all that belongs to an agent."""
    for each in _belongings:
        each.lock(agent_id)


def heartbeat_changed(agent: Agent) -> None:
    """An agent has other heartbeat settings."""
    for each in _belongings:
        each.heartbeat_changed(agent)


def zone_changed(agent: Agent, before: str) -> None:
    """An agent has another time zone."""
    for each in _belongings:
        each.zone_changed(agent, before)
