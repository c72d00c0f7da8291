"""A planned turn: from the request to a question or an answer, and what may go wrong on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_core.exceptions import ModelUnavailable
from agent_core.execution import Execution, NoSuchArrow, Status, StepStatus
from agent_core.models import ModelReply
from agent_core.planner.run import MOST_ITERATIONS
from agent_core.planner.texts import Resume
from agent_core.types import Effect, Ending, Role, ToolCall, ToolSpec
from tests.agent_core.fakes import TOOLS, Crash
from tests.planner.plans import (
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

WRITES = tuple(replace(spec, effect=Effect.WRITE) if spec.name == "write" else spec for spec in TOOLS)
GARBAGE = says("Sure! First I will look, then {not json")


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


def test_garbage_once_is_asked_again_with_the_reason() -> None:
    done = drive([GARBAGE, plan(RESPOND), says("good")])
    assert done.result.reply == "good"
    assert "could not be read" in done.model.prompt(1)


def test_garbage_twice_fails_visibly_and_keeps_the_state() -> None:
    done = drive([GARBAGE, GARBAGE])
    assert (done.result.ending, done.result.error_code) == (Ending.FAILED, "invalid_plan")
    assert done.execution.status is Status.FAILED
    assert done.execution.request == "do it"


def test_a_plan_of_twelve_steps_is_no_plan() -> None:
    done = drive([plan(*[tool("read", n=n) for n in range(12)]), plan(RESPOND), says("good")])
    assert done.result.reply == "good"
    assert "8" in done.model.prompt(1)


def test_a_plan_with_an_unknown_tool_is_no_plan() -> None:
    done = drive([plan(tool("teleport")), plan(RESPOND), says("good")])
    assert "teleport" in done.model.prompt(1)


def test_a_tool_that_errs_is_an_observation_and_a_look_at_the_plan() -> None:
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


def test_a_tool_that_changes_something_is_a_reason_to_look_at_the_plan() -> None:
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


def test_endless_replanning_ends_with_an_answer() -> None:
    done = drive([*ENDLESS, says("enough")])
    assert done.result.reply == "enough"
    assert done.execution.status is Status.COMPLETED
    assert done.execution.iterations == MOST_ITERATIONS


def test_the_limit_without_an_answer_fails() -> None:
    done = drive([*ENDLESS, says("")])
    assert (done.result.ending, done.result.error_code) == (Ending.FAILED, "no_answer")
    assert done.execution.status is Status.FAILED


def test_a_question_waits_and_its_reply_is_planned_for_word_by_word() -> None:
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


@pytest.mark.parametrize(
    "replies", [[ModelUnavailable("down")] * 3, [GARBAGE, GARBAGE]], ids=["down", "garbage"]
)
def test_a_planner_that_is_down_on_a_reply_leaves_the_question_standing(
    replies: list[ModelReply | Exception],
) -> None:
    asked = drive([plan(ask("Which colour?"))]).execution
    done = drive(replies, asked, resume=Resume(question="Which colour?", reply="blue"))
    assert done.result.ending is Ending.FAILED
    assert done.result.execution is None
    assert done.ports.execution is None


def test_a_planner_that_is_down_at_the_first_plan_fails_visibly() -> None:
    done = drive([ModelUnavailable("down")] * 3)
    assert (done.execution.status, done.result.error_code) == (Status.FAILED, "model_unavailable")


DANGEROUS = (
    *TOOLS,
    ToolSpec(name="erase", description="Erases.", parameters=TOOLS[0].parameters, effect=Effect.DANGEROUS),
)


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


def test_a_changed_catalogue_is_a_reason_to_look_at_the_plan() -> None:
    ports = MemoryPorts(crash_at=7)
    with pytest.raises(Crash):
        drive([plan(tool("read", n=1), tool("read", n=2), RESPOND)], ports=ports)
    ports.crash_at = None
    done = drive([revision("continue"), says("ok")], ports.execution, ports=ports, tools=DANGEROUS)
    assert "The tools changed" in done.model.prompt(0)
    assert done.result.reply == "ok"


@pytest.mark.parametrize("at", range(1, 14))
def test_a_crash_at_any_write_is_gone_on_from_where_it_was(at: int) -> None:
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


def test_what_a_person_writes_meanwhile_is_heard_and_stands_in_the_history() -> None:
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


@pytest.mark.parametrize("before", list(Status))
@pytest.mark.parametrize("after", list(Status))
def test_every_arrow_is_taken_and_every_missing_one_refused(before: Status, after: Status) -> None:
    execution = Execution(id="a", request="r", status=before)
    stays = after is before and before in (Status.PLANNING, Status.RUNNING)
    if str(after) in WAYS.get(str(before), ()) or stays:
        assert execution.to(after).status is after
    else:
        with pytest.raises(NoSuchArrow):
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


def test_what_a_look_at_the_plan_decides_is_stored_before_it_is_done() -> None:
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
def test_a_step_that_waits_for_a_yes_is_not_done_by_another_reply(reply: str) -> None:
    asked = drive([plan(tool("erase", n=1), RESPOND)], tools=DANGEROUS)
    resume = Resume(question=asked.execution.question, reply=reply)
    done = drive([plan(RESPOND), says("Well.")], asked.execution, tools=DANGEROUS, resume=resume)
    assert [str(step.status) for step in done.execution.steps if step.tool] == ["dropped"]
    assert "[done]" not in done.model.prompt(0)


def test_the_question_names_the_tool_and_its_arguments() -> None:
    sly = tool("erase", n=7) | {"title": "look at the weather"}
    asked = drive([plan(sly)], tools=DANGEROUS)
    assert asked.execution.question == 'May I use erase with {"n": 7}?'


def test_a_yes_is_for_the_tool_as_it_was() -> None:
    asked = drive([plan(tool("erase", n=1), RESPOND)], tools=DANGEROUS)
    other = (*TOOLS, replace(DANGEROUS[-1], description="Erases everything."))
    resume = Resume(question=asked.execution.question, reply="yes")
    done = drive([revision("continue")], asked.execution, tools=other, resume=resume, consent=True)
    assert done.ports.ran == []
    assert done.execution.status is Status.WAITING_CONFIRMATION


def test_what_people_say_is_never_cut_and_what_tools_say_is_cut_with_a_mark() -> None:
    asked = drive([plan(ask("Which?"))]).execution
    long = "x" * 20_000
    ports = MemoryPorts(on_call=lambda _call: "y" * 20_000)
    resume = Resume(question="Which?", reply=long)
    done = drive(
        [plan(tool("read"), REASON, RESPOND), says("hm"), says("ok")], asked, ports=ports, resume=resume
    )
    assert long in done.model.prompt(1)
    assert "y (cut)" in done.model.prompt(1).replace("… ", "").replace("y  (cut)", "y (cut)")


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
