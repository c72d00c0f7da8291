"""The input and the state of a planned turn."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agent_core.execution import Execution
from agent_core.planner.asking import PlannerModel
from agent_core.planner.texts import Resume
from agent_core.tool_spec import ToolSpec, version_of
from agent_core.turn.control import PlanPorts
from agent_core.types import Step, StepKind, ToolResult, TurnEvent, TurnEventType, TurnRequest, Usage

Events = Generator[TurnEvent, None, None]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """The input of a planned turn.

    ``execution`` is new, waiting (with its ``resume``), ended, or at work since an earlier attempt. ``words`` replace
    the execution's request in this turn. ``consent`` is the plain yes or no to the question that asked for a step.
    ``memory`` is the task state, ``live`` the kinds of live state that the request is about. ``is_heard``: somebody can
    answer a question. ``may_ask_consent``: a person started this turn, so a step may wait for their yes.
    ``clock`` returns the local time and zone. ``updates`` returns the background updates that the turn acknowledges,
    one line each.
    """

    turn: TurnRequest
    execution: Execution
    resume: Resume | None = None
    consent: bool | None = None
    memory: str = ""
    words: str = ""
    live: tuple[str, ...] = ()
    is_heard: bool = True
    may_ask_consent: bool = False
    clock: Callable[[], str] = lambda: "(not known)"
    updates: Callable[[], tuple[str, ...]] = tuple


@dataclass(kw_only=True)
class Work:
    """The state of a planned turn. `is_ours`: this turn has stored a change of the execution.

    Before that, a failure changes nothing, so that a waiting question still waits.
    """

    request: PlanRequest
    ports: PlanPorts
    model: PlannerModel
    journal: JournaledSteps
    execution: Execution
    is_ours: bool

    @cached_property
    def specs(self) -> dict[str, ToolSpec]:
        """The tools that a plan may use, by name."""
        return {spec.name: spec for spec in self.request.turn.offered}

    @cached_property
    def catalogue(self) -> str:
        """The version of the tools."""
        return version_of(self.request.turn.offered)

    def save(self, execution: Execution, event_type: TurnEventType, **content: Any) -> Events:
        """Store the execution and send the event."""
        event = TurnEvent(type=event_type, content=content)
        self.ports.saved(execution, event, self.model.usage)
        self.execution = execution
        self.is_ours = True
        yield event


class JournaledSteps:
    """The journal of earlier attempts."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self.usage = Usage()
        self.is_saved = False
        self.heard: tuple[str, ...] = ()
        self.intended: set[str] = set()
        self.results: dict[str, ToolResult] = {}
        for step in steps:
            match step.kind:
                case StepKind.CHECKPOINT:
                    self.is_saved = True
                    self.usage = Usage.from_json(step.data["usage"])
                case StepKind.INJECT:
                    self.heard += tuple(step.data["texts"])
                case StepKind.INTENT:
                    self.intended.add(step.data["id"])
                case StepKind.RESULT:
                    self.results[step.data["id"]] = ToolResult.from_json(step.data)
