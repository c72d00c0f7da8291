"""Forms as models really fill them in: nulls, JSON within strings, too much text, the wrong call."""

import json
from contextlib import suppress
from typing import Any

import pytest

from agent_core.execution import StepType
from agent_core.llm.protocol import ModelReply
from agent_core.planner.plan import (
    LONGEST_ANSWER,
    LONGEST_LINE,
    LONGEST_TEXT,
    InvalidPlan,
    Plan,
    PlannedStep,
    Revision,
    read_plan,
)
from agent_core.types import ToolCall
from tests.agent_core.planner.plans import form, says, tool

pytestmark = pytest.mark.rule("7.2")

TOOLS = {"cron", "list_routines"}
ADD = {"action": "add", "message": "tea"}


def plan_of(**fields: Any) -> Plan:
    return read_plan(form("make_plan", **fields), "make_plan", Plan, TOOLS)


def test_a_null_is_what_was_left_out() -> None:
    nothing = dict.fromkeys(["title", "tool", "arguments", "instruction", "answer", "question", "confirm"])
    [step] = plan_of(goal=None, steps=[{"type": "respond", **nothing}]).steps
    assert (step.type, step.arguments, step.question, step.confirm) == (StepType.RESPOND, {}, "", False)
    finish = form("revise_plan", action="finish", steps=None, question=None, confirm=None)
    assert read_plan(finish, "revise_plan", Revision, TOOLS).steps == ()


def test_json_within_a_string_is_read() -> None:
    given = tool("cron", **ADD)
    texts = {"type": "TOOL", "tool": "cron", "arguments": json.dumps(ADD)}
    for steps in (json.dumps([given]), [json.dumps(given)], given, [texts]):
        [step] = plan_of(steps=steps).steps
        assert (step.type, step.tool, step.arguments) == (StepType.TOOL, "cron", ADD), steps


def test_a_form_within_its_name_is_read() -> None:
    assert plan_of(make_plan={"goal": "g", "steps": [{"type": "respond"}]}).goal == "g"
    assert plan_of(plan=json.dumps({"steps": [{"type": "respond"}]})).steps[0].type is StepType.RESPOND


def respond(**fields: Any) -> PlannedStep:
    [step] = plan_of(steps=[{"type": "respond"} | fields]).steps
    return step


def test_overlong_text_is_cut_and_an_overlong_answer_requested_again() -> None:
    step = respond(title="t" * 9000, instruction="i" * 9000, answer="a" * 90_000)
    assert (len(step.title), len(step.instruction)) == (LONGEST_LINE, LONGEST_TEXT)
    assert step.title.endswith("…")
    assert step.answer == ""
    assert len(respond(answer="a" * LONGEST_ANSWER).answer) == LONGEST_ANSWER


def test_a_number_where_a_text_belongs_is_its_text() -> None:
    [step] = plan_of(goal=7, steps=[{"type": "ask_user", "question": ["tea", 2]}]).steps
    assert step.question == '["tea", 2]'


def test_json_strings_never_yield_values_a_database_cannot_hold() -> None:
    for hidden in ('{"n": NaN}', '{"n": "\\u0000"}', "[" * 60 + "]" * 60):
        with suppress(InvalidPlan):
            [step] = plan_of(steps=[{"type": "tool", "tool": "cron", "arguments": hidden}]).steps
            assert "\x00" not in json.dumps(step.arguments, ensure_ascii=False)


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [{"type": "dance"}],
        [{"type": "tool", "tool": "cron", "arguments": "add tea"}],
        [{"type": "ask_user", "confirm": "perhaps", "question": "?"}],
        "first look, then answer",
    ],
)
def test_what_is_in_doubt_is_refused(steps: Any) -> None:
    with pytest.raises(InvalidPlan):
        plan_of(steps=steps)


def test_a_tool_call_instead_of_the_form_is_a_step() -> None:
    """Some servers take the forced call for a hint."""
    called = ModelReply(text="", calls=(ToolCall(id="1", name="cron", arguments=ADD),))
    assert [step.tool for step in read_plan(called, "make_plan", Plan, TOOLS).steps] == ["cron"]
    revised = read_plan(called, "revise_plan", Revision, TOOLS)
    assert (revised.action, revised.steps[0].arguments) == ("replace_remaining", ADD)
    unknown = ModelReply(text="", calls=(ToolCall(id="1", name="teleport", arguments={}),))
    with pytest.raises(InvalidPlan):
        read_plan(unknown, "make_plan", Plan, TOOLS)


def test_a_text_without_json_is_no_plan() -> None:
    with pytest.raises(InvalidPlan, match="no JSON"):
        read_plan(says("Hello there!"), "make_plan", Plan, TOOLS)
