"""Cancel, stop, lose and the deadline, watched from outside: a real server that does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from agent_core.exceptions import ModelUnavailable, Stale
from agent_core.testing import ModelServer
from agent_core.turn.control import TurnControl
from agent_core.types import Ending, Entry, Role, ToolCall, ToolOutcome, TurnEvent
from tests.agent_core.fakes import QUICK, Ports, calls, drive, request, says, script, tool_call

pytestmark = pytest.mark.rule("2.1")

AT_ONCE_SECONDS = 0.5


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


class Signalled:
    """Sends a signal when the condition is true; tells how long the turn took after it."""

    def __init__(self, condition: Callable[[], object], verb: str) -> None:
        self.control = TurnControl()
        self.at = 0.0
        self._condition, self._verb = condition, verb
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        until(self._condition)
        self.at = time.monotonic()
        getattr(self.control, self._verb)()

    def took(self) -> float:
        ended = time.monotonic()
        self._thread.join()
        return ended - self.at


@pytest.mark.parametrize(("verb", "ending"), [("cancel", Ending.CANCELLED), ("stop", Ending.HANDED_BACK)])
def test_a_turn_that_waits_on_the_model_ends_at_once(server: ModelServer, verb: str, ending: Ending) -> None:
    signalled = Signalled(lambda: server.held, verb)
    run = drive(request("[[hold:x]]", model="openai-chat:m"), control=signalled.control)
    assert signalled.took() < AT_ONCE_SECONDS
    assert run.result.ending is ending
    assert run.result.entries == ()
    assert run.result.error_code is None
    until(lambda: server.requests[0].state == "gone")


def test_a_turn_that_was_lost_raises_at_once(server: ModelServer) -> None:
    signalled = Signalled(lambda: server.held, "lose")
    with pytest.raises(Stale):
        drive(request("[[hold:x]]", model="openai-chat:m"), control=signalled.control)
    assert signalled.took() < AT_ONCE_SECONDS


def test_a_cancel_keeps_what_was_said_so_far(server: ModelServer) -> None:
    heard: list[TurnEvent] = []
    signalled = Signalled(lambda: heard, "cancel")
    given = request("[[pause:x]] tell me a long story", model="openai-chat:m")
    run = drive(given, control=signalled.control, on_event=heard.append)
    assert signalled.took() < AT_ONCE_SECONDS
    (entry,) = run.result.entries
    assert entry.partial
    assert entry.content.startswith('You said: "tell')
    assert "".join(event.content["text"] for event in run.events) == entry.content


def test_a_stop_that_comes_with_text_half_said_returns_nothing(server: ModelServer) -> None:
    heard: list[TurnEvent] = []
    signalled = Signalled(lambda: heard, "stop")
    given = request("[[pause:x]] tell me a long story", model="openai-chat:m")
    run = drive(given, control=signalled.control, on_event=heard.append)
    assert run.result.ending is Ending.HANDED_BACK
    assert run.result.entries == ()


@pytest.mark.parametrize(("verb", "ending"), [("cancel", Ending.CANCELLED), ("stop", Ending.HANDED_BACK)])
def test_a_back_off_is_cut_short(verb: str, ending: Ending) -> None:
    script(ModelUnavailable("x"))
    control = TurnControl()

    def on_event(event: TurnEvent) -> None:
        if event.type == "status":
            threading.Timer(0.05, getattr(control, verb)).start()

    begun = time.monotonic()
    run = drive(request(policy=QUICK.merged({"backoff_seconds": 20})), control=control, on_event=on_event)
    assert time.monotonic() - begun < 1
    assert run.result.ending is ending


def test_a_cancel_between_two_tools_closes_the_open_calls() -> None:
    script(calls(tool_call(n=1), tool_call(n=2)), says("never"))
    control, ports = TurnControl(), Ports()

    def on_call(call: ToolCall) -> str:
        control.cancel()
        return "did it"

    ports.on_call = on_call
    run = drive(request(), ports, control)
    assert run.result.ending is Ending.CANCELLED
    assert [call.id for call in ports.ran] == ["write-1"]
    assert ports.kinds() == ["response", "intent", "result"]
    assert [one.outcome for one in run.outputs()] == [ToolOutcome.OK, ToolOutcome.UNKNOWN]
    assert run.outputs()[1].output.startswith("Not run")


def test_a_turn_stopped_after_a_tool_resumes_from_its_journal() -> None:
    model = script(calls(tool_call(n=1), tool_call(n=2)), says("done"))
    control, ports = TurnControl(), Ports()

    def on_call(call: ToolCall) -> str:
        control.stop()
        return "did it"

    ports.on_call = on_call
    assert drive(request(), ports, control).result.ending is Ending.HANDED_BACK
    ports.on_call = None
    run = drive(request(steps=tuple(ports.steps)), ports)
    assert [call.id for call in ports.ran] == ["write-1", "write-2"]
    assert run.texts() == ["", "", "done"]
    assert len(model.calls) == 2


@pytest.mark.parametrize("verb", ["cancel", "stop"])
def test_a_turn_signalled_before_it_starts_calls_no_model(verb: str) -> None:
    model = script(says("never"))
    control = TurnControl()
    getattr(control, verb)()
    assert drive(request(), control=control).result.ending in {Ending.CANCELLED, Ending.HANDED_BACK}
    assert model.calls == []


def test_cancel_wins_over_stop() -> None:
    script(says("never"))
    control = TurnControl()
    control.stop()
    control.cancel()
    assert drive(request(), control=control).result.ending is Ending.CANCELLED


def test_a_model_that_never_answers_times_the_turn_out(server: ModelServer) -> None:
    begun = time.monotonic()
    run = drive(
        request(
            "[[pause:x]] a long story", model="openai-chat:m", policy=QUICK.merged({"timeout_seconds": 0.5})
        )
    )
    assert 0.4 < time.monotonic() - begun < 2
    assert (run.result.ending, run.result.error_code) == (Ending.FAILED, "timeout")
    assert run.result.error_text == "The time limit was reached."
    assert run.result.entries[0].partial


def test_the_deadline_of_the_control_holds_too(server: ModelServer) -> None:
    run = drive(request("[[hold:x]]", model="openai-chat:m"), control=TurnControl(deadline_seconds=0.2))
    assert run.result.error_code == "timeout"


def test_a_turn_timed_out_by_a_tool_keeps_its_result() -> None:
    script(calls(tool_call(n=1)), says("never"))

    def on_call(call: ToolCall) -> str:
        time.sleep(0.2)
        return "late"

    ports = Ports(on_call=on_call)
    run = drive(request(policy=QUICK.merged({"timeout_seconds": 0.1})), ports)
    assert run.result.error_code == "timeout"
    assert run.outputs()[0].output == "late"


def test_a_cancel_during_the_final_answer_keeps_it_as_partial() -> None:
    script(says("the whole answer"))
    control = TurnControl()
    run = drive(request(), control=control, on_event=lambda _event: control.cancel())
    assert run.result.ending is Ending.CANCELLED
    assert run.result.entries == (Entry(role=Role.ASSISTANT, content="the", partial=True),)
