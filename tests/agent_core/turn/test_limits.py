"""Rule 3.2, each limit at its number, through whole turns."""

from typing import Any

import pytest

from agent_core.exceptions import PolicyError
from agent_core.policy import TurnPolicy
from agent_core.turn.tool_calls import failure_signature, intent
from agent_core.types import Ending, ToolCall, ToolOutcome, ToolResult, TurnResult
from tests.agent_core.fakes import QUICK, Ports, calls, drive, request, result_of, says, script, tool_call

pytestmark = pytest.mark.rule("3.2")


def end_of(*wanted: ToolCall, ports: Ports | None = None, **policy: Any) -> TurnResult:
    """Run a turn that makes these calls, one per response, and then answers."""
    script(*[calls(call) for call in wanted], says("done"))
    return drive(request(policy=QUICK.merged(policy)), ports).result


def different(count: int, name: str = "write") -> list[ToolCall]:
    return [tool_call(name, n=number) for number in range(count)]


def test_the_fifteenth_call_ends_the_turn_and_is_not_made() -> None:
    ports = Ports()
    assert end_of(*different(14), ports=ports).ending is Ending.SUCCEEDED
    assert len(ports.ran) == 14
    ports = Ports()
    result = end_of(*different(15), ports=ports)
    assert (result.ending, result.error_code) == (Ending.FAILED, "max_tool_calls")
    assert len(ports.ran) == 14
    assert result.entries[-1].results[0].outcome is ToolOutcome.UNKNOWN
    assert end_of(*different(2), max_tool_calls=1).error_code == "max_tool_calls"
    assert end_of(*different(1), max_tool_calls=0).error_code == "max_tool_calls"


def test_calls_of_one_response_count_one_by_one() -> None:
    ports = Ports()
    script(calls(*different(20)), says("done"))
    result = drive(request(), ports).result
    assert result.error_code == "max_tool_calls"
    assert len(ports.ran) == 14
    outcomes = [one.outcome for one in result.entries[-1].results]
    assert outcomes == [ToolOutcome.OK] * 14 + [ToolOutcome.UNKNOWN] * 6


def test_the_third_failed_output_ends_the_turn() -> None:
    failing = [tool_call("broken", n=n, text=text) for n, text in enumerate(("ape", "bee", "cat"))]
    assert end_of(*failing[:2]).ending is Ending.SUCCEEDED
    result = end_of(*failing)
    assert (result.ending, result.error_code) == (Ending.FAILED, "max_failed_tool_outputs")
    assert result.entries[-1].results[0].output == "Broken: cat"


def test_the_second_equal_failure_ends_the_turn_despite_different_numbers() -> None:
    result = end_of(
        tool_call("broken", n=1, text="job 17 of 3f2a9c41-88aa-4b1c-9d3e-000000000001 at 0.5 s"),
        tool_call("broken", n=2, text="job 18 of 77aa9c41-88aa-4b1c-9d3e-0000000000ff at 12.25 s"),
    )
    assert (result.ending, result.error_code) == (Ending.FAILED, "max_same_failure_signature")


def test_the_fourth_equal_intent_ends_the_turn() -> None:
    same = [ToolCall(id=str(n), name="write", arguments={"a": 1, "b": [n * 0]}) for n in range(4)]
    swapped = ToolCall(id="x", name="write", arguments={"b": [0], "a": 1})
    ports = Ports()
    assert end_of(*same[:3]).ending is Ending.SUCCEEDED
    result = end_of(*same[:3], swapped, ports=ports)
    assert (result.ending, result.error_code) == (Ending.FAILED, "max_same_tool_intent")
    assert len(ports.ran) == 3


def test_equal_bad_arguments_are_explained_before_they_end_the_turn() -> None:
    bad = [ToolCall(id=str(n), name="broken", arguments={"n": "soon"}) for n in range(3)]
    good = tool_call("write", n=9)
    result = end_of(*bad[:2], good)
    assert result.ending is Ending.SUCCEEDED
    first, second, _ = (entry.results[0].output for entry in result.entries if entry.results)
    assert second.startswith(first)
    assert '"properties"' in second.removeprefix(first)
    assert end_of(*bad).error_code == "max_failed_tool_outputs"


def test_calls_that_cannot_be_made_count_as_failed_outputs() -> None:
    ports = Ports()
    result = end_of(tool_call("nope", n=1), tool_call("nope", n=2), ports=ports)
    assert result.error_code == "max_same_failure_signature"
    assert ports.ran == []


@pytest.mark.parametrize("outcome", [ToolOutcome.REFUSED, ToolOutcome.UNKNOWN, ToolOutcome.OK])
def test_only_failed_outputs_are_failures(outcome: ToolOutcome) -> None:
    class Refusing(Ports):
        def call(self, call: ToolCall) -> ToolResult:
            self.ran.append(call)
            return self._result(call, "same text", outcome, "")

    assert end_of(*different(5), ports=Refusing()).ending is Ending.SUCCEEDED


def signature(output: str, name: str = "t", error_class: str = "E") -> str:
    call = ToolCall(id="1", name=name, arguments={})
    return failure_signature(result_of(call, output, ToolOutcome.FAILED, error_class=error_class))


ALIKE = {
    "row 12 not found": "row 3 not found",
    "no such id abc123": "no such id 9zz",
    "at 0xdeadbeef": "at 0x00000001",
    "commit deadbeefcafe is gone": "commit 12ab34cd56ef is gone",
    "a  b\nc": "a b c",
}


def test_failures_are_equal_but_for_numbers_ids_and_spaces() -> None:
    assert [one for one, other in ALIKE.items() if signature(one) != signature(other)] == []
    kinds = (("not found",), ("forbidden",), ("not found", "u"), ("not found", "t", "F"))
    assert len({signature(*kind) for kind in kinds}) == 4


def test_intents() -> None:
    def of(**more: Any) -> str:
        return intent(ToolCall(**{"id": "1", "name": "t", "arguments": {}, **more}))

    assert of(arguments={"a": 1, "b": {"c": 2, "d": 3}}) == of(arguments={"b": {"d": 3, "c": 2}, "a": 1})
    assert len({of(), of(name="u"), of(arguments={"a": 1}), of(unparsed="{")}) == 4


def test_job_settings_override_agent_settings_and_those_override_defaults() -> None:
    merged = TurnPolicy().merged({"max_tool_calls": 5, "timeout_seconds": 20}, {"timeout_seconds": 9.5})
    assert merged == TurnPolicy(max_tool_calls=5, timeout_seconds=9.5)


@pytest.mark.parametrize(
    "override",
    [
        {"max_tool_call": 3},
        {"max_tool_calls": -1},
        {"max_tool_calls": 2.5},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"timeout_seconds": 0},
        {"timeout_seconds": float("nan")},
        {"timeout_seconds": None},
        {"backoff_seconds": -1},
    ],
)
def test_an_unknown_key_or_a_bad_value_is_refused(override: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        TurnPolicy().merged(override)
