"""A planned turn: from the request to a question or an answer, and what may go wrong on the way."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from agent_core.exceptions import ModelUnavailable
from agent_core.execution import BadTransition, Execution, Status, StepStatus
from agent_core.llm.protocol import ModelReply
from agent_core.planner.run import MOST_ITERATIONS
from agent_core.planner.texts import Resume
from agent_core.tool_spec import Effect, ToolSpec
from agent_core.types import Ending, Role, ToolCall
from tests.agent_core.fakes import TOOLS, Crash
from tests.agent_core.planner.plans import (
    REASON,
    RESPOND,
    FormModel,
    MemoryPorts,
    ask,
    drive,
    plan,
    revision,
    says,
    tool,
)

pytestmark = pytest.mark.rule("7.1", "7.6")

WRITES = tuple(replace(spec, effect=Effect.WRITE) if spec.name == "write" else spec for spec in TOOLS)
GARBAGE = says("Sure! First I will look, then {not json")


@pytest.mark.rule("7.2")
def test_a_plan_is_made_worked_off_and_answered() -> None:
    done = drive([plan(tool("read", n=1), REASON, RESPOND), says("It is one."), says("The answer is one.")])
    assert done.result.ending is Ending.SUCCEEDED
    assert done.result.reply == "The answer is one."
    assert done.execution.status is Status.COMPLETED
    assert [step.status for step in done.execution.steps] == [StepStatus.DONE] * 3
    assert "read 1" in done.model.prompt(1)  # what the tool found is known when it thinks
    assert "It is one." in done.model.prompt(2)
    assert done.told() == [
        "planning",
        "plan",
        *("step_start", "tool_call", "tool_output", "step_complete"),
        *("step_start", "step_complete"),
        *("step_start", "done"),
    ]


@pytest.mark.rule("7.2")
def test_only_the_answer_is_streamed() -> None:
    done = drive([plan(REASON, RESPOND), says("a thought"), says("the answer")])
    assert [event.content["text"] for event in done.events if event.type == "llm_delta"] == ["the answer"]


@pytest.mark.parametrize(
    "text",
    [
        '{"goal": "g", "steps": [{"type": "respond"}]}',
        'Here:\n```json\n{"steps": [{"type": "respond"}]}\n```',
    ],
)
def test_a_plan_may_come_as_text(text: str) -> None:
    assert drive([says(text), says("yes")]).result.reply == "yes"


@pytest.mark.rule("7.2")
def test_garbage_once_is_asked_again_with_the_reason() -> None:
    done = drive([GARBAGE, plan(RESPOND), says("good")])
    assert done.result.reply == "good"
    assert "could not be read" in done.model.prompt(1)


@pytest.mark.rule("7.2")
def test_garbage_twice_fails_visibly_and_keeps_the_state() -> None:
    done = drive([GARBAGE, GARBAGE])
    assert (done.result.ending, done.result.error_code) == (Ending.FAILED, "invalid_plan")
    assert done.execution.status is Status.FAILED
    assert done.execution.request == "do it"


@pytest.mark.rule("7.2")
def test_two_garbled_revisions_fail_visibly_and_keep_finished_work() -> None:
    done = drive([plan(tool("write", n=1), RESPOND), GARBAGE, GARBAGE], tools=WRITES)
    assert (done.result.ending, done.result.error_code) == (Ending.FAILED, "invalid_plan")
    assert done.execution.status is Status.FAILED
    assert [step.status for step in done.execution.steps] == [StepStatus.DONE, StepStatus.DROPPED]
    assert "write 1" in done.execution.observations[-1].text
    assert "could not be read" in done.model.prompt(2)


@pytest.mark.rule("7.2")
def test_a_plan_of_twelve_steps_is_no_plan() -> None:
    done = drive([plan(*[tool("read", n=n) for n in range(12)]), plan(RESPOND), says("good")])
    assert done.result.reply == "good"
    assert "8" in done.model.prompt(1)


@pytest.mark.rule("7.2")
def test_a_plan_with_an_unknown_tool_is_no_plan() -> None:
    done = drive([plan(tool("teleport")), plan(RESPOND), says("good")])
    assert "teleport" in done.model.prompt(1)


@pytest.mark.rule("7.2")
def test_a_tool_error_is_observed_and_triggers_a_plan_revision() -> None:
    done = drive(
        [
            plan(tool("broken"), RESPOND),
            revision("replace_remaining", tool("read", n=2), RESPOND),
            says("two"),
        ]
    )
    assert done.result.reply == "two"
    assert "Broken: always" in done.model.prompt(1)
    assert [step.status for step in done.execution.steps] == [
        StepStatus.FAILED,
        StepStatus.DROPPED,
        StepStatus.DONE,
        StepStatus.DONE,
    ]


@pytest.mark.rule("7.2")
def test_a_tool_that_changes_something_triggers_a_plan_revision() -> None:
    done = drive(
        [plan(tool("write", n=1), RESPOND), revision("continue"), says("written")],
        tools=WRITES,
    )
    assert done.result.reply == "written"
    assert "changed something" in done.model.prompt(1)


def test_a_tool_that_only_reads_is_none() -> None:
    done = drive([plan(tool("read"), RESPOND), says("read")])
    assert "replan" not in done.told()


ENDLESS = [plan(tool("read", n=0)), *[revision("replace_remaining", REASON), says("hm")] * 5]
ENDLESS += [revision("replace_remaining", REASON)]


@pytest.mark.rule("7.2")
def test_endless_replanning_ends_with_an_answer() -> None:
    done = drive([*ENDLESS, says("enough")])
    assert done.result.reply == "enough"
    assert done.execution.status is Status.COMPLETED
    assert done.execution.iterations == MOST_ITERATIONS


@pytest.mark.rule("7.2")
def test_the_limit_without_an_answer_fails() -> None:
    done = drive([*ENDLESS, says("")])
    assert (done.result.ending, done.result.error_code) == (Ending.FAILED, "no_answer")
    assert done.execution.status is Status.FAILED


def test_a_question_waits_and_planning_sees_its_exact_reply() -> None:
    asked = drive([plan(ask("Which colour?"), RESPOND)])
    assert asked.result.reply == "Which colour?"
    assert asked.execution.status is Status.WAITING_USER
    resume = Resume(question="Which colour?", reply="  是, the deep one ")
    done = drive([plan(RESPOND), says("deep")], asked.execution, resume=resume)
    assert "Question: Which colour?\nReply:   是, the deep one " in done.model.prompt(0)
    assert done.execution.status is Status.COMPLETED
    assert [step.status for step in done.execution.steps] == [
        StepStatus.DONE,
        StepStatus.DROPPED,
        StepStatus.DONE,
    ]


@pytest.mark.rule("7.3", "7.4")
@pytest.mark.parametrize(
    "replies", [[ModelUnavailable("down")] * 3, [GARBAGE, GARBAGE]], ids=["down", "garbage"]
)
def test_a_planner_failure_on_reply_keeps_the_question(
    replies: list[ModelReply | Exception],
) -> None:
    asked = drive([plan(ask("Which colour?"))]).execution
    done = drive(replies, asked, resume=Resume(question="Which colour?", reply="blue"))
    assert done.result.ending is Ending.FAILED
    assert done.result.execution is None
    assert done.ports.execution is None


def test_an_unavailable_planner_at_the_first_plan_fails_visibly() -> None:
    done = drive([ModelUnavailable("down")] * 3)
    assert (done.execution.status, done.result.error_code) == (Status.FAILED, "model_unavailable")


DANGEROUS = (
    *TOOLS,
    ToolSpec(name="erase", description="Erases.", parameters=TOOLS[0].parameters, effect=Effect.DANGEROUS),
)


@pytest.mark.rule("3.5")
def test_what_is_dangerous_waits_for_a_yes() -> None:
    asked = drive([plan(tool("erase", n=1), RESPOND)], tools=DANGEROUS)
    assert asked.execution.status is Status.WAITING_CONFIRMATION
    assert asked.ports.ran == []
    resume = Resume(question=asked.execution.question, reply="ok")
    done = drive(
        [revision("continue"), says("gone")], asked.execution, tools=DANGEROUS, resume=resume, consent=True
    )
    assert [call.name for call in done.ports.ran] == ["erase"]
    assert done.result.reply == "gone"


def test_a_no_is_heard() -> None:
    asked = drive([plan(tool("erase", n=1), RESPOND)], tools=DANGEROUS)
    resume = Resume(question=asked.execution.question, reply="no")
    done = drive(
        [revision("finish", instruction="say that it stays"), says("It stays.")],
        asked.execution,
        tools=DANGEROUS,
        resume=resume,
        consent=False,
    )
    assert done.ports.ran == []
    assert "said no" in done.model.prompt(0)
    assert done.result.reply == "It stays."


@pytest.mark.rule("3.5")
def test_a_yes_to_another_question_is_no_consent() -> None:
    asked = drive(
        [
            plan(tool("broken"), tool("erase", n=1)),
            revision("ask_user", question="Try once more?", confirm=True),
        ],
        tools=DANGEROUS,
    )
    assert asked.execution.status is Status.WAITING_CONFIRMATION
    resume = Resume(question="Try once more?", reply="yes")
    done = drive([plan(tool("erase", n=1))], asked.execution, tools=DANGEROUS, resume=resume, consent=True)
    assert done.ports.ran == []
    assert done.execution.status is Status.WAITING_CONFIRMATION


def test_where_nobody_can_answer_the_question_is_the_answer() -> None:
    done = drive([plan(ask("Which colour?"))], is_heard=False)
    assert done.result.reply == "Which colour?"
    assert done.execution.status is Status.COMPLETED


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
    planned = sum(1 for event in ports.events if event.type == "plan")
    assert planned == 1


def test_a_message_sent_meanwhile_is_heard_and_kept_in_history() -> None:
    ports = MemoryPorts()

    def write(call: ToolCall) -> str:
        ports.waiting.append("and make it red")
        ports.on_call = None
        return "looked"

    ports.on_call = write
    done = drive([plan(tool("read"), RESPOND), revision("continue"), says("red")], ports=ports)
    assert [(entry.role, entry.content) for entry in done.result.entries] == [
        (Role.USER, "and make it red"),
        (Role.ASSISTANT, "red"),
    ]
    assert "and make it red" in done.model.prompt(1)


WAYS = {  # as the design draws them, and what people may end
    "planning": {"running", "failed", "cancelled"},
    "running": {"waiting_user", "waiting_confirmation", "completed", "failed", "cancelled"},
    "waiting_user": {"planning", "cancelled"},
    "waiting_confirmation": {"planning", "cancelled"},
    "completed": {"planning"},
    "failed": {"planning"},
}


@pytest.mark.rule("7.2")
@pytest.mark.parametrize("before", list(Status))
@pytest.mark.parametrize("after", list(Status))
def test_every_arrow_is_taken_and_every_missing_one_refused(before: Status, after: Status) -> None:
    execution = Execution(id="a", request="r", status=before)
    stays = after is before and before in (Status.PLANNING, Status.RUNNING)
    if str(after) in WAYS.get(str(before), ()) or stays:
        assert execution.to(after).status is after
    else:
        with pytest.raises(BadTransition):
            execution.to(after)


def test_a_live_snapshot_takes_the_place_of_the_older_one() -> None:
    asked = drive([plan(ask("Which?"))], live=("jobs",)).execution
    ports = MemoryPorts(snapshots=lambda name: f"{name} later")
    done = drive(
        [plan(RESPOND), says("x")],
        asked,
        ports=ports,
        live=("jobs",),
        resume=Resume(question="Which?", reply="a"),
    )
    assert [each.text for each in done.execution.observations if each.kind == "live:jobs"] == ["jobs later"]
    assert "jobs now" not in done.model.prompt(0)


@pytest.mark.rule("7.2")
def test_a_plan_revision_is_stored_before_it_is_executed() -> None:
    """Else a worker that dies while it answers leaves steps that nobody wants any more."""
    ports = MemoryPorts()
    drive(
        [
            plan(tool("broken"), tool("write", n=1), RESPOND),
            revision("finish"),
            *[ModelUnavailable("down")] * 3,
        ],
        ports=ports,
        tools=WRITES,
    )
    assert ports.execution is not None
    ahead = [step for step in ports.execution.steps if step.status is not StepStatus.DROPPED]
    assert [str(step.type) for step in ahead] == ["tool", "respond"]
    assert ports.ran[-1].name == "broken"


@pytest.mark.parametrize("reply", ["yes please, but gently", "好吧", "what does it do?"])
def test_a_step_awaiting_consent_is_not_run_by_other_replies(reply: str) -> None:
    asked = drive([plan(tool("erase", n=1), RESPOND)], tools=DANGEROUS)
    resume = Resume(question=asked.execution.question, reply=reply)
    done = drive([plan(RESPOND), says("Well.")], asked.execution, tools=DANGEROUS, resume=resume)
    assert [str(step.status) for step in done.execution.steps if step.tool] == ["dropped"]
    assert "[done]" not in done.model.prompt(0)


def test_the_question_names_the_tool_and_its_arguments() -> None:
    sly = tool("erase", n=7) | {"title": "look at the weather"}
    asked = drive([plan(sly)], tools=DANGEROUS)
    assert asked.execution.question.startswith('May I use erase with {"n": 7}?\n')
    assert f"#{asked.execution.question_id}" in asked.execution.question
    [call] = asked.execution.asks
    assert (call["id"], call["name"], call["arguments"]) == ("abcd2345.1.1", "erase", {"n": 7})


def test_no_consent_is_requested_without_a_persons_request() -> None:
    done = drive(
        [plan(tool("erase", n=1), RESPOND), revision("continue"), says("done")],
        tools=DANGEROUS,
        may_ask_consent=False,
    )
    assert done.execution.status is Status.COMPLETED
    assert [call.name for call in done.ports.ran] == ["erase"]  # which is where the server refuses it


def test_steps_know_when_they_began_and_ended() -> None:
    done = drive([plan(tool("read", n=1), RESPOND), says("It is one.")])
    for step in done.execution.steps:
        assert step.started_at <= step.ended_at
        assert datetime.fromisoformat(step.started_at).tzinfo is not None


@pytest.mark.rule("3.5")
def test_a_yes_is_for_the_tool_as_it_was() -> None:
    asked = drive([plan(tool("erase", n=1), RESPOND)], tools=DANGEROUS)
    other = (*TOOLS, replace(DANGEROUS[-1], description="Erases everything."))
    resume = Resume(question=asked.execution.question, reply="yes")
    done = drive([revision("continue")], asked.execution, tools=other, resume=resume, consent=True)
    assert done.ports.ran == []
    assert done.execution.status is Status.WAITING_CONFIRMATION


@pytest.mark.rule("7.5")
def test_peoples_words_stay_whole_and_cut_tool_output_is_marked() -> None:
    asked = drive([plan(ask("Which?"))]).execution
    long = "x" * 20_000
    ports = MemoryPorts(on_call=lambda _call: "y" * 20_000)
    resume = Resume(question="Which?", reply=long)
    done = drive(
        [plan(tool("read"), REASON, RESPOND), says("hm"), says("ok")], asked, ports=ports, resume=resume
    )
    assert long in done.model.prompt(1)
    assert "y (cut)" in done.model.prompt(1).replace("… ", "").replace("y  (cut)", "y (cut)")


@pytest.mark.rule("7.5")
def test_a_change_is_looked_at_before_the_answer() -> None:
    looks = iter(["before", "after"])
    ports = MemoryPorts(snapshots=lambda _name: next(looks))
    done = drive(
        [plan(tool("write", n=1), RESPOND), revision("continue"), says("done")],
        ports=ports,
        tools=WRITES,
        live=("jobs",),
    )
    assert "after" in done.model.prompt(2)
    assert "before" not in done.model.prompt(2)


@pytest.mark.parametrize(
    "text", ['{"steps": [{"type": "tool", "tool": "read", "arguments": {"n": NaN}}]}', '{"steps": [1e999]}']
)
def test_numbers_that_are_none_are_no_plan(text: str) -> None:
    assert drive([says(text), plan(RESPOND), says("good")]).result.reply == "good"


def test_a_nul_in_a_plan_is_left_out() -> None:
    done = drive([says('{"steps": [{"type": "respond", "title": "a\\u0000b"}]}'), says("good")])
    assert done.execution.steps[0].title == "ab"
