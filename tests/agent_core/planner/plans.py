"""Plans as a model gives them, a model that gives them in order, and ports in memory."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_core import models
from agent_core.execution import Execution, Observation
from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.planner.run import run_plan
from agent_core.planner.texts import Resume
from agent_core.planner.work import PlanRequest
from agent_core.tool_spec import Effect, ToolSpec
from agent_core.turn.control import TurnControl
from agent_core.types import StepKind, ToolCall, TurnEvent, TurnResult, Usage
from tests.agent_core.fakes import TOOLS, Ports, played, request, spec

Reply = ModelReply | Exception


def form(name: str, **fields: Any) -> ModelReply:
    """A form that was filled in."""
    return ModelReply(text="", calls=(ToolCall(id="f", name=name, arguments=fields),))


def plan(*steps: dict[str, Any], goal: str = "serve") -> ModelReply:
    return form("make_plan", goal=goal, steps=list(steps))


def revision(action: str, *steps: dict[str, Any], **more: Any) -> ModelReply:
    return form("revise_plan", action=action, steps=list(steps), **more)


def tool(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool", "title": f"use {name}", "tool": name, "arguments": arguments}


def ask(question: str, *, confirm: bool = False) -> dict[str, Any]:
    return {"type": "ask_user", "title": "ask", "question": question, "confirm": confirm}


def answers(text: str) -> ModelReply:
    """A plan that is its answer."""
    return plan({"type": "respond", "title": "answer", "answer": text})


WRITES = tuple(replace(each, effect=Effect.WRITE) if each.name == "write" else each for each in TOOLS)
ERASE = spec("erase", description="Erases.", effect=Effect.DANGEROUS)
DANGEROUS = (*TOOLS, ERASE)
REASON: dict[str, Any] = {"type": "reason", "title": "think", "instruction": "think about it"}
RESPOND: dict[str, Any] = {"type": "respond", "title": "answer", "instruction": "say what was found"}


def says(text: str) -> ModelReply:
    return ModelReply(text=text)


@dataclass
class PlannerModel:
    """Gives one reply after the other, whatever it is asked."""

    replies: Sequence[Reply]
    calls: list[ModelCall] = field(default_factory=list)

    async def stream(self, call: ModelCall) -> AsyncIterator[str | ModelReply]:
        self.calls.append(call)
        reply = self.replies[len(self.calls) - 1]
        if isinstance(reply, Exception):
            raise reply
        if reply.text:
            yield reply.text
        yield reply

    def prompt(self, number: int) -> str:
        """The last thing that was said in the request with this number."""
        return self.calls[number].entries[-1].content


@dataclass
class FormModel(PlannerModel):
    """Gives each form its reply, and a text where there is none."""

    text: str = "done"

    async def stream(self, call: ModelCall) -> AsyncIterator[str | ModelReply]:
        self.calls.append(call)
        forms = {reply.calls[0].name: reply for reply in self.replies if isinstance(reply, ModelReply)}
        yield forms[call.form.name] if call.form else says(self.text)


@dataclass
class MemoryPorts(Ports):
    """Ports with an execution in memory."""

    execution: Execution | None = None
    events: list[TurnEvent] = field(default_factory=list)
    snapshots: Callable[[str], str] = lambda name: f"{name} now"

    def saved(self, execution: Execution, event: TurnEvent, usage: Usage) -> None:
        data = {"status": execution.status, "step": execution.current_step, "usage": usage.to_json()}
        self._write(StepKind.CHECKPOINT, data)
        self.execution = execution
        self.events.append(event)

    def told(self, event: TurnEvent) -> None:
        self.events.append(event)

    def is_restricted(self, effect: Effect) -> bool:
        return effect is Effect.DANGEROUS

    def live(self, names: tuple[str, ...]) -> tuple[Observation, ...]:
        return tuple(Observation(kind=f"live:{name}", text=self.snapshots(name)) for name in names)


@dataclass
class Planned:
    """A planned turn that was run to its end."""

    result: TurnResult
    events: list[TurnEvent]
    model: PlannerModel
    ports: MemoryPorts

    @property
    def execution(self) -> Execution:
        assert self.result.execution is not None
        return self.result.execution

    def statuses(self) -> list[str]:
        """The states of its steps."""
        return [str(step.status) for step in self.execution.steps]

    def said(self) -> list[str]:
        """What was streamed."""
        return [event.content["text"] for event in self.events if event.type == "llm_delta"]

    def told(self) -> list[str]:
        """The types of its events, deltas left out."""
        return [str(event.type) for event in self.events if event.type != "llm_delta"]


def fresh(words: str = "do it") -> Execution:
    return Execution(id="abcd2345", request=words)


def drive(
    replies: Sequence[Reply],
    execution: Execution | None = None,
    *,
    ports: MemoryPorts | None = None,
    tools: tuple[ToolSpec, ...] = TOOLS,
    control: TurnControl | None = None,
    kind: type[PlannerModel] = PlannerModel,
    **more: Any,
) -> Planned:
    """Run a planned turn; its journal is what the ports hold."""
    ports, model = ports or MemoryPorts(), kind(replies)
    models.register("planner-model", lambda: model)
    steps: dict[str, Any] = {"steps": tuple(ports.steps), "attempt": 2 if ports.steps else 1}
    turn = request("do it", model="planner-model", tools=tools, **steps)
    asked = PlanRequest(turn=turn, execution=execution or fresh(), **({"may_ask_consent": True} | more))
    told, result = played(run_plan(asked, ports, control or TurnControl()))
    return Planned(result=result, events=told, model=model, ports=ports)


def reply(asked: Planned, text: str, *replies: Reply, **more: Any) -> Planned:
    """Run the turn of a person's reply to the question that an earlier turn asked."""
    resume = Resume(question=asked.execution.question, reply=text)
    return drive(replies, asked.execution, resume=resume, **more)
