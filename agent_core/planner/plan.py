"""What the planning model answers with: validated structured output, or a reason why it is none."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agent_core.exceptions import AgentCoreError
from agent_core.execution import PlanStep, StepType
from agent_core.models import ModelReply, clean_value
from agent_core.types import ToolSpec

MOST_STEPS: Final = 8
_LONGEST_READ = 50_000
_MOST_FAULTS = 3

Line = Annotated[str, Field(max_length=300)]
Text = Annotated[str, Field(max_length=4000)]


class InvalidPlan(AgentCoreError):
    """The model's answer is no plan; the message says what is wrong with it, for the model."""


class PlannedStep(BaseModel):
    """One step of a plan."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: StepType = Field(
        description="tool: call one tool; reason: think; ask_user: ask the person and wait;"
        " respond: give the final answer"
    )
    title: Line = Field(default="", description="what the step does, in a few words a person understands")
    tool: Line = Field(default="", description="tool: its name")
    arguments: dict[str, Any] = Field(default_factory=dict, description="tool: its arguments")
    instruction: Text = Field(default="", description="reason, respond: what to think about or to say")
    question: Text = Field(default="", description="ask_user: the exact question")
    confirm: bool = Field(default=False, description="ask_user: the question is answered by yes or no")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> PlannedStep:
        if self.type is StepType.TOOL and not self.tool.strip():
            raise ValueError("a tool step names its tool")
        if self.type is StepType.ASK_USER and not self.question.strip():
            raise ValueError("an ask_user step has a question")
        return self


class Plan(BaseModel):
    """A plan of 1 to 8 steps."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    goal: Text = Field(default="", description="what the person wants, in one sentence")
    steps: tuple[PlannedStep, ...] = Field(min_length=1, max_length=MOST_STEPS)


class Revision(BaseModel):
    """What becomes of the rest of a plan after a step."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    action: Literal["continue", "replace_remaining", "ask_user", "finish"]
    steps: tuple[PlannedStep, ...] = Field(
        default=(), max_length=MOST_STEPS, description="replace_remaining: the steps that remain"
    )
    question: Text = Field(default="", description="ask_user: the exact question")
    confirm: bool = Field(default=False, description="ask_user: the question is answered by yes or no")
    instruction: Text = Field(default="", description="finish: what the answer must say")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Revision:
        if self.action == "replace_remaining" and not self.steps:
            raise ValueError("replace_remaining needs steps")
        if self.action == "ask_user" and not self.question.strip():
            raise ValueError("ask_user needs a question")
        return self


def steps_of(planned: Iterable[PlannedStep]) -> tuple[PlanStep, ...]:
    """The steps as an execution keeps them."""
    return tuple(PlanStep(**dict(step)) for step in planned)


Answer = TypeVar("Answer", Plan, Revision)


def form_of(name: str, description: str, answer: type[BaseModel]) -> ToolSpec:
    """The form that the model fills in: a tool whose arguments are the answer."""
    return ToolSpec(name=name, description=description, parameters=answer.model_json_schema())


def read(reply: ModelReply, form: str, answer: type[Answer], tools: Collection[str]) -> Answer:
    """The form that was filled in, or a JSON object in the text. InvalidPlan says what is wrong with it."""
    found = next(_candidates(reply, form), None)
    if found is None:
        raise InvalidPlan(f"There is no JSON object in it. Call {form}.")
    try:
        read_as = answer.model_validate(found)
    except ValidationError as error:
        raise InvalidPlan(_faults(error)) from None
    wanted = {step.tool for step in read_as.steps if step.type is StepType.TOOL}
    unknown = sorted(wanted - set(tools))
    if unknown:
        raise InvalidPlan(f"There is no tool named {', '.join(unknown)}.")
    return read_as


def _candidates(reply: ModelReply, form: str) -> Iterator[dict[str, Any]]:
    for call in reply.calls:
        if call.name == form and call.unparsed is None:
            yield call.arguments
    decoder = json.JSONDecoder()
    text = reply.text[:_LONGEST_READ]
    brace = re.search(r"\{", text)  # the outermost object; a plan is one
    if brace is None:
        return
    try:
        found, _ = decoder.raw_decode(text, brace.start())
        yield clean_value(found)
    except (ValueError, RecursionError):
        return  # no JSON, or what no database can hold


def _faults(error: ValidationError) -> str:
    """In words for the model, without what it wrote."""
    faults = [
        f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}"
        for each in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return "; ".join(faults[:_MOST_FAULTS])
