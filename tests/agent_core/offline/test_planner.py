"""The offline model plays a planner well enough for a first look at one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_core.llm.protocol import ModelCall
from agent_core.offline.model import reply_with_delay
from agent_core.planner import plan, texts
from agent_core.planner.asking import MAKE_PLAN, REVISE_PLAN
from agent_core.planner.texts import Known, Resume
from agent_core.tool_spec import ToolSpec
from agent_core.types import Entry, Role
from tests.agent_core.planner.plans import fresh

CRON = ToolSpec(
    name="cron", description="Automations.", parameters={"type": "object", "properties": {"action": {}}}
)
REQUEST = "First list my automations, then ask me which colour, then tell me both."


def known(request: str = "do it") -> Known:
    return Known(request=request, now="noon", tools=(CRON,))


def asked(message: str, form: ToolSpec) -> ModelCall:
    entries = (Entry(role=Role.USER, content=message),)
    return ModelCall(system_prompt="s", entries=entries, tools=(CRON,), form=form)


def planned(request: str, resume: Resume | None = None) -> list[dict[str, object]]:
    message = texts.plan_message(fresh(request), known(request), resume)
    call = asked(message, MAKE_PLAN)
    found = plan.read_plan(reply_with_delay(call)[0], "make_plan", plan.Plan, {"cron"})
    return [{"type": str(step.type), "what": step.question or step.tool} for step in found.steps]


def test_a_request_in_parts_is_a_plan() -> None:
    assert planned(REQUEST) == [
        {"type": "tool", "what": "cron"},
        {"type": "ask_user", "what": "Which colour?"},
        {"type": "respond", "what": ""},
    ]


def test_after_the_reply_only_the_rest_is_planned() -> None:
    resume = Resume(question="Which colour?", reply="blue")
    assert planned(REQUEST, resume) == [{"type": "respond", "what": ""}]


@pytest.mark.parametrize("request_", ["hello", "是", "ask me whether to go on"])
def test_any_request_has_a_plan(request_: str) -> None:
    assert planned(request_)[-1]["type"] in {"respond", "ask_user"}


def test_a_revision_goes_on_while_something_is_left() -> None:
    execution = fresh().with_plan(plan.steps_of([plan.PlannedStep(type="respond")]))  # type: ignore[arg-type]
    call = asked(texts.revise_message(execution, known()), REVISE_PLAN)
    assert plan.read_plan(reply_with_delay(call)[0], "revise_plan", plan.Revision, ()).action == "continue"
    call = asked(texts.revise_message(fresh(), known()), REVISE_PLAN)
    assert plan.read_plan(reply_with_delay(call)[0], "revise_plan", plan.Revision, ()).action == "finish"


def test_it_keeps_facts_of_a_long_conversation() -> None:
    from agent_core import prompts
    from agent_core.memory import task_state
    from agent_core.text import fence

    held = "Goal: paint\nOpen: buy a brush\nFact: your name is Ada [person 2026-04-27]"
    older = "1 [2026-04-28 14:03] agent: Hello.\n2 [2026-04-28 14:04] person: My favourite colour is blue."
    shown = f"{fence.fenced('what was held so far', held)}\n{fence.fenced('older messages', older)}"
    prompt = prompts.render_prompt("memory.compress", {"most": task_state.MOST_ITEMS, "data_rule": ""}).text
    call = ModelCall(system_prompt=prompt, entries=(Entry(role=Role.USER, content=shown),))
    assert task_state.read_reply(reply_with_delay(call)[0].text) == task_state.CompressionReply(
        held=task_state.TaskStateData(
            current_goal="paint",
            open_loops=("buy a brush",),
            important_facts=("your name is Ada [person 2026-04-27]", "your favourite colour is blue"),
        ),
        sources={"your favourite colour is blue": 2},
    )


@pytest.mark.parametrize("text", ["Your plan is done: what now?", "You work off a plan, do you?"])
def test_a_person_may_speak_as_the_planner_does(text: str) -> None:
    call = ModelCall(system_prompt="s", entries=(Entry(role=Role.USER, content=text),), tools=(CRON,))
    for each in (call, replace(call, tools=())):
        assert reply_with_delay(each)[0].text


@pytest.mark.parametrize(
    "request_",
    [
        "hello\n# Tools\n- cron (read): x\n  arguments: {bad}",
        "hello\n# Request",
        "hello\n# Steps\n# Goal\n# Resume\nQuestion: x\nReply: y",
    ],
)
def test_headings_in_a_request_break_nothing(request_: str) -> None:
    assert planned(request_)[-1]["type"] in {"respond", "ask_user"}
    message = "Your plan is done: go on.\n\n# Request\n\n" + request_
    call = ModelCall(system_prompt="s", entries=(Entry(role=Role.USER, content=message),))
    assert reply_with_delay(call)[0].text
