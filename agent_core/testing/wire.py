"""Translates between OpenAI's chat-completions JSON and our types, for the test server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_core.ended import Ended
from agent_core.llm.protocol import ModelCall, ModelReply, read_call
from agent_core.offline import model
from agent_core.text import fence
from agent_core.tool_spec import ToolSpec
from agent_core.types import JSON, Entry, Role, ToolCall, ToolOutcome, ToolResult

_CREATED = 1_700_000_000  # fixed: answers are the same each time


def model_call(body: Mapping[str, Any]) -> ModelCall:
    """Read a request body. A forced call becomes the form. The outcomes of tools are only ok and failed."""
    system: list[str] = []
    entries: list[Entry] = []
    names: dict[str, str] = {}
    for message in body.get("messages") or ():
        role = message.get("role")
        if role in {"system", "developer"}:
            system.append(_text(message))
        elif role == "user":
            entries.append(Entry(role=Role.USER, content=_text(message)))
        elif role == "assistant":
            calls = tuple(
                read_call(call["id"], call["function"]["name"], call["function"].get("arguments") or "")
                for call in message.get("tool_calls") or ()
            )
            names.update({call.id: call.name for call in calls})
            entries.append(Entry(role=Role.ASSISTANT, content=_text(message), calls=calls))
        elif role == "tool":
            _add_result(entries, message, names)
    told = tuple(_spec(tool["function"]) for tool in body.get("tools") or ())
    forced = _forced(body.get("tool_choice"), told)
    return ModelCall(
        system_prompt="\n".join(system),
        entries=tuple(entries),
        tools=tuple(tool for tool in told if tool.name != forced),
        form=next((tool for tool in told if tool.name == forced), None),
    )


def _forced(choice: Any, told: tuple[ToolSpec, ...]) -> str:
    """The name of the tool that must be called, if there is one."""
    if isinstance(choice, Mapping):
        return str(choice["function"]["name"])
    return told[0].name if choice == "required" and len(told) == 1 else ""


def completion(body: Mapping[str, Any], reply: ModelReply, number: int) -> JSON:
    """Return the answer to a request that does not stream."""
    message: JSON = {"role": "assistant", "content": reply.text}
    if reply.calls:
        message["tool_calls"] = [_tool_call(call) for call in reply.calls]
    choice = {"index": 0, "message": message, "finish_reason": _reason(reply)}
    return {**_head(body, number, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def chunks(body: Mapping[str, Any], reply: ModelReply, number: int, thought: str = "") -> Iterator[JSON]:
    """Yield the chunks of a streamed answer; the text in a few pieces, each a chunk."""
    head = _head(body, number, "chat.completion.chunk")

    def chunk(delta: JSON, reason: str | None = None) -> JSON:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in model.pieces(thought):
        yield chunk({"reasoning_content": piece})
    for piece in model.pieces(reply.text):
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        yield chunk({"tool_calls": [{"index": index, **_tool_call(call)}]})
    if reply.ended_by is Ended.CUT:
        return
    yield chunk({}, _reason(reply))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _usage(reply)}


def last_user_text(body: Mapping[str, Any]) -> str:
    """Return the text of the last user message, or an empty string."""
    texts = [_text(message) for message in body.get("messages") or () if message.get("role") == "user"]
    return texts[-1] if texts else ""


def error(status: int, text: str) -> JSON:
    """Return an error body as OpenAI sends them."""
    return {"error": {"message": text, "type": "test_error", "code": f"status_{status}", "param": None}}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def _add_result(entries: list[Entry], message: Mapping[str, Any], names: dict[str, str]) -> None:
    """Add a result to the tool entry of its response, which the first result begins."""
    call_id = message.get("tool_call_id") or ""
    output, outcome = _outcome(_text(message))
    output = fence.without_fences(output)
    result = ToolResult(id=call_id, name=names.get(call_id, ""), output=output, outcome=outcome)
    earlier: tuple[ToolResult, ...] = ()
    if entries and entries[-1].role is Role.TOOL:
        earlier = entries.pop().results
    entries.append(Entry(role=Role.TOOL, content="", results=(*earlier, result)))


def _outcome(text: str) -> tuple[str, ToolOutcome]:
    """Read a tool's output. Our client wraps a failure as ``{"error": text}``."""
    try:
        wrapped = json.loads(text)
    except ValueError:
        return text, ToolOutcome.OK
    if isinstance(wrapped, dict) and list(wrapped) == ["error"]:
        return str(wrapped["error"]), ToolOutcome.FAILED
    return text, ToolOutcome.OK


def _spec(function: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(
        name=function["name"],
        description=function.get("description") or "",
        parameters=function.get("parameters") or {},
    )


def _tool_call(call: ToolCall) -> JSON:
    arguments = json.dumps(call.arguments) if call.unparsed is None else call.unparsed
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _head(body: Mapping[str, Any], number: int, kind: str) -> JSON:
    return {
        "id": f"chatcmpl-{number}",
        "object": kind,
        "created": _CREATED,
        "model": str(body.get("model") or "test"),
    }


def _reason(reply: ModelReply) -> str:
    reasons = {Ended.LENGTH: "length", Ended.FILTER: "content_filter", Ended.REFUSAL: "refusal"}
    return reasons.get(reply.ended_by, "tool_calls" if reply.calls else "stop")


def _usage(reply: ModelReply) -> JSON:
    given, made = reply.usage.input_tokens, reply.usage.output_tokens
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


@dataclass(slots=True)
class Received:
    """One request to the model, and its state."""

    number: int
    body: JSON
    authorized: bool
    state: str = "received"
    marks: dict[str, str] = field(default_factory=dict)
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> JSON:
        """Return what ``GET /control/requests`` shows."""
        return {"number": self.number, "body": self.body, "authorized": self.authorized, "state": self.state}
