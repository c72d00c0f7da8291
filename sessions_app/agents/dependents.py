"""Things that apps above keep for each agent. Those apps register them; nothing here imports them."""

from __future__ import annotations

from typing import Protocol

from sessions_app.models import Agent


class AgentDependent(Protocol):
    """Something that is created and changed with an agent. Each method is called in the transaction of the change."""

    def made(self, agent: Agent) -> None:
        """The agent was created."""

    def lock(self, agent_id: int) -> None:
        """Lock the rows that a change of the agent concerns. It is called before the agent's own row is locked."""

    def heartbeat_changed(self, agent: Agent) -> None:
        """The agent's heartbeat settings were changed, after `lock`."""

    def zone_changed(self, agent: Agent, before: str) -> None:
        """The agent's time zone was changed, after `lock`; `before` is the old one."""


_dependents: list[AgentDependent] = []


def register_agent_dependent(dependent: AgentDependent) -> None:
    """Register something that belongs to agents."""
    _dependents.append(dependent)


def agent_dependents() -> tuple[AgentDependent, ...]:
    """Everything that is registered."""
    return tuple(_dependents)


def lock_dependents(agent_id: int) -> None:
    """Lock the rows of every dependent that a change of the agent concerns."""
    for dependent in _dependents:
        dependent.lock(agent_id)
