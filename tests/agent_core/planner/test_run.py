"""A planned turn: from the request to a question or an answer, and what may go wrong on the way."""

from dataclasses import replace
from datetime import datetime
from itertools import product

import pytest

from agent_core.exceptions import ModelUnavailable
from agent_core.execution import ARROWS, BadTransition, Execution, Status
from agent_core.planner.run import MOST_ITERATIONS
from agent_core.types import Ending, Role, ToolCall
from tests.agent_core.fakes import TOOLS, Crash
from tests.agent_core.planner.plans import (
    DANGEROUS,
    ERASE,
    REASON,
    RESPOND,
    WRITES,
    FormModel,
    MemoryPorts,
    Planned,
    ask,
    drive,
    plan,
    reply,
    revision,
    says,
    tool,
)

pytestmark = pytest.mark.rule("7.1", "7.6")

GARBAGE = says("Sure! First I will look, then {not json")
DOWN = [ModelUnavailable("down")] * 3


def failed_with(done: Planned, code: str) -> bool:
    """Whether the turn and its execution failed visibly, and what was asked for is kept."""
    assert (done.result.ending, done.execution.status) == (Ending.FAILED, Status.FAILED)
    assert done.execution.request == "do it"
    return done.result.error_code == code


@pytest.mark.rule("7.2")
def test_a_plan_is_made_worked_off_and_answered() -> None:
    done = drive([plan(tool("read", n=1), REASON, RESPOND), says("It is one."), says("The answer is one.")])
    assert done.result.ending is Ending.SUCCEEDED
    assert done.result.reply == "The answer is one."
    assert done.execution.status is Status.COMPLETED
    assert done.statuses() == ["done"] * 3
    assert "read 1" in done.model.prompt(1)  # what the tool found is known when it thinks
    assert "It is one." in done.model.prompt(2)
    assert done.said() == ["The answer is one."], "only the answer is streamed"
    assert done.told() == [
        "planning",
        "plan",
        *("step_start", "tool_call", "tool_output", "step_complete"),
        *("step_start", "step_complete"),
        *("step_start", "done"),
    ]
    for step in done.execution.steps:
        assert step.started_at <= step.ended_at
        assert datetime.fromisoformat(step.started_at).tzinfo is not None


def test_a_plan_may_come_as_text() -> None:
    plain = '{"goal": "g", "steps": [{"type": "respond"}]}'
    for text in (plain, 'Here:\n```json\n{"steps": [{"type": "respond"}]}\n```'):
        assert drive([says(text), says("yes")]).result.reply == "yes"
    done = drive([says('{"steps": [{"type": "respond", "title": "a\\u0000b"}]}'), says("good")])
    assert done.execution.steps[0].title == "ab"


NOT_A_NUMBER = '{"steps": [{"type": "tool", "tool": "read", "arguments": {"n": NaN}}]}'
NO_PLANS = (  # and what the model is told of them
    (GARBAGE, "could not be read"),
    (plan(*[tool("read", n=n) for n in range(12)]), "8"),
    (plan(tool("teleport")), "teleport"),
    (says(NOT_A_NUMBER), "could not be read"),
    (says('{"steps": [1e999]}'), "could not be read"),
)


@pytest.mark.rule("7.2")
def test_what_is_no_plan_is_asked_again_with_the_reason() -> None:
    for bad, told in NO_PLANS:
        done = drive([bad, plan(RESPOND), says("good")])
        assert done.result.reply == "good"
        assert told in done.model.prompt(1)
        echo = done.model.calls[1].entries[-2].content
        assert (bad.text or bad.calls[0].name) in echo, "the model is shown what it said"


@pytest.mark.rule("7.2")
def test_garbage_twice_fails_visibly_and_keeps_the_state() -> None:
    assert failed_with(drive([GARBAGE, GARBAGE]), "invalid_plan")
    done = drive([plan(tool("write", n=1), RESPOND), GARBAGE, GARBAGE], tools=WRITES)
    assert failed_with(done, "invalid_plan")
    assert done.statuses() == ["done", "dropped"]
    assert "write 1" in done.execution.observations[-1].text
    assert "could not be read" in done.model.prompt(2)
    assert failed_with(drive(DOWN), "model_unavailable")


@pytest.mark.rule("7.2")
def test_a_tool_error_is_observed_and_triggers_a_plan_revision() -> None:
    second = revision("replace_remaining", tool("read", n=2), RESPOND)
    done = drive([plan(tool("broken"), RESPOND), second, says("two")])
    assert done.result.reply == "two"
    assert "Broken: always" in done.model.prompt(1)
    assert done.statuses() == ["failed", "dropped", "done", "done"]


@pytest.mark.rule("7.2")
def test_a_tool_that_changes_something_triggers_a_plan_revision_and_one_that_reads_does_not() -> None:
    done = drive([plan(tool("write", n=1), RESPOND), revision("continue"), says("written")], tools=WRITES)
    assert done.result.reply == "written"
    assert "changed something" in done.model.prompt(1)
    assert "replan" not in drive([plan(tool("read"), RESPOND), says("read")]).told()


ENDLESS = [plan(tool("read", n=0)), *[revision("replace_remaining", REASON), says("hm")] * 5]
ENDLESS += [revision("replace_remaining", REASON)]


@pytest.mark.rule("7.2")
def test_endless_replanning_ends_with_an_answer_or_fails() -> None:
    done = drive([*ENDLESS, says("enough")])
    assert done.result.reply == "enough"
    assert done.execution.status is Status.COMPLETED
    assert done.execution.iterations == MOST_ITERATIONS
    assert failed_with(drive([*ENDLESS, says("")]), "no_answer")


def test_a_question_waits_and_planning_sees_its_exact_reply() -> None:
    asked = drive([plan(ask("Which colour?"), RESPOND)])
    assert asked.result.reply == "Which colour?"
    assert asked.execution.status is Status.WAITING_USER
    done = reply(asked, "  是, the deep one ", plan(RESPOND), says("deep"))
    assert "Question: Which colour?\nReply:   是, the deep one " in done.model.prompt(0)
    assert done.execution.status is Status.COMPLETED
    assert done.statuses() == ["done", "dropped", "done"]


@pytest.mark.rule("7.3", "7.4")
def test_a_planner_failure_on_reply_keeps_the_question() -> None:
    asked = drive([plan(ask("Which colour?"))])
    for replies in (DOWN, [GARBAGE, GARBAGE]):
        done = reply(asked, "blue", *replies)
        assert done.result.ending is Ending.FAILED
        assert done.result.execution is None
        assert done.ports.execution is None


@pytest.mark.rule("3.5")
def test_what_is_dangerous_waits_for_a_yes() -> None:
    sly = tool("erase", n=1) | {"title": "look at the weather"}
    asked = drive([plan(sly, RESPOND)], tools=DANGEROUS)
    assert asked.execution.status is Status.WAITING_CONFIRMATION
    assert asked.ports.ran == []
    assert asked.execution.question.splitlines()[2] == '    erase with {"n": 1}'
    assert f"#{asked.execution.question_id}" in asked.execution.question
    [call] = asked.execution.asks
    assert (call["id"], call["name"], call["arguments"]) == ("abcd2345.1.1", "erase", {"n": 1})
    done = reply(asked, "ok", revision("continue"), says("gone"), tools=DANGEROUS, consent=True)
    assert [call.name for call in done.ports.ran] == ["erase"]
    assert done.result.reply == "gone"


def test_a_no_is_heard() -> None:
    asked = drive([plan(tool("erase", n=1), RESPOND)], tools=DANGEROUS)
    heard = (revision("finish", instruction="say that it stays"), says("It stays."))
    done = reply(asked, "no", *heard, tools=DANGEROUS, consent=False)
    assert done.ports.ran == []
    assert "said no" in done.model.prompt(0)
    assert done.result.reply == "It stays."


@pytest.mark.rule("3.5")
def test_a_yes_to_another_question_is_no_consent() -> None:
    question = revision("ask_user", question="Try once more?", confirm=True)
    asked = drive([plan(tool("broken"), tool("erase", n=1)), question], tools=DANGEROUS)
    assert asked.execution.status is Status.WAITING_CONFIRMATION
    done = reply(asked, "yes", plan(tool("erase", n=1)), tools=DANGEROUS, consent=True)
    assert done.ports.ran == []
    assert done.execution.status is Status.WAITING_CONFIRMATION


@pytest.mark.rule("3.5")
def test_a_yes_is_for_the_tool_as_it_was() -> None:
    asked = drive([plan(tool("erase", n=1), RESPOND)], tools=DANGEROUS)
    other = (*TOOLS, replace(ERASE, description="Erases everything."))
    done = reply(asked, "yes", revision("continue"), tools=other, consent=True)
    assert done.ports.ran == []
    assert done.execution.status is Status.WAITING_CONFIRMATION


def test_a_step_awaiting_consent_is_not_run_by_other_replies() -> None:
    asked = drive([plan(tool("erase", n=1), RESPOND)], tools=DANGEROUS)
    for text in ("yes please, but gently", "好吧", "what does it do?"):
        done = reply(asked, text, plan(RESPOND), says("Well."), tools=DANGEROUS)
        assert [str(step.status) for step in done.execution.steps if step.tool] == ["dropped"]
        assert "[done]" not in done.model.prompt(0)


@pytest.mark.rule("7.2")
def test_a_changed_tool_catalogue_triggers_a_plan_revision() -> None:
    ports = MemoryPorts(crash_at=7)
    with pytest.raises(Crash):
        drive([plan(tool("read", n=1), tool("read", n=2), RESPOND)], ports=ports)
    ports.crash_at = None
    done = drive([revision("continue"), says("ok")], ports.execution, ports=ports, tools=DANGEROUS)
    assert "The tools changed" in done.model.prompt(0)
    assert done.result.reply == "ok"


@pytest.mark.rule("7.2")
@pytest.mark.parametrize("at", range(1, 14))
def test_a_crash_at_any_write_resumes_where_it_stopped(at: int) -> None:
    """Each tool is run at most once, and what was found stays found."""
    forms = [plan(tool("write", n=1), tool("write", n=2), RESPOND), revision("continue")]
    ports = MemoryPorts(crash_at=at)
    with pytest.raises(Crash):
        drive(forms, ports=ports, tools=WRITES, kind=FormModel)
    ports.crash_at = None
    done = drive(forms, ports.execution, ports=ports, tools=WRITES, kind=FormModel)
    assert (done.result.ending, done.result.reply) == (Ending.SUCCEEDED, "done")
    assert [call.arguments["n"] for call in ports.ran] == [1, 2]  # also the one whose outcome is unknown
    assert sum(event.type == "plan" for event in ports.events) == 1


def test_a_message_sent_meanwhile_is_heard_and_kept_in_history() -> None:
    ports = MemoryPorts()

    def write(call: ToolCall) -> str:
        ports.waiting.append("and make it red")
        ports.on_call = None
        return "looked"

    ports.on_call = write
    done = drive([plan(tool("read"), RESPOND), revision("continue"), says("red")], ports=ports)
    expected = [(Role.USER, "and make it red"), (Role.ASSISTANT, "red")]
    assert [(entry.role, entry.content) for entry in done.result.entries] == expected
    assert "and make it red" in done.model.prompt(1)


@pytest.mark.rule("7.2")
def test_every_arrow_is_taken_and_every_missing_one_refused() -> None:
    """Which arrows there are is held by tests/docs/test_states.py."""
    for before, after in product(Status, repeat=2):
        execution = Execution(id="a", request="r", status=before)
        if after in ARROWS[before] or before is after in {Status.PLANNING, Status.RUNNING}:
            assert execution.to(after).status is after
        else:
            with pytest.raises(BadTransition):
                execution.to(after)


def test_a_live_snapshot_takes_the_place_of_the_older_one() -> None:
    asked = drive([plan(ask("Which?"))], live=("jobs",))
    ports = MemoryPorts(snapshots=lambda name: f"{name} later")
    done = reply(asked, "a", plan(RESPOND), says("x"), ports=ports, live=("jobs",))
    assert [each.text for each in done.execution.observations if each.kind == "live:jobs"] == ["jobs later"]
    assert "jobs now" not in done.model.prompt(0)


@pytest.mark.rule("7.2")
def test_a_plan_revision_is_stored_before_it_is_executed() -> None:
    """Else a worker that dies while it answers leaves steps that nobody wants any more."""
    ports = MemoryPorts()
    steps = plan(tool("broken"), tool("write", n=1), RESPOND)
    drive([steps, revision("finish"), *DOWN], ports=ports, tools=WRITES)
    assert ports.execution is not None
    ahead = [step for step in ports.execution.steps if step.status != "dropped"]
    assert [str(step.type) for step in ahead] == ["tool", "respond"]
    assert ports.ran[-1].name == "broken"


@pytest.mark.rule("7.5")
def test_peoples_words_stay_whole_and_cut_tool_output_is_marked() -> None:
    asked = drive([plan(ask("Which?"))])
    long = "x" * 20_000
    ports = MemoryPorts(on_call=lambda _call: "y" * 20_000)
    done = reply(asked, long, plan(tool("read"), REASON, RESPOND), says("hm"), says("ok"), ports=ports)
    assert long in done.model.prompt(1)
    assert "y (cut)" in done.model.prompt(1).replace("… ", "").replace("y  (cut)", "y (cut)")


@pytest.mark.rule("7.5")
def test_a_change_is_looked_at_before_the_answer() -> None:
    looks = iter(["before", "after"])
    ports = MemoryPorts(snapshots=lambda _name: next(looks))
    replies = [plan(tool("write", n=1), RESPOND), revision("continue"), says("done")]
    done = drive(replies, ports=ports, tools=WRITES, live=("jobs",))
    assert "after" in done.model.prompt(2)
    assert "before" not in done.model.prompt(2)
