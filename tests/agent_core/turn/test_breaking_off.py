"""Rule 1.9 as a property: break a turn off anywhere, as often as you like, and resume it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.llm.protocol import ModelReply
from agent_core.turn.control import TurnControl
from agent_core.turn.run import run_turn
from agent_core.types import Ending, StepKind, ToolCall, ToolOutcome, TurnResult
from tests.agent_core.fakes import Crash, Ports, calls, drive, request, says, script

one_call = st.builds(
    lambda name, n: ToolCall(id="", name=name, arguments={"n": n}),
    st.sampled_from(["write", "read", "nope"]),
    st.integers(0, 50),
)
turns = st.lists(st.lists(one_call, min_size=1, max_size=3), max_size=4)
breaks = st.lists(st.tuples(st.sampled_from(["drop", "stop", "crash"]), st.integers(1, 9)), max_size=6)
GENEROUS = {"max_failed_tool_outputs": 99, "max_same_failure_signature": 99, "max_same_tool_intent": 99}


def replies_of(turn: list[list[ToolCall]]) -> list[ModelReply]:
    numbered = [
        calls(
            *[replace(call, id=f"r{number}c{index}") for index, call in enumerate(wanted)],
            text=f"step {number}",
        )
        for number, wanted in enumerate(turn)
    ]
    return [*numbered, says("the end")]


def run_until(ports: Ports, attempt: int, how: str, when: int) -> TurnResult | None:
    """Run one attempt and break it off; None when it did not come to its end."""
    control = TurnControl()
    policy = request().policy.merged(GENEROUS)
    ports.writes, ports.crash_at = 0, when if how == "crash" else None
    ran_before = len(ports.ran)
    given_steps = tuple(ports.steps)
    settled = {step.data["id"] for step in given_steps if step.kind is StepKind.RESULT}
    story = run_turn(request(steps=given_steps, attempt=attempt, policy=policy), ports, control)
    try:
        for number in range(1, 1000):
            next(story)
            if number == when and how == "drop":
                story.close()
                return None
            if number == when and how == "stop":
                control.stop()
    except Crash:
        return None
    except StopIteration as end:
        ending: TurnResult = end.value
        return None if ending.ending is Ending.HANDED_BACK else ending
    finally:
        story.close()
        assert not settled & {call.id for call in ports.ran[ran_before:]}, "a completed call was repeated"
    raise AssertionError("endless")


@pytest.mark.full
@settings(max_examples=300)
@given(turns, breaks)
def test_a_turn_broken_off_anywhere_never_repeats_a_completed_call(
    turn: list[list[ToolCall]], broken_at: list[tuple[str, int]]
) -> None:
    script(*replies_of(turn))
    unbroken = drive(request(policy=request().policy.merged(GENEROUS))).result
    ports = Ports()
    ended = None
    for attempt, (how, when) in enumerate([*broken_at, ("never", 0)], start=1):
        ended = run_until(ports, attempt, how, when)
        if ended is not None:
            break
    assert ended is not None
    assert ended.ending is Ending.SUCCEEDED
    journaled = [step.data["id"] for step in ports.steps if step.kind is StepKind.RESULT]
    assert len(journaled) == len(set(journaled)), "two results of one call"
    once = [call.id for call in ports.ran if call.name == "write"]
    assert len(once) == len(set(once)), "a call that is not idempotent ran twice"
    assert [(entry.role, entry.content) for entry in ended.entries] == [
        (entry.role, entry.content) for entry in unbroken.entries
    ]
    assert ended.usage.requests == unbroken.usage.requests
    for now, then in zip(all_results(ended), all_results(unbroken), strict=True):
        assert now == then or now.outcome is ToolOutcome.UNKNOWN


def all_results(ended: TurnResult) -> list[Any]:
    return [one for entry in ended.entries for one in entry.results]
