import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_core.exceptions import ModelNotConfigured, ModelRefused, ModelUnavailable, Stale
from agent_core.llm.protocol import ModelReply, parse_arguments
from agent_core.turn.control import TurnControl
from agent_core.turn.run import run_turn
from agent_core.types import Ending, ToolCall, ToolOutcome, TurnEvent, TurnEventType, Usage
from tests.agent_core.fakes import Ports, Run, assistant, calls, drive, request, says, script, tool_call, user
from tests.fleet import until


def test_a_plain_answer_is_streamed_and_returned() -> None:
    model = script(says("hello there"))
    ports = Ports()
    run = drive(request(history=[user("before"), assistant("yes")]), ports)
    assert run.result.ending is Ending.SUCCEEDED
    assert run.result.entries == (assistant("hello there"),)
    assert run.result.usage == Usage(input_tokens=10, output_tokens=2, requests=1)
    assert [event.content for event in run.events] == [
        {"text": "hel", "attempt": 1, "step": 1, "try": 1},
        {"text": "lo there", "attempt": 1, "step": 1, "try": 1},
    ]
    assert ports.steps == []
    assert model.calls[0].entries == (user("before"), assistant("yes"), user("go"))
    assert model.calls[0].system_prompt == "You are a test."
    script(says(""))
    empty = drive(request()).result
    assert (empty.ending, empty.entries, empty.reply) == (Ending.SUCCEEDED, (assistant(""),), "")


def test_each_call_is_journaled_before_and_after_it_is_made() -> None:
    model = script(calls(tool_call(n=1), tool_call("read", n=2), text="let me see"), says("done"))
    ports = Ports()
    run = drive(request(), ports)
    assert ports.kinds() == ["response", "intent", "result", "intent", "result"]
    assert [kind for kind in run.types() if kind != "llm_delta"] == ["tool_call", "tool_output"] * 2
    assert run.texts() == ["let me see", "", "done"]
    assert [result.output for result in run.outputs()] == ["write 1", "read 2"]
    assert run.result.usage.requests == 2
    assert model.calls[1].entries[1:] == run.result.entries[:2]


def test_an_invalid_call_is_reported_to_the_model_without_journaling() -> None:
    model = script(calls(tool_call("nope"), tool_call("write", n="x"), tool_call(n=1)), says("done"))
    ports = Ports()
    run = drive(request(), ports)
    assert [call.id for call in ports.ran] == ["write-1"]
    assert ports.kinds() == ["response", "intent", "result"]
    told = [result.output for result in model.calls[1].entries[-1].results]
    assert told[0] == "There is no tool 'nope'. Tools: broken, read, write."
    assert told[1] == "Bad arguments: n must be of type integer."
    assert [result.outcome for result in run.outputs()] == [ToolOutcome.FAILED] * 2 + [ToolOutcome.OK]


def test_duplicate_or_missing_call_ids_become_unique() -> None:
    same = ToolCall(id="call_0", name="write", arguments={})
    script(calls(same, ToolCall(id="", name="read", arguments={})), calls(same), says("done"))
    ports = Ports()
    drive(request(), ports)
    ids = [call.id for call in ports.ran]
    assert len(set(ids)) == 3
    assert ids[0] == "call_0"


def test_people_are_heard_before_each_model_call_but_the_first() -> None:
    model = script(calls(tool_call(n=1)), calls(tool_call(n=2)), says("done"))
    ports = Ports(waiting=["wait!", "and this"])
    run = drive(request(), ports)
    assert ports.asked == 2
    assert model.calls[0].entries == (user("go"),)
    assert model.calls[1].entries[-2:] == (user("wait!"), user("and this"))
    roles = "assistant tool user user assistant tool assistant"
    assert [str(entry.role) for entry in run.result.entries] == roles.split()
    assert ports.kinds()[3] == "inject"
    model = script(says("done"))
    drive(request(attempt=2), Ports(waiting=["hello?"]))
    assert model.calls[0].entries == (user("go"), user("hello?")), "a further attempt hears them at once"


def failing(*errors: Exception) -> Run:
    """A turn whose model breaks off with each of these errors."""
    left = list(errors)

    async def stream() -> AsyncIterator[str | ModelReply]:
        if left:
            yield "half an ans"
            raise left.pop(0)
        yield says("fine")

    script(stream)
    return drive(request())


def test_two_failed_tries_are_tried_again_with_a_status_each() -> None:
    run = failing(ModelUnavailable("x"), ModelUnavailable("y"))
    assert run.result.ending is Ending.SUCCEEDED
    told = ("status", "try", "of", "wait_seconds")
    statuses = [tuple(map(event.content.get, told)) for event in run.events if event.type == "status"]
    assert statuses == [("retrying", 2, 3, 0.01), ("retrying", 3, 3, 0.02)]
    assert run.texts() == ["fine"]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ModelNotConfigured("no\nkey"), "model_not_configured", "The model is not set up on this server."),
        (ModelRefused("no\nkey"), "model_refused", "The model provider rejected the request."),
        (ModelUnavailable("no\nkey"), "model_unavailable", "The model did not answer."),
        (RuntimeError("no\nkey"), "internal_error", "Something went wrong."),
    ],
)
def test_a_failed_model_ends_the_turn_keeps_partial_text_and_logs_one_line(
    caplog: pytest.LogCaptureFixture, error: Exception, code: str, text: str
) -> None:
    with caplog.at_level(logging.WARNING, "agent_core"):
        run = failing(*[error] * 3)
    assert (run.result.ending, run.result.error_code, run.result.error_text) == (Ending.FAILED, code, text)
    assert run.result.error_detail == f"{type(error).__name__}: no\nkey"
    assert run.result.entries == (assistant("half an ans", partial=True),)
    assert run.types().count("status") == (2 if code == "model_unavailable" else 0)
    [record] = caplog.records
    if code == "internal_error":
        assert (record.levelname, record.getMessage()) == ("ERROR", "model_broke")
        return
    assert (record.levelname, record.getMessage()) == ("WARNING", "model_failed")
    logged = {"code": code, "error": type(error).__name__, "detail": "no key"}
    assert vars(record).items() >= logged.items()


def test_a_stream_that_ends_without_a_reply_fails_the_turn() -> None:
    async def stream() -> AsyncIterator[str]:
        yield "words"

    script(stream)
    assert drive(request()).result.error_code == "model_refused"


@pytest.mark.parametrize("port", ["responded", "intend", "call", "injected"])
@pytest.mark.parametrize("error", [Stale, KeyError])
def test_what_a_port_raises_comes_through(port: str, error: type[Exception]) -> None:
    script(calls(tool_call()), says("done"))

    def raising(*given: object) -> None:
        raise error

    ports = Ports()
    setattr(ports, port, raising)
    with pytest.raises(error):
        drive(request(), ports)


def test_the_tool_deadline_stands_only_while_the_tool_runs() -> None:
    script(calls(tool_call()), says("done"))
    control = TurnControl()
    seen: list[float | None] = []

    def on_call(call: ToolCall) -> str:
        seen.append(control.tool_deadline)
        raise KeyError("bug in the port")

    story = run_turn(request(), Ports(on_call=on_call), control)
    with pytest.raises(KeyError):
        list(story)
    assert isinstance(seen[0], float)
    assert control.tool_deadline is None


def test_a_turn_that_is_dropped_leaves_no_stream_behind() -> None:
    left: list[str] = []

    async def stream() -> AsyncIterator[str]:
        try:
            yield "first"
            await asyncio.sleep(60)
        finally:
            left.append("closed")

    script(stream)
    story = run_turn(request(), Ports(), TurnControl())
    event: TurnEvent = next(story)
    assert event.content["text"] == "first"
    story.close()
    until(lambda: left == ["closed"])


def test_what_a_database_cannot_store_does_not_get_in() -> None:
    odd = tool_call(text="a\x00b\ud800", list=["\x00", {"k\x00": 1.5}])
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    script(calls(odd, tool_call("read", n=1, x=float("nan")), tool_call("read", n=2, x=deep)), says("x\x00y"))
    ports = Ports()
    run = drive(request(policy=request().policy.merged({"max_same_failure_signature": 9})), ports)
    assert [call.arguments for call in ports.ran] == [{"text": "ab?", "list": ["", {"k": 1.5}]}]
    assert [one.error_class for one in run.outputs()] == ["", "BadArguments", "BadArguments"]
    assert run.result.reply == "xy"
    stored = json.dumps([step.data for step in ports.steps], allow_nan=False)
    assert "\\u0000" not in stored
    assert "\x00" not in "".join(event.content.get("text", "") for event in run.events)


def test_arguments_that_are_no_object_do_not_parse() -> None:
    assert [raw for raw in ("[" * 100_000, "[1]", "{", "nothing") if parse_arguments(raw) is not None] == []


@pytest.mark.full
def test_the_offline_model_does_not_load_the_network_client() -> None:
    program = (
        "import sys; from agent_core import models; from agent_core.turn import run; models.resolve('offline');"
        "sys.exit('pydantic_ai' in sys.modules or 'openai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_emoji_in_two_pieces_is_one_character_in_deltas_and_answer() -> None:
    async def stream() -> AsyncIterator[str | ModelReply]:
        for piece in ("Tea \ud83c", "\udf75", "\ud83c", "!"):
            yield piece
        yield ModelReply(text="Tea \ud83c\udf75\ud83c!")

    script(stream)
    run = drive(request())
    deltas = [event.content["text"] for event in run.events if event.type is TurnEventType.LLM_DELTA]
    assert ("".join(deltas), run.texts()) == ("Tea 🍵?!", ["Tea 🍵?!"])
