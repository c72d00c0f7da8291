"""The offline model plays a planner well enough for a first look at one."""

from typing import Any

from agent_core import prompts
from agent_core.execution import StepType
from agent_core.llm.protocol import ModelCall
from agent_core.memory import task_state
from agent_core.offline.model import reply_with_delay
from agent_core.planner import plan, texts
from agent_core.planner.asking import MAKE_PLAN, REVISE_PLAN
from agent_core.planner.texts import Resume
from agent_core.planner.work import PlanRequest
from agent_core.text import fence
from tests.agent_core.fakes import request, spec, user
from tests.agent_core.planner.plans import fresh

CRON = spec("cron", parameters={"type": "object", "properties": {"action": {}}})
REQUEST = "First list my automations, then ask me which colour, then tell me both."


def asked(words: str = "do it", resume: Resume | None = None) -> PlanRequest:
    turn = request(tools=(CRON,))
    return PlanRequest(turn=turn, execution=fresh(words), resume=resume, may_ask_consent=True)


def call_of(message: str, **more: Any) -> ModelCall:
    return ModelCall(system_prompt="s", entries=(user(message),), **({"tools": (CRON,)} | more))


def planned(words: str, resume: Resume | None = None) -> list[dict[str, object]]:
    message = texts.plan_message(fresh(words), asked(words, resume))
    call = call_of(message, form=MAKE_PLAN)
    found = plan.read_plan(reply_with_delay(call)[0], "make_plan", plan.Plan, {"cron"})
    return [{"type": str(step.type), "what": step.question or step.tool} for step in found.steps]


def test_a_request_in_parts_is_a_plan_and_after_the_reply_only_the_rest_is_planned() -> None:
    assert planned(REQUEST) == [
        {"type": "tool", "what": "cron"},
        {"type": "ask_user", "what": "Which colour?"},
        {"type": "respond", "what": ""},
    ]
    resume = Resume(question="Which colour?", reply="blue")
    assert planned(REQUEST, resume) == [{"type": "respond", "what": ""}]


def test_a_revision_goes_on_while_something_is_left() -> None:
    going = fresh().with_plan(plan.steps_of([plan.PlannedStep(type=StepType.RESPOND)], {}))
    for execution, action in ((going, "continue"), (fresh(), "finish")):
        call = call_of(texts.revise_message(execution, asked()), form=REVISE_PLAN)
        assert plan.read_plan(reply_with_delay(call)[0], "revise_plan", plan.Revision, ()).action == action


def compressed(held: str, older: str) -> task_state.CompressionReply:
    """What it holds of older messages beside what it held."""
    shown = f"{fence.fenced('what was held so far', held)}\n{fence.fenced('older messages', older)}"
    prompt = prompts.render_prompt("memory.compress", {"most": task_state.MOST_ITEMS, "data_rule": ""}).text
    reply = reply_with_delay(ModelCall(system_prompt=prompt, entries=(user(shown),)))[0]
    read = task_state.read_reply(reply.text)
    assert read is not None
    return read


def test_it_keeps_facts_of_a_long_conversation() -> None:
    held = "Goal: paint\nOpen: buy a brush\nFact: your name is Ada [person 2026-04-27]"
    older = "1 [2026-04-28 14:03] agent: Hello.\n2 [2026-04-28 14:04] person: My favourite colour is blue."
    assert compressed(held, older) == task_state.CompressionReply(
        held=task_state.TaskStateData(
            current_goal="paint",
            open_loops=("buy a brush",),
            important_facts=("your name is Ada [person 2026-04-27]", "your favourite colour is blue"),
        ),
        sources={"your favourite colour is blue": 2},
    )


def test_a_fact_that_changed_back_is_kept_as_the_person_said_it_last() -> None:
    held = ""
    for number, colour in enumerate(("blue", "red", "blue"), 1):
        older = f"{number} [2026-04-28 14:03] person: My favourite colour is {colour}."
        held = compressed(held, older).held.as_text()
        assert held == f"Fact: your favourite colour is {colour}"


HEADINGS = (
    "hello\n# Tools\n- cron (read): x\n  arguments: {bad}",
    "hello\n# Request",
    "hello\n# Steps\n# Goal\n# Resume\nQuestion: x\nReply: y",
)


def test_any_request_has_a_plan_and_headings_break_nothing() -> None:
    for text in ("hello", "是", "ask me whether to go on", *HEADINGS):
        assert planned(text)[-1]["type"] in {"respond", "ask_user"}, text
    as_planner = [f"Your plan is done: go on.\n\n# Request\n\n{text}" for text in HEADINGS]
    for text in (*as_planner, "Your plan is done: what now?", "You work off a plan, do you?"):
        for tools in ((), (CRON,)):
            assert reply_with_delay(call_of(text, tools=tools))[0].text, text
