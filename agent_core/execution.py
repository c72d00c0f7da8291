"""An execution: a request on its way from a plan to an answer. Data, and the arrows between its states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

from agent_core.exceptions import AgentCoreError

JSON = dict[str, Any]

LONGEST_FINDING: Final = 4000  # characters of one
MOST_FINDINGS: Final = 40
CUT: Final = " … (cut)"
FINDINGS: Final = (
    "tool",
    "error",
    "reasoning",
)  # these are bounded; what people said and how things stand is not


class Status(StrEnum):
    """Where an execution stands; ARROWS lists every way on."""

    PLANNING = "planning"
    RUNNING = "running"
    WAITING_USER = "waiting_user"
    WAITING_CONFIRMATION = "waiting_confirmation"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


WAITING: Final = (Status.WAITING_USER, Status.WAITING_CONFIRMATION)
AT_WORK: Final = (Status.PLANNING, Status.RUNNING)
ENDED: Final = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
ARROWS: Final[Mapping[Status, tuple[Status, ...]]] = {
    Status.PLANNING: (Status.RUNNING, Status.FAILED, Status.CANCELLED),
    Status.RUNNING: (*WAITING, *ENDED),
    Status.WAITING_USER: (Status.PLANNING, Status.CANCELLED),
    Status.WAITING_CONFIRMATION: (Status.PLANNING, Status.CANCELLED),
    Status.COMPLETED: (Status.PLANNING,),
    Status.FAILED: (Status.PLANNING,),
    Status.CANCELLED: (),
}


class NoSuchArrow(AgentCoreError):
    """An execution cannot go from its state to that one."""


class StepType(StrEnum):
    """What a step does."""

    TOOL = "tool"
    REASON = "reason"
    ASK_USER = "ask_user"
    RESPOND = "respond"


class StepStatus(StrEnum):
    """Where a step stands."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"  # replaced before it was reached


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanStep:
    """A step of the plan in force. ``id`` is unique in its execution; ``consented``: the person said yes."""

    id: str = ""
    type: StepType
    title: str = ""
    tool: str = ""
    arguments: JSON = field(default_factory=dict)
    instruction: str = ""
    question: str = ""
    confirm: bool = False
    consent: str = ""  # the version of the tool for which it was asked
    consented: bool = False
    status: StepStatus = StepStatus.PENDING

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlanStep:
        """Read what ``Execution.to_json`` wrote."""
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in data.items() if name in known}
        return cls(**given | {"type": StepType(data["type"]), "status": StepStatus(data["status"])})

    def to_json(self) -> JSON:
        """Return all fields by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """Something the execution knows. ``kind``: tool, error, reasoning, question, reply, message, note or live:NAME."""

    kind: str
    text: str
    step: str = ""

    def to_json(self) -> JSON:
        """Return ``{kind, text, step}``."""
        return {"kind": self.kind, "text": self.text, "step": self.step}


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """The planner's working state, as it is stored after each step.

    ``request`` is what the person said, ``goal`` the planner's words for it. ``plans`` counts the plans made,
    ``iterations`` the steps taken since a person was last heard. ``question`` is the one that waits, or waited last.
    ``catalogue`` is the version of the tools that the plan was made for.
    """

    id: str
    request: str
    status: Status = Status.PLANNING
    goal: str = ""
    plans: int = 0
    steps: tuple[PlanStep, ...] = ()
    current_step: str = ""
    observations: tuple[Observation, ...] = ()
    iterations: int = 0
    question: str = ""
    reply: str = ""
    final_answer: str = ""
    last_error: str = ""
    catalogue: str = ""
    revise: str = ""  # why the rest of the plan is to be looked at again, before its next step
    heard: int = 0  # injected messages that were taken in, of this turn

    def to(self, status: Status, **changes: Any) -> Execution:
        """Return it in another state, or in the same with changes. NoSuchArrow."""
        stays = status is self.status and status in AT_WORK
        if not stays and status not in ARROWS[self.status]:
            raise NoSuchArrow(f"{self.status} → {status}")
        after = replace(self, status=status, **changes)
        return replace(after, steps=tuple(map(_left, after.steps))) if status in ENDED else after

    def step(self) -> PlanStep | None:
        """The first step that is not behind us."""
        ahead = (StepStatus.PENDING, StepStatus.RUNNING)
        return next((step for step in self.steps if step.status in ahead), None)

    def with_step(self, step: PlanStep) -> tuple[PlanStep, ...]:
        """The steps, with this one in its new form."""
        return tuple(step if each.id == step.id else each for each in self.steps)

    def planned(self, steps: Iterable[PlanStep]) -> Execution:
        """Return it with a new plan for what remains; what was done stays, what was not is dropped."""
        number = self.plans + 1
        behind = tuple(
            replace(each, status=StepStatus.DROPPED)
            if each.status in (StepStatus.PENDING, StepStatus.RUNNING)
            else each
            for each in self.steps
        )
        ahead = tuple(replace(step, id=f"{number}.{n}") for n, step in enumerate(steps, start=1))
        return replace(self, plans=number, steps=behind + ahead, current_step="")

    def noting(self, *observations: Observation) -> Execution:
        """Return it with further observations: cut to length, a live one in place of the older of its kind."""
        kept = list(self.observations)
        for each in observations:
            if each.kind.startswith("live:"):
                kept = [old for old in kept if old.kind != each.kind]
            kept.append(_bounded(each))
        while sum(each.kind in FINDINGS for each in kept) > MOST_FINDINGS:
            kept.remove(next(each for each in kept if each.kind in FINDINGS))
        return replace(self, observations=tuple(kept))


def _bounded(observation: Observation) -> Observation:
    if observation.kind not in FINDINGS or len(observation.text) <= LONGEST_FINDING:
        return observation
    return replace(observation, text=observation.text[:LONGEST_FINDING] + CUT)


def _left(step: PlanStep) -> PlanStep:
    """A step of an execution that has ended: what was not done is not going to be."""
    left = {StepStatus.PENDING: StepStatus.DROPPED, StepStatus.RUNNING: StepStatus.FAILED}
    return replace(step, status=left.get(step.status, step.status))
