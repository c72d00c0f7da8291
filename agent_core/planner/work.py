"""A planned turn at work: what it was given, how far it is, and the one way to get further."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agent_core.execution import Execution
from agent_core.planner.asking import Asking
from agent_core.planner.catalogue import version_of
from agent_core.planner.past import Past
from agent_core.planner.texts import Resume
from agent_core.ports import PlanPorts
from agent_core.types import EventType, ToolSpec, TurnEvent, TurnRequest

Events = Generator[TurnEvent, None, None]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """All that a planned turn starts from.

    ``execution``: a fresh one, one that waits (with its ``resume``) or has ended, or one that is at work since an
    earlier attempt. ``words``: what is asked, for this turn alone, in place of the execution's request. ``consent``:
    the reply is a plain yes or no. ``memory`` is the task state, ``live`` the kinds of live state that the request is
    about. ``is_heard``: somebody can answer a question here.
    """

    turn: TurnRequest
    execution: Execution
    resume: Resume | None = None
    consent: bool | None = None
    memory: str = ""
    words: str = ""
    live: tuple[str, ...] = ()
    is_heard: bool = True


@dataclass(kw_only=True)
class Work:
    """`execution` is how far it is. `is_ours`: this turn has changed what is stored of it.

    Before that a failure leaves everything as it was, so that a question which nothing came of yet still stands.
    """

    request: PlanRequest
    ports: PlanPorts
    asking: Asking
    past: Past
    execution: Execution
    is_ours: bool

    @cached_property
    def specs(self) -> dict[str, ToolSpec]:
        """The tools there are, by name."""
        return {spec.name: spec for spec in self.request.turn.tools}

    @cached_property
    def catalogue(self) -> str:
        """Their version."""
        return version_of(self.request.turn.tools)

    def go(self, execution: Execution, event_type: EventType, **content: Any) -> Events:
        """Store how far it is, and tell of it."""
        event = TurnEvent(type=event_type, content=content)
        self.ports.saved(execution, event, self.asking.usage)
        self.execution = execution
        self.is_ours = True
        yield event
