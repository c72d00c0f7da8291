"""The offline model plays a planner well enough for a first look at one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_core.models import ModelCall
from agent_core.offline import reply_to
from agent_core.planner import plan, texts
from agent_core.planner.asking import MAKE_PLAN, REVISE_PLAN
from agent_core.planner.texts import Resume
from agent_core.types import Entry, Role, ToolSpec
from tests.planner.plans import fresh

CRON = ToolSpec(
    name="cron", description="Automations.", parameters={"type": "object", "properties": {"action": {}}}
)
REQUEST = "First list my automations, then ask me which colour, then tell me both."


def planned(request: str, resume: Resume | None = None) -> list[dict[str, object]]:
    message = texts.plan_message(fresh(request), tools=(CRON,), memory="", resume=resume)
    call = ModelCall(system_prompt="s", entries=(Entry(role=Role.USER, content=message),), tools=(MAKE_PLAN,))
    found = plan.read(reply_to(call), "make_plan", plan.Plan, {"cron"})
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
    execution = fresh().planned(plan.steps_of([plan.PlannedStep(type="respond")]))  # type: ignore[arg-type]
    message = texts.revise_message(execution, tools=(CRON,))
    call = ModelCall(
        system_prompt="s", entries=(Entry(role=Role.USER, content=message),), tools=(REVISE_PLAN,)
    )
    assert plan.read(reply_to(call), "revise_plan", plan.Revision, ()).action == "continue"
    done = texts.revise_message(fresh(), tools=(CRON,))
    call = ModelCall(system_prompt="s", entries=(Entry(role=Role.USER, content=done),), tools=(REVISE_PLAN,))
    assert plan.read(reply_to(call), "revise_plan", plan.Revision, ()).action == "finish"


def test_it_keeps_facts_of_a_long_conversation() -> None:
    from agent_core import memory, prompts

    shown = (
        "<held>\nGoal: paint\nOpen: buy a brush\nFact: your name is Ada\n</held>\n"
        "<messages>\nuser: My favourite colour is blue.\n</messages>"
    )
    prompt = prompts.render("memory.compress", {"most": memory.MOST_ITEMS}).text
    call = ModelCall(system_prompt=prompt, entries=(Entry(role=Role.USER, content=shown),))
    assert memory.read(reply_to(call).text) == memory.Held(
        current_goal="paint",
        open_loops=("buy a brush",),
        important_facts=("your name is Ada", "your favourite colour is blue"),
    )


@pytest.mark.parametrize("text", ["Your plan is done: what now?", "You work off a plan, do you?"])
def test_a_person_may_speak_as_the_planner_does(text: str) -> None:
    call = ModelCall(system_prompt="s", entries=(Entry(role=Role.USER, content=text),), tools=(CRON,))
    for each in (call, replace(call, tools=())):
        assert reply_to(each).text


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
    assert reply_to(call).text
