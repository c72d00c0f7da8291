"""Rule 1.9: a turn goes on from its journal."""

import json
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from agent_core.turn.transcript import said_so_far
from agent_core.types import Ending, Entry, Step, StepKind, ToolCall, ToolOutcome, ToolResult, Usage
from tests.agent_core.fakes import Ports, Run, assistant, calls, drive, request, says, script, tool_call, user

pytestmark = pytest.mark.rule("1.9", "3.2")

USAGE = Usage(input_tokens=10, output_tokens=1, requests=1)


Part = tuple[StepKind, dict[str, Any]]


def response(*wanted: ToolCall, text: str = "") -> Part:
    return StepKind.RESPONSE, {"entry": assistant(text, *wanted).to_json(), "usage": USAGE.to_json()}


def intent(call: ToolCall) -> Part:
    return StepKind.INTENT, call.to_json()


def result(call: ToolCall, output: str = "journaled", outcome: ToolOutcome = ToolOutcome.OK) -> Part:
    return StepKind.RESULT, ToolResult(id=call.id, name=call.name, output=output, outcome=outcome).to_json()


def inject(*texts: str) -> Part:
    return StepKind.INJECT, {"texts": list(texts), "turns": [1]}


def journal(*parts: Part) -> tuple[Step, ...]:
    return tuple(Step(n=n, kind=kind, data=data) for n, (kind, data) in enumerate(parts, start=1))


def resume(*parts: Part, ports: Ports | None = None) -> Run:
    return drive(request(steps=journal(*parts), attempt=2), ports)


ONE, TWO, READ = tool_call(n=1), tool_call(n=2), tool_call("read", n=3)


def test_a_call_with_a_journaled_result_is_not_repeated() -> None:
    model = script(calls(ONE, TWO), says("done"))
    ports = Ports()
    run = resume(response(ONE, TWO), intent(ONE), result(ONE), ports=ports)
    assert ports.ran == [TWO]
    assert ports.kinds() == ["intent", "result"]
    assert [one.output for one in run.outputs()] == ["journaled", "write 2"]
    assert len(model.calls) == 1
    assert run.texts() == ["", "", "done"]
    assert run.result.usage == USAGE + Usage(input_tokens=10, output_tokens=2, requests=1)


def test_a_call_with_an_intent_but_no_result_is_unknown() -> None:
    script(calls(ONE, TWO), says("done"))
    ports = Ports()
    run = resume(response(ONE, TWO), intent(ONE), ports=ports)
    assert ports.ran == [TWO]
    assert ports.kinds() == ["result", "intent", "result"]
    assert [one.outcome for one in run.outputs()] == [ToolOutcome.UNKNOWN, ToolOutcome.OK]


def test_an_idempotent_call_is_repeated_without_a_second_intent_if_its_tool_is_still_there() -> None:
    script(calls(READ), says("done"))
    ports = Ports()
    run = resume(response(READ), intent(READ), ports=ports)
    assert ports.ran == [READ]
    assert ports.kinds() == ["result"]
    assert run.outputs()[0].outcome is ToolOutcome.OK
    gone = Ports()
    drive(request(steps=journal(response(READ), intent(READ)), attempt=2, tools=()), gone)
    assert (gone.ran, gone.kinds()) == ([], ["result"])


def test_injected_messages_are_heard_again_and_not_taken_again() -> None:
    model = script(calls(ONE), says("done"))
    ports = Ports()
    run = resume(response(ONE), intent(ONE), result(ONE), inject("stop it", "please"), ports=ports)
    assert model.calls[0].entries[-2:] == (user("stop it"), user("please"))
    roles = ["assistant", "tool", "user", "user", "assistant"]
    assert [str(entry.role) for entry in run.result.entries] == roles
    assert ports.asked == 1


def test_a_journal_that_ends_in_an_answer_ends_at_once() -> None:
    model = script()
    run = resume(response(ONE), intent(ONE), result(ONE), response(text="done"))
    assert model.calls == []
    assert run.events == []
    assert (run.result.ending, run.result.reply) == (Ending.SUCCEEDED, "done")
    assert run.result.usage.requests == 2


def test_step_zero_is_not_read() -> None:
    script(says("done"))
    prompt = Step(n=0, kind=StepKind.PROMPT, data={"anything": 1})
    assert drive(request(steps=(prompt,))).texts() == ["done"]


def test_a_refused_call_of_an_earlier_response_stays_refused() -> None:
    nope = tool_call("nope")
    model = script(calls(nope), calls(ONE), says("done"))
    run = resume(response(nope), response(ONE), intent(ONE), result(ONE))
    first = model.calls[0].entries[2].results[0]
    assert first.output.startswith("There is no tool 'nope'")
    assert run.result.ending is Ending.SUCCEEDED


def test_an_entry_survives_json_and_what_a_newer_version_adds_is_ignored() -> None:
    call = ToolCall(id="1", name="read", arguments={"n": [1, None, {"x": "\u00e9"}]}, unparsed="{")
    told = ToolResult(id="1", name="read", output="no", outcome=ToolOutcome.FAILED, error_class="Full")
    entry = assistant("hm", call, results=(told,), partial=True)
    stored = json.loads(json.dumps(entry.to_json()))
    assert Entry.from_json(stored) == Entry.from_json(stored | {"mood": "good"}) == entry
    assert Usage.from_json(USAGE.to_json() | {"cached": 2}) == USAGE


def test_repeated_ids_in_a_later_response_are_distinguished() -> None:
    again = replace(TWO, id=ONE.id)
    script(calls(ONE), calls(again), says("done"))
    ports = Ports()
    run = resume(response(ONE), intent(ONE), result(ONE), response(again), ports=ports)
    assert ports.ran == [again]
    assert [one.output for one in run.outputs()] == ["journaled", "write 2"]


def whole(call: ToolCall, output: str = "journaled", outcome: ToolOutcome = ToolOutcome.OK) -> list[Part]:
    """The three steps of a call that was made."""
    return [response(call), intent(call), result(call, output, outcome)]


FIFTEEN = [whole(tool_call(n=n)) for n in range(15)]
SAME = [whole(replace(ONE, id=str(n))) for n in range(4)]
BROKEN = [tool_call("broken", n=n) for n in range(3)]
FAILED = [whole(call, text, ToolOutcome.FAILED) for call, text in zip(BROKEN, "abc", strict=True)]
ALIKE = [whole(call, f"row {n}", ToolOutcome.FAILED) for n, call in enumerate(BROKEN[:2])]


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        (FIFTEEN, "max_tool_calls"),
        (SAME, "max_same_tool_intent"),
        (FAILED, "max_failed_tool_outputs"),
        (ALIKE, "max_same_failure_signature"),
    ],
)
def test_a_limit_passed_before_a_crash_ends_the_resumed_turn(parts: list[Any], code: str) -> None:
    model = script()
    run = resume(*chain.from_iterable(parts))
    assert (run.result.ending, run.result.error_code) == (Ending.FAILED, code)
    assert model.calls == []


def test_an_interrupted_call_is_counted_once() -> None:
    calls_made = [tool_call(n=n) for n in range(14)]
    script(calls(*calls_made), says("done"))
    run = resume(response(*calls_made), intent(calls_made[0]))
    assert run.result.ending is Ending.SUCCEEDED


def test_a_dead_turn_can_be_closed_from_its_journal_alone() -> None:
    entries, usage = said_so_far(
        journal(response(ONE, TWO, READ, text="hm"), intent(ONE), result(ONE), intent(TWO))
    )
    assert usage == USAGE
    outcomes = [(one.outcome, one.output.split(":")[0]) for one in entries[-1].results]
    assert outcomes == [
        (ToolOutcome.OK, "journaled"),
        (ToolOutcome.UNKNOWN, "Interrupted"),
        (ToolOutcome.UNKNOWN, "Not run"),
    ]
