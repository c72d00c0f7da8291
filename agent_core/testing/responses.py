"""OpenAI's Responses API for the test server: as in ``dialects.py``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_core.llm.protocol import ModelReply
from agent_core.offline import model
from agent_core.testing.dialects import Events
from agent_core.types import JSON


class Responses:
    """OpenAI's Responses API."""

    def chat_body(self, _path: str, body: Mapping[str, Any]) -> JSON:
        """Return the request as a chat-completions body."""
        messages: list[JSON] = []
        if given := body.get("instructions"):
            messages.append({"role": "system", "content": given})
        for item in body["input"]:
            if item.get("type") == "function_call":
                function = {"name": item["name"], "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                if messages and messages[-1]["role"] == "assistant":
                    messages[-1].setdefault("tool_calls", []).append(call)
                else:
                    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            elif item.get("type") == "function_call_output":
                messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
            else:
                _add(messages, item["role"], _parts(item["content"]))
        tools = [{"type": "function", "function": each} for each in body.get("tools") or ()]
        return {**body, "messages": messages, "tools": tools, "tool_choice": None}

    def answer(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> JSON:
        """Return the reply to a request that does not stream."""
        return _response(body, reply, _items(reply, thought), "completed")

    def events(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> Events:
        """Yield the events of a streamed reply."""
        numbered = enumerate(self._events(body, reply, thought))
        for number, (kind, data) in numbered:
            yield kind, {"type": kind, "sequence_number": number, **data}

    def _events(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> Events:
        yield "response.created", {"response": _response(body, reply, [], "in_progress")}
        items = _items(reply, thought)
        for index, item in enumerate(items):
            place = {"output_index": index, "item_id": item["id"]}
            yield "response.output_item.added", {"output_index": index, "item": item | _empty(item)}
            if item["type"] == "message":
                part = {"content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}}
                yield "response.content_part.added", place | part
                for piece in model.pieces(reply.text):
                    yield (
                        "response.output_text.delta",
                        place | {"content_index": 0, "delta": piece, "logprobs": []},
                    )
            elif item["type"] == "reasoning":
                part = {"summary_index": 0, "part": {"type": "summary_text", "text": ""}}
                yield "response.reasoning_summary_part.added", place | part
                for piece in model.pieces(thought):
                    yield (
                        "response.reasoning_summary_text.delta",
                        place | {"summary_index": 0, "delta": piece},
                    )
            else:
                yield "response.function_call_arguments.delta", place | {"delta": item["arguments"]}
            yield "response.output_item.done", {"output_index": index, "item": item}
        yield "response.completed", {"response": _response(body, reply, items, "completed")}


def _items(reply: ModelReply, thought: str) -> list[JSON]:
    items: list[JSON] = []
    if thought:
        summary = [{"type": "summary_text", "text": thought}]
        items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "status": "completed"})
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        items.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        )
    for number, call in enumerate(reply.calls):
        arguments = json.dumps(call.arguments) if call.unparsed is None else call.unparsed
        about = {"id": f"fc_{number}", "call_id": call.id, "name": call.name, "arguments": arguments}
        items.append({"type": "function_call", "status": "completed", **about})
    return items


def _empty(item: JSON) -> JSON:
    """The fields that are empty when an item begins."""
    empty: JSON = {"status": "in_progress"}
    return empty | {name: type(item[name])() for name in ("content", "summary", "arguments") if name in item}


def _response(body: Mapping[str, Any], reply: ModelReply, output: list[JSON], status: str) -> JSON:
    given, made = reply.usage.input_tokens, reply.usage.output_tokens
    usage = {
        "input_tokens": given,
        "output_tokens": made,
        "total_tokens": given + made,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "model": str(body.get("model") or "test"),
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage if status == "completed" else None,
    }


def _add(messages: list[JSON], role: str, parts: list[JSON]) -> None:
    """Add a message. What the assistant says in a row are items here, and one message there."""
    if messages and messages[-1]["role"] == role == "assistant":
        messages[-1]["content"] = [*(messages[-1]["content"] or ()), *parts]
    else:
        messages.append({"role": role, "content": parts})


def _parts(content: Any) -> list[JSON]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [
        each | {"type": "text"} if each["type"] in {"input_text", "output_text"} else each for each in content
    ]
