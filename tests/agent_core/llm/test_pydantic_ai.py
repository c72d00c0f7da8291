"""The real client against a real HTTP server."""

import traceback
from typing import Any

import pytest

from agent_core import models, process
from agent_core.exceptions import ModelNotConfigured, ModelRefused
from agent_core.llm import protocol
from agent_core.llm.protocol import ModelCall
from agent_core.text import fence
from agent_core.types import Ending, ToolCall, ToolOutcome
from tests.agent_core.conftest import KEY
from tests.agent_core.fakes import Ports, assistant, drive, request, result_of, returned, spec, user
from tests.model_server import ModelServer

NETWORK = "openai-chat:local-model"
PROPERTIES = {
    "action": {"type": "string"},
    "message": {"type": "string"},
    "every_seconds": {"type": "integer"},
}
CRON = spec(
    "cron",
    description="Automations.",
    parameters={"type": "object", "properties": PROPERTIES, "required": ["action"]},
)


def test_a_tool_is_called_and_its_output_goes_back(server: ModelServer) -> None:
    ports = Ports(on_call=lambda _call: "Added job ab12.")
    run = drive(request("every 10 seconds check the repo", model=NETWORK, tools=(CRON,)), ports)
    assert ports.ran[0].arguments == {"action": "add", "message": "check the repo", "every_seconds": 10}
    assert run.result.reply == "Added job ab12. (offline model)"
    assert (run.result.usage.input_tokens, run.result.usage.requests) == (24, 2)
    first, second = server.requests
    assert first.body["tools"][0]["function"]["parameters"] == CRON.parameters
    assert "strict" not in first.body["tools"][0]["function"]
    assert second.body["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "c00000001",
        "content": fence.fenced("result of cron", "Added job ab12."),
    }


def test_every_kind_of_entry_reaches_the_server(server: ModelServer) -> None:
    call = ToolCall(id="c1", name="cron", arguments={"action": "list"})
    odd = ToolCall(id="c2", name="cron", arguments={}, unparsed="{oops")
    results = (result_of(call, "out c1", ToolOutcome.UNKNOWN), result_of(odd, "out c2", ToolOutcome.REFUSED))
    history = (
        assistant("I speak first."),
        user("one"),
        user("two"),
        assistant("calling", call, odd),
        returned(*results),
        assistant(""),
    )
    drive(request("hello", model=NETWORK, history=history, tools=(CRON,)))
    sent = server.requests[0].body["messages"]
    assert [one["role"] for one in sent] == [
        "system", "user", "assistant", "user", "user", "assistant", "tool", "tool", "user",
    ]  # fmt: skip
    assert [one["id"] for one in sent[5]["tool_calls"]] == ["c00000001", "c00000002"]
    assert [one["content"] for one in sent[6:8]] == ["out c1", "out c2"]


def test_unprompted_messages_keep_the_order_of_requests_and_responses(server: ModelServer) -> None:
    history = (
        assistant("Take the cake out."),
        assistant("Did you?"),
        user("Yes."),
        assistant("Fine."),
        assistant("Feed the cat."),
    )
    drive(request("Thanks.", model=NETWORK, history=history))
    sent = server.requests[0].body["messages"][1:]
    assert [one["role"] for one in sent] == ["user", "assistant", "user", "assistant", "user"]
    assert sent[0]["content"] == "(what was said before this, if anything, is not shown)"
    first, second = sent[1]["content"], sent[3]["content"]
    assert first.index("Take the cake out.") < first.index("Did you?")
    assert second.index("Fine.") < second.index("Feed the cat.")


STEPS = {"steps": {"type": "array", "items": {"type": "object"}}}
FORM = spec("make_plan", description="The plan.", parameters={"type": "object", "properties": STEPS})


def reply_of(name: str, message: str, **more: Any) -> protocol.ModelReply:
    """What a model gives that is asked this once."""
    call = ModelCall(system_prompt="s", entries=(user(message),), **more)

    async def last() -> object:
        return [item async for item in models.resolve(name).stream(call)][-1]

    reply = process.submit(last()).result(10)
    assert isinstance(reply, protocol.ModelReply)
    return reply


def filled_in(name: str, *, form_as_text: bool = False) -> protocol.ModelReply:
    """What a model gives that is asked for a form."""
    return reply_of(name, "plan it", tools=(CRON,), form=FORM, form_as_text=form_as_text)


@pytest.mark.rule("7.2")
def test_a_form_is_a_forced_call_offered_beside_the_tools(server: ModelServer) -> None:
    reply = filled_in(NETWORK)
    assert [call.name for call in reply.calls] == ["make_plan"]
    body = server.requests[0].body
    assert body["tool_choice"] == {"type": "function", "function": {"name": "make_plan"}}
    told = {tool["function"]["name"]: tool["function"]["parameters"] for tool in body["tools"]}
    assert told.keys() == {"cron", "make_plan"}
    assert told["cron"] == CRON.parameters
    assert told["make_plan"]["properties"].keys() == {"steps"}
    assert body["messages"][-1]["content"] == "plan it"


@pytest.mark.rule("7.2")
@pytest.mark.parametrize(
    ("name", "form_as_text"),
    [("openai-chat:qwen/qwen-3-coder", False), (NETWORK, True)],
    ids=["cannot", "refused"],
)
def test_form_and_tools_are_described_when_calls_cannot_be_forced(
    server: ModelServer, name: str, form_as_text: bool
) -> None:
    server.answer_with(protocol.ModelReply(text='{"steps": []}'))
    assert filled_in(name, form_as_text=form_as_text).text == '{"steps": []}'
    body = server.requests[0].body
    assert "tools" not in body
    asked = body["messages"][-1]["content"]
    assert asked.startswith("plan it\n\n# Tools\n\n- cron: Automations.")
    assert "# Form make_plan" in asked
    assert '"steps": {"items": {"type": "object"}, "type": "array"}' in asked


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    run = drive(request("hello", model="openai-chat:nobody-home"))
    assert run.result.error_code == "model_unavailable"
    assert run.types() == ["status", "status"]
    reason = "The model provider cannot be reached (connection refused)"
    assert run.result.error_text == f"{reason}; tried 3 times."
    assert [event.content["text"] for event in run.events] == [f"{reason}; trying again."] * 2


def test_the_key_is_in_no_message(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_core.llm.errors import translated
    from agent_core.llm.pydantic_ai import PydanticAiModel

    monkeypatch.setenv("OTHER_API_KEY", "another-secret-value")
    leak = f"Incorrect key: {KEY}, also another-secret-value, sk-abcdef123456, Bearer xyz.123"
    with pytest.raises(ModelNotConfigured) as refused:
        PydanticAiModel(leak)
    for error in (translated(RuntimeError(leak)), refused.value):
        for secret in (KEY, "another-secret-value", "sk-abcdef", "xyz.123"):
            assert secret not in str(error)
        assert error.__cause__ is None
    for status in (401, 503):
        run = drive(request(f"[[fail:{status}]] {KEY}", model=NETWORK))
        assert KEY not in f"{run.result.error_text} {run.result.error_detail}"


def test_a_printed_error_does_not_show_the_servers_response(server: ModelServer) -> None:
    with pytest.raises(ModelRefused) as refused:
        reply_of(NETWORK, "[[fail:401]] hello")
    printed = "".join(traceback.format_exception(refused.value))
    assert "ModelRefused" in printed
    assert "openai.AuthenticationError" not in printed


def test_openai_itself_needs_a_key_and_a_local_server_none(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    assert drive(request("hello", model="openai-chat:keyless")).result.ending is Ending.SUCCEEDED
    monkeypatch.delenv("OPENAI_BASE_URL")
    with pytest.raises(ModelNotConfigured, match="OPENAI_API_KEY"):
        models.resolve("openai-chat:gpt-5-mini")


def test_a_model_of_groq_needs_its_key_and_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    with pytest.raises(ModelNotConfigured, match="GROQ_API_KEY"):
        models.resolve("groq:llama")
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    assert models.resolve("groq:llama") is models.resolve("groq:llama")
