"""An execution, the stored state of a planned request, with its allowed state transitions."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from agent_core.exceptions import AgentCoreError

JSON = dict[str, Any]

_ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"
LONGEST_FINDING: Final = 4000  # characters
MOST_FINDINGS: Final = 40
CUT: Final = " … (cut)"
FINDINGS: Final = ("tool", "error", "reasoning")  # the kinds of observations that are bounded


def new_id() -> str:
    """Return a random public id of 8 characters, which people can type."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(8))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Status(StrEnum):
    """The states of an execution. ARROWS lists the allowed transitions."""

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


class BadTransition(AgentCoreError):
    """An execution cannot change from its state to the requested one."""


class StepType(StrEnum):
    """What a step does."""

    TOOL = "tool"
    REASON = "reason"
    ASK_USER = "ask_user"
    RESPOND = "respond"


class StepStatus(StrEnum):
    """The states of a plan step."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"  # replaced before it was reached


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanStep:
    """A step of a plan. ``id`` is unique within the execution.

    ``started_at`` and ``ended_at`` are ISO times, empty before. ``answer`` is the text of a respond step, if it was
    known when the plan was made. ``consented``: the person said yes to the version of the tool in ``consent``.
    """

    id: str = ""
    type: StepType
    title: str = ""
    tool: str = ""
    arguments: JSON = field(default_factory=dict)
    instruction: str = ""
    answer: str = ""
    question: str = ""
    confirm: bool = False
    consent: str = ""
    consented: bool = False
    status: StepStatus = StepStatus.PENDING
    started_at: str = ""
    ended_at: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlanStep:
        """Read what ``Execution.to_json`` wrote."""
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in data.items() if name in known}
        return cls(**given | {"type": StepType(data["type"]), "status": StepStatus(data["status"])})

    def begun(self) -> PlanStep:
        """Return the step as running, since now unless it was begun before."""
        return replace(self, status=StepStatus.RUNNING, started_at=self.started_at or _now())

    def ended(self, status: StepStatus) -> PlanStep:
        """Return the step in a final status, ended now."""
        return replace(self, status=status, ended_at=_now())

    def to_json(self) -> JSON:
        """Return all fields by name."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """A piece of what the execution knows.

    ``kind``: tool, error, reasoning, question, reply, message, update, note or live:NAME.
    """

    kind: str
    text: str
    step: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """The planner's state, stored after each step.

    ``request`` is what the person wrote, ``goal`` the planner's summary of it. ``plans`` counts the plans made,
    ``iterations`` the steps taken since the last message of a person. ``question`` is the last question asked, and
    ``question_id`` its id; an execution may ask several. ``asks`` are the calls that a yes to it allows, stored with
    the question. ``catalogue`` is the version of the tools that the plan was made for. ``revise`` says why the
    rest of the plan must be revised before its next step. ``heard`` counts the injected messages read in this turn.
    ``origin`` says what started the execution, if not a person. ``has_read``: a turn of it has read text from outside.
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
    question_id: str = ""
    asks: tuple[JSON, ...] = ()
    reply: str = ""
    final_answer: str = ""
    last_error: str = ""
    catalogue: str = ""
    revise: str = ""
    heard: int = 0
    origin: str = ""
    has_read: bool = False

    def to(self, status: Status, **changes: Any) -> Execution:
        """Return the execution in another state, or at work in the same one. Raises BadTransition."""
        stays = status is self.status and status in AT_WORK
        if not stays and status not in ARROWS[self.status]:
            raise BadTransition(f"an execution cannot change from {self.status} to {status}")
        after = replace(self, status=status, **changes)
        return replace(after, steps=tuple(map(_ended, after.steps))) if status in ENDED else after

    def next_step(self) -> PlanStep | None:
        """Return the first unfinished step."""
        ahead = (StepStatus.PENDING, StepStatus.RUNNING)
        return next((step for step in self.steps if step.status in ahead), None)

    def with_step(self, step: PlanStep) -> tuple[PlanStep, ...]:
        """Return the steps with this one in place of the one with its id."""
        return tuple(step if each.id == step.id else each for each in self.steps)

    def with_plan(self, steps: Iterable[PlanStep]) -> Execution:
        """Return the execution with new steps. Finished steps stay, unfinished ones are dropped."""
        number = self.plans + 1
        behind = tuple(
            replace(each, status=StepStatus.DROPPED)
            if each.status in (StepStatus.PENDING, StepStatus.RUNNING)
            else each
            for each in self.steps
        )
        ahead = tuple(replace(step, id=f"{number}.{n}") for n, step in enumerate(steps, start=1))
        return replace(self, plans=number, steps=behind + ahead, current_step="")

    def with_updates(self, text: str) -> Execution:
        """Return the execution with these background updates in place of earlier ones."""
        return self._without_updates().with_observations(Observation(kind="update", text=text))

    def with_updates_told(self) -> Execution:
        """Return the execution after its answer told the person of the updates: they become notes."""
        told = [each for each in self.observations if each.kind == "update"]
        notes = (Observation(kind="note", text=f"The person was told:\n{each.text}") for each in told)
        return self._without_updates().with_observations(*notes) if told else self

    def _without_updates(self) -> Execution:
        return replace(self, observations=tuple(each for each in self.observations if each.kind != "update"))

    def with_observations(self, *observations: Observation) -> Execution:
        """Return the execution with further observations, cut to length. Live state replaces that of the same kind."""
        kept = list(self.observations)
        for each in observations:
            if each.kind.startswith("live:"):
                kept = [old for old in kept if old.kind != each.kind]
            kept.append(_bounded(each))
        while sum(each.kind in FINDINGS for each in kept) > MOST_FINDINGS:
            kept.remove(next(each for each in kept if each.kind in FINDINGS))
        return replace(self, observations=tuple(kept))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsentRequest:
    """The server's question for consent, as it stands in the last entry. ``execution``: the id of the one that waits.

    ``calls`` are the calls that a yes allows, as ``agent_core.turn.consent.call_to_json`` writes them.
    """

    id: str
    text: str
    calls: tuple[JSON, ...]
    execution: str = ""


def _bounded(observation: Observation) -> Observation:
    if observation.kind not in FINDINGS or len(observation.text) <= LONGEST_FINDING:
        return observation
    return replace(observation, text=observation.text[:LONGEST_FINDING] + CUT)


def _ended(step: PlanStep) -> PlanStep:
    """The step in an execution that has ended: a pending one is dropped, a running one has failed."""
    ended = {StepStatus.PENDING: StepStatus.DROPPED, StepStatus.RUNNING: StepStatus.FAILED}
    return replace(step, status=ended.get(step.status, step.status))
