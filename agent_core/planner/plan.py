"""The forms that the planning model fills in, and their validation with errors for the model.

Common mistakes with a clear meaning are accepted: JSON in a string, an overlong text, a word in capitals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from agent_core.exceptions import AgentCoreError
from agent_core.execution import PlanStep, StepType
from agent_core.llm.protocol import ModelReply
from agent_core.text.json_values import clean_value
from agent_core.tool_spec import ToolSpec
from agent_core.tools.schema import fit_arguments

LONGEST_LINE: Final = 300  # characters
LONGEST_TEXT: Final = 4000
LONGEST_ANSWER: Final = 20_000
_CUT = "…"

T = TypeVar("T")


def _text(value: Any) -> Any:
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False)
    return value


def _cut(longest: int) -> BeforeValidator:
    def cut(value: Any) -> Any:
        text = _text(value)
        too_long = isinstance(text, str) and len(text) > longest
        return text[: longest - len(_CUT)] + _CUT if too_long else text

    return BeforeValidator(cut)


def _whole(value: Any) -> Any:
    """Drop an answer that is too long instead of cutting it. The model is then asked for the answer again."""
    text = _text(value)
    return "" if isinstance(text, str) and len(text) > LONGEST_ANSWER else text


def parsed(value: Any) -> Any:
    """Return the value of a JSON string; other values as they are."""
    if not isinstance(value, str):
        return value
    try:
        return clean_value(json.loads(value))
    except (ValueError, RecursionError):  # not JSON, or a value that cannot be stored
        return value


def _items(value: Any) -> Any:
    """A list. A single object becomes a list of one."""
    read = parsed(value)
    items = [read] if isinstance(read, dict) else read
    return [parsed(item) for item in items] if isinstance(items, list) else items


def _object(value: Any) -> Any:
    read = parsed(value)
    return {} if read in (None, "", []) else read


Line = Annotated[str, _cut(LONGEST_LINE), Field(max_length=LONGEST_LINE)]
Text = Annotated[str, _cut(LONGEST_TEXT), Field(max_length=LONGEST_TEXT)]
Whole = Annotated[str, BeforeValidator(_whole), Field(max_length=LONGEST_ANSWER)]
Object = Annotated[dict[str, Any], BeforeValidator(_object)]
Items = Annotated[tuple[T, ...], BeforeValidator(_items)]
Choice = Annotated[
    T, BeforeValidator(lambda value: value.strip().lower() if isinstance(value, str) else value)
]


MOST_STEPS: Final = 8
_LONGEST_READ = 50_000
_MOST_FAULTS = 3
_ANSWER = (
    "respond: the whole answer, word for word as the person reads it, if all that it needs is known now; then no"
    " further model call is made. Else leave it out and give an instruction"
)


class InvalidPlan(AgentCoreError):
    """The model's answer is not valid. The message tells the model what is wrong with it."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _unwrap(cls, given: Any) -> Any:
        return _filled_fields(given)


class PlannedStep(_Form):
    """One step of a plan."""

    type: Choice[StepType] = Field(
        description="tool: call one tool; reason: think; ask_user: ask the person and wait;"
        " respond: give the final answer"
    )
    title: Line = Field(default="", description="what the step does, in a few words a person understands")
    tool: Line = Field(default="", description="tool: its name")
    arguments: Object = Field(default_factory=dict, description="tool: its arguments")
    instruction: Text = Field(default="", description="reason, respond: what to think about or to say")
    answer: Whole = Field(default="", description=_ANSWER)
    question: Text = Field(default="", description="ask_user: the exact question")
    confirm: bool = Field(default=False, description="ask_user: the question is answered by yes or no")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> PlannedStep:
        if self.type is StepType.TOOL and not self.tool.strip():
            raise ValueError("a tool step names its tool")
        if self.type is StepType.ASK_USER and not self.question.strip():
            raise ValueError("an ask_user step has a question")
        return self


class Plan(_Form):
    """A plan of 1 to 8 steps."""

    goal: Text = Field(default="", description="what the person wants, in one sentence")
    steps: Items[PlannedStep] = Field(min_length=1, max_length=MOST_STEPS)


class Revision(_Form):
    """What becomes of the rest of a plan after a step."""

    action: Choice[Literal["continue", "replace_remaining", "ask_user", "finish"]]
    steps: Items[PlannedStep] = Field(
        default=(), max_length=MOST_STEPS, description="replace_remaining: the steps that remain"
    )
    question: Text = Field(default="", description="ask_user: the exact question")
    confirm: bool = Field(default=False, description="ask_user: the question is answered by yes or no")
    instruction: Text = Field(default="", description="finish: what the answer must say")
    answer: Whole = Field(default="", description=_ANSWER.replace("respond:", "finish:"))

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Revision:
        if self.action == "replace_remaining" and not self.steps:
            raise ValueError("replace_remaining needs steps")
        if self.action == "ask_user" and not self.question.strip():
            raise ValueError("ask_user needs a question")
        return self


def steps_of(planned: Iterable[PlannedStep], specs: Mapping[str, ToolSpec]) -> tuple[PlanStep, ...]:
    """Return the steps as an execution stores them. ``specs`` are the tools, to whose schemas arguments are fitted."""
    steps = (PlanStep(**dict(step)) for step in planned)
    return tuple(
        replace(step, arguments=fit_arguments(step.arguments, specs[step.tool]))
        if step.tool in specs
        else step
        for step in steps
    )


Answer = TypeVar("Answer", Plan, Revision)


def form_of(name: str, description: str, answer: type[BaseModel]) -> ToolSpec:
    """Return the form as a tool, whose arguments are the model's answer."""
    return ToolSpec(name=name, description=description, parameters=answer.model_json_schema())


def read_plan(reply: ModelReply, form: str, answer: type[Answer], tools: Collection[str]) -> Answer:
    """Read the filled-in form, or else a JSON object in the text. Raises InvalidPlan."""
    found = next(_candidates(reply, form, tools), None)
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


def _candidates(reply: ModelReply, form: str, tools: Collection[str]) -> Iterator[dict[str, Any]]:
    for call in reply.calls:
        if call.name == form and call.unparsed is None:
            yield call.arguments
    # some servers do not enforce the form: tool calls are then the next steps
    wanted = [call for call in reply.calls if call.name in tools and call.unparsed is None]
    if wanted:
        steps = [{"type": "tool", "tool": call.name, "arguments": call.arguments} for call in wanted]
        yield {"action": "replace_remaining", "steps": steps}
    decoder = json.JSONDecoder()
    text = reply.text[:_LONGEST_READ]
    brace = re.search(r"\{", text)  # of the outermost object
    if brace is None:
        return
    try:
        found, _ = decoder.raw_decode(text, brace.start())
        yield clean_value(found)
    except (ValueError, RecursionError):
        return  # not JSON, or a value that cannot be stored


def _filled_fields(form: Any) -> Any:
    """The form without nulls, which mean omitted fields, and without an object around it, which some models add."""
    form = parsed(form)
    if not isinstance(form, dict):
        return form
    inner = parsed(next(iter(form.values()))) if len(form) == 1 else None
    if isinstance(inner, dict) and inner.keys() & {"steps", "action"}:
        form = inner
    return {name: value for name, value in form.items() if value is not None}


def _faults(error: ValidationError) -> str:
    """The errors as text for the model, without its own input."""
    faults = [
        f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}"
        for each in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return "; ".join(faults[:_MOST_FAULTS])
