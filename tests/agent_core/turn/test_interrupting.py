"""Cancel, stop, lose and the deadline, watched from outside: a real server that does not answer."""

import threading
import time

import pytest

from agent_core.exceptions import ModelUnavailable, Stale
from agent_core.turn.control import Signal, TurnControl
from agent_core.types import Ending, ToolCall, ToolOutcome, TurnEvent
from tests.agent_core.fakes import (
    QUICK,
    Ports,
    Run,
    assistant,
    calls,
    drive,
    request,
    says,
    script,
    tool_call,
)
from tests.fleet import until
from tests.model_server import ModelServer

pytestmark = pytest.mark.rule("2.1")

AT_ONCE_SECONDS = 5.0  # what waits otherwise does so for ever, or for 20 s
SIGNALS = [("cancel", Ending.CANCELLED), ("stop", Ending.HANDED_BACK)]


def signalled(server: ModelServer, message: str, verb: str) -> Run:
    """A turn that is signalled once its call is held or its answer begins, and ends at once."""
    heard: list[TurnEvent] = []
    control, sent_at = TurnControl(), 0.0

    def signal() -> None:
        nonlocal sent_at
        until(lambda: server.held if "[[hold" in message else heard)
        sent_at = time.monotonic()
        getattr(control, verb)()

    thread = threading.Thread(target=signal)
    thread.start()
    try:
        return drive(request(message, model="openai-chat:m"), control=control, on_event=heard.append)
    finally:
        ended_at = time.monotonic()
        thread.join()
        assert ended_at - sent_at < AT_ONCE_SECONDS


@pytest.mark.parametrize(("verb", "ending"), SIGNALS)
def test_a_turn_that_waits_on_the_model_ends_at_once(server: ModelServer, verb: str, ending: Ending) -> None:
    result = signalled(server, "[[hold:x]]", verb).result
    assert (result.ending, result.entries, result.error_code) == (ending, (), None)
    until(lambda: server.requests[0].state == "gone")


def test_a_turn_that_was_lost_raises_at_once(server: ModelServer) -> None:
    with pytest.raises(Stale):
        signalled(server, "[[hold:x]]", "lose")


def test_a_cancel_keeps_what_was_said_so_far_and_a_stop_returns_nothing(server: ModelServer) -> None:
    run = signalled(server, "[[pause:x]] tell me a long story", "cancel")
    (entry,) = run.result.entries
    assert entry.partial
    assert entry.content.startswith('You said: "tell')
    assert "".join(event.content["text"] for event in run.events) == entry.content
    server.reset()
    stopped = signalled(server, "[[pause:x]] tell me a long story", "stop").result
    assert (stopped.ending, stopped.entries) == (Ending.HANDED_BACK, ())


@pytest.mark.parametrize(("verb", "ending"), SIGNALS)
def test_a_back_off_is_cut_short(verb: str, ending: Ending) -> None:
    script(ModelUnavailable("x"))
    control = TurnControl()

    def on_event(event: TurnEvent) -> None:
        if event.type == "status":
            threading.Timer(0.05, getattr(control, verb)).start()

    begun = time.monotonic()
    run = drive(request(policy=QUICK.merged({"backoff_seconds": 20})), control=control, on_event=on_event)
    assert time.monotonic() - begun < AT_ONCE_SECONDS
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


@pytest.mark.parametrize(("verbs", "ending"), [*SIGNALS, ("stop cancel", Ending.CANCELLED)])
def test_a_turn_signalled_before_it_starts_calls_no_model(verbs: str, ending: Ending) -> None:
    model = script(says("never"))
    control = TurnControl()
    for verb in verbs.split():
        getattr(control, verb)()
    assert drive(request(), control=control).result.ending is ending
    assert model.calls == []


def test_a_model_that_never_answers_times_the_turn_out(server: ModelServer) -> None:
    begun = time.monotonic()
    hasty = QUICK.merged({"timeout_seconds": 0.5})
    result = drive(request("[[pause:x]] a long story", model="openai-chat:m", policy=hasty)).result
    assert time.monotonic() - begun > 0.4
    assert (result.ending, result.error_code) == (Ending.FAILED, "timeout")
    assert result.error_text == "The time limit was reached."
    assert result.entries[0].partial
    control = TurnControl(deadline_seconds=0.2)
    assert drive(request("[[hold:x]]", model="openai-chat:m"), control=control).result.error_code == "timeout"


def test_a_turn_timed_out_by_a_tool_keeps_its_result() -> None:
    script(calls(tool_call(n=1)), says("never"))
    control = TurnControl()

    def on_call(call: ToolCall) -> str:
        ends_at = control.tool_deadline
        assert ends_at is not None
        until(lambda: time.monotonic() > ends_at)
        return "late"

    run = drive(request(policy=QUICK.merged({"timeout_seconds": 0.3})), Ports(on_call=on_call), control)
    assert run.result.error_code == "timeout"
    assert run.outputs()[0].output == "late"


def test_a_cancel_during_the_final_answer_keeps_it_as_partial() -> None:
    script(says("the whole answer"))
    control = TurnControl()
    run = drive(request(), control=control, on_event=lambda _event: control.cancel())
    assert run.result.ending is Ending.CANCELLED
    assert run.result.entries == (assistant("the", partial=True),)


def test_the_stronger_signal_stays_and_wakes_who_waits() -> None:
    control = TurnControl()
    assert not control.wait(0.01)
    threading.Timer(0.05, control.lose).start()
    assert control.wait(10)
    control = TurnControl()
    seen: list[Signal | None] = [control.signal]
    for verb in (control.stop, control.cancel, control.stop, control.lose, control.cancel):
        verb()
        seen.append(control.signal)
    assert seen == [None, Signal.STOP, Signal.CANCEL, Signal.CANCEL, Signal.LOSE, Signal.LOSE]


def test_a_late_listener_is_called_immediately_but_not_after_leaving() -> None:
    control = TurnControl()
    control.stop()
    woken: list[int] = []
    with control.waking(lambda: woken.append(1)):
        assert woken == [1]
        control.cancel()
        assert woken == [1, 1]
    control.lose()
    assert woken == [1, 1]
