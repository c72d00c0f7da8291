"""The wires of other providers for the test server: each request is read as a chat-completions body, and each reply
is written as that provider writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from agent_core.llm.protocol import ModelReply
from agent_core.offline import model
from agent_core.types import JSON

Events = Iterator[tuple[str, JSON]]  # name of an event of a stream, which may be empty, and its data


class Anthropic:
    """Anthropic's Messages API."""

    def chat_body(self, _path: str, body: Mapping[str, Any]) -> JSON:
        """Return the request as a chat-completions body."""
        system = body.get("system") or ""
        messages: list[JSON] = [{"role": "system", "content": _joined(system)}] if system else []
        for message in body["messages"]:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            messages += _anthropic_messages(message["role"], blocks)
        tools = [
            {"function": {"name": each["name"], "parameters": each["input_schema"]}}
            for each in body.get("tools") or ()
        ]
        sent = {"sent_messages": body["messages"]}  # as they came, with images
        return {**body, **sent, "messages": messages, "tools": tools, "tool_choice": None}

    def answer(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> JSON:
        """Return the reply to a request that does not stream."""
        return _anthropic_head(body) | {
            "content": [block for block, _ in _anthropic_blocks(reply, thought)],
            "stop_reason": "tool_use" if reply.calls else "end_turn",
            "usage": {"input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens},
        }

    def events(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> Events:
        """Yield the events of a streamed reply."""
        usage = {"input_tokens": reply.usage.input_tokens, "output_tokens": 0}
        yield (
            "message_start",
            {"type": "message_start", "message": _anthropic_head(body) | {"content": [], "usage": usage}},
        )
        for index, (block, deltas) in enumerate(_anthropic_blocks(reply, thought)):
            empty = {name: "" for name in ("text", "thinking", "signature") if name in block}
            start = block | empty | ({"input": {}} if block["type"] == "tool_use" else {})
            yield (
                "content_block_start",
                {"type": "content_block_start", "index": index, "content_block": start},
            )
            for delta in deltas:
                yield (
                    "content_block_delta",
                    {"type": "content_block_delta", "index": index, "delta": delta},
                )
            yield "content_block_stop", {"type": "content_block_stop", "index": index}
        stop = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
        used = {"output_tokens": reply.usage.output_tokens}
        yield "message_delta", {"type": "message_delta", "delta": stop, "usage": used}
        yield "message_stop", {"type": "message_stop"}


def _anthropic_head(body: Mapping[str, Any]) -> JSON:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _anthropic_messages(role: str, blocks: list[JSON]) -> list[JSON]:
    results = [
        {"role": "tool", "tool_call_id": each["tool_use_id"], "content": _joined(each.get("content") or "")}
        for each in blocks
        if each["type"] == "tool_result"
    ]
    calls = [
        {"id": each["id"], "function": {"name": each["name"], "arguments": json.dumps(each["input"])}}
        for each in blocks
        if each["type"] == "tool_use"
    ]
    text = _joined([each for each in blocks if each["type"] == "text"])
    said = {"role": role, "content": text, **({"tool_calls": calls} if calls else {})}
    return [*results, *([said] if text or calls else [])]


def _anthropic_blocks(reply: ModelReply, thought: str) -> list[tuple[JSON, list[JSON]]]:
    """The blocks of a reply, each with the pieces in which it is streamed."""
    blocks: list[tuple[JSON, list[JSON]]] = []
    if thought:
        pieces: list[JSON] = [{"type": "thinking_delta", "thinking": each} for each in model.pieces(thought)]
        pieces.append({"type": "signature_delta", "signature": "signed"})
        blocks.append(({"type": "thinking", "thinking": thought, "signature": "signed"}, pieces))
    if reply.text:
        pieces = [{"type": "text_delta", "text": each} for each in model.pieces(reply.text)]
        blocks.append(({"type": "text", "text": reply.text}, pieces))
    for call in reply.calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        raw = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        blocks.append((block, [raw]))
    return blocks


class Google:
    """Google's Gemini API, streamed."""

    def chat_body(self, path: str, body: Mapping[str, Any]) -> JSON:
        """Return the request as a chat-completions body."""
        system = (body.get("systemInstruction") or {}).get("parts") or ()
        messages: list[JSON] = [{"role": "system", "content": _joined(system)}] if system else []
        for content in body["contents"]:
            role = "assistant" if content.get("role") == "model" else "user"
            messages.append({"role": role, "content": _joined(content["parts"])})
        name = urlsplit(path).path.rpartition("/models/")[2].partition(":")[0]
        return {**body, "model": name, "messages": messages, "stream": True, "tools": None}

    def answer(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> JSON:
        """Return the whole reply in one piece."""
        return {"candidates": [piece["candidates"][0] for _, piece in self.events(body, reply, thought)][:1]}

    def events(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> Events:
        """Yield the events of a streamed reply."""
        parts: list[JSON] = [{"text": each, "thought": True} for each in model.pieces(thought)]
        parts += [{"text": each} for each in model.pieces(reply.text)]
        parts += [{"functionCall": {"name": each.name, "args": each.arguments}} for each in reply.calls]
        given, made = reply.usage.input_tokens, reply.usage.output_tokens
        usage = {"promptTokenCount": given, "candidatesTokenCount": made, "totalTokenCount": given + made}
        for part in parts:
            yield "", {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}
        end = {"index": 0, "content": {"role": "model", "parts": []}, "finishReason": "STOP"}
        yield "", {"candidates": [end], "usageMetadata": usage, "modelVersion": body["model"]}


def dialect_of(path: str) -> Anthropic | Google | None:
    """Return the dialect of a request's path. None: chat completions."""
    if urlsplit(path).path.endswith("/v1/messages"):
        return Anthropic()
    return Google() if ":streamGenerateContent" in path else None


def _joined(parts: Any) -> str:
    return parts if isinstance(parts, str) else "".join(each.get("text") or "" for each in parts)
