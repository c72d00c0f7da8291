"""The wires of providers for the test server: each request is read as a chat-completions body, and each reply is
written as that provider writes it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from agent_core.llm.protocol import ModelCall, ModelReply, read_call
from agent_core.offline import model
from agent_core.text import fence
from agent_core.tool_spec import ToolSpec
from agent_core.types import JSON, Ended, Entry, Role, ToolCall, ToolOutcome, ToolResult

NO_ID = "000000000"  # of a call without one
_CREATED = 1_700_000_000  # fixed: answers are the same each time
HEAD: JSON = {"id": "c", "object": "chat.completion.chunk", "created": _CREATED, "model": "m"}


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


def chunk(delta: JSON, reason: str | None = None) -> JSON:
    """Return one chunk of a chat completion."""
    return HEAD | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def chunks(body: Mapping[str, Any], reply: ModelReply, thought: str) -> Iterator[JSON]:
    """Yield the chunks of a streamed answer; the text in a few pieces, each a chunk."""
    yield chunk({"role": "assistant", "content": ""})
    for piece in model.pieces(thought):
        yield chunk({"reasoning_content": piece})
    for piece in model.pieces(reply.text):
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        function = {"name": call.name, "arguments": _arguments(call)}
        yield chunk(
            {"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]}
        )
    if reply.ended_by is Ended.CUT:
        return
    yield chunk({}, _reason(reply))
    if (body.get("stream_options") or {}).get("include_usage"):
        given, made = reply.usage.input_tokens, reply.usage.output_tokens
        usage = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
        yield HEAD | {"choices": [], "usage": usage}


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


def _arguments(call: ToolCall) -> str:
    return json.dumps(call.arguments) if call.unparsed is None else call.unparsed


def _reason(reply: ModelReply) -> str:
    reasons = {Ended.LENGTH: "length", Ended.FILTER: "content_filter", Ended.REFUSAL: "refusal"}
    return reasons.get(reply.ended_by, "tool_calls" if reply.calls else "stop")


@dataclass(slots=True)
class Received:
    """One request to the model, and its state."""

    body: JSON
    state: str = "received"
    marks: dict[str, str] = field(default_factory=dict)
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)


Events = Iterator[JSON]  # the data of a stream's events; a `type` is the event's name, too


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
            {"function": {**each, "parameters": each["input_schema"]}} for each in body.get("tools") or ()
        ]
        return {**body, "messages": messages, "tools": tools, "tool_choice": None}

    def events(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> Events:
        """Yield the events of a streamed reply."""
        usage = {"input_tokens": reply.usage.input_tokens, "output_tokens": 0}
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": []}
        nothing = {"stop_reason": None, "stop_sequence": None, "usage": usage}
        yield {"type": "message_start", "message": head | nothing}
        for index, (block, deltas) in enumerate(_anthropic_blocks(reply, thought)):
            empty = {name: "" for name in ("text", "thinking", "signature") if name in block}
            start = block | empty | ({"input": {}} if block["type"] == "tool_use" else {})
            yield {"type": "content_block_start", "index": index, "content_block": start}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        stop = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
        used = {"output_tokens": reply.usage.output_tokens}
        yield {"type": "message_delta", "delta": stop, "usage": used}
        yield {"type": "message_stop"}


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
    return _chat_messages(
        role, [each for each in blocks if each["type"] in {"text", "image"}], calls, results
    )


def _chat_messages(role: str, content: list[JSON], calls: list[JSON], results: list[JSON]) -> list[JSON]:
    """What one message of another wire is in a chat completion: first its results, then what was said."""
    said: JSON = {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}
    return [*results, *([said] if content or calls or not results else [])]


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
        raw = {"type": "input_json_delta", "partial_json": _arguments(call)}
        blocks.append((block, [raw]))
    return blocks


class Google:
    """Google's Gemini API, streamed."""

    def chat_body(self, path: str, body: Mapping[str, Any]) -> JSON:
        """Return the request as a chat-completions body."""
        system = (body.get("systemInstruction") or {}).get("parts") or ()
        messages: list[JSON] = [{"role": "system", "content": _joined(system)}] if system else []
        for content in body["contents"]:
            messages += _google_messages(content)
        told = [each for tool in body.get("tools") or () for each in tool.get("functionDeclarations") or ()]
        schemas = [each.get("parametersJsonSchema") or each.get("parameters") for each in told]
        tools = [{"function": {**each, "parameters": of}} for each, of in zip(told, schemas, strict=True)]
        name = urlsplit(path).path.rpartition("/models/")[2].partition(":")[0]
        return {**body, "model": name, "messages": messages, "tools": tools}

    def events(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> Events:
        """Yield the events of a streamed reply."""
        parts: list[JSON] = [{"text": each, "thought": True} for each in model.pieces(thought)]
        parts += [{"text": each} for each in model.pieces(reply.text)]
        parts += [{"functionCall": {"name": each.name, "args": each.arguments}} for each in reply.calls]
        given, made = reply.usage.input_tokens, reply.usage.output_tokens
        usage = {"promptTokenCount": given, "candidatesTokenCount": made, "totalTokenCount": given + made}
        for part in parts:
            yield {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}
        end = {"index": 0, "content": {"role": "model", "parts": []}, "finishReason": "STOP"}
        yield {"candidates": [end], "usageMetadata": usage, "modelVersion": body["model"]}


def _google_messages(content: JSON) -> list[JSON]:
    said, calls, results = list[JSON](), list[JSON](), list[JSON]()
    for part in content["parts"]:
        if call := part.get("functionCall"):
            function = {"name": call["name"], "arguments": json.dumps(call.get("args") or {})}
            calls.append({"id": call.get("id") or NO_ID, "function": function})
        elif given := part.get("functionResponse"):
            text = json.dumps(given["response"])
            results.append({"role": "tool", "tool_call_id": given.get("id") or NO_ID, "content": text})
        else:
            said.append({"type": "text" if "text" in part else "image", **part})
    return _chat_messages("assistant" if content.get("role") == "model" else "user", said, calls, results)


def _joined(parts: Any) -> str:
    return parts if isinstance(parts, str) else "".join(each.get("text") or "" for each in parts)


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

    def events(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> Events:
        """Yield the events of a streamed reply."""
        for number, data in enumerate(self._events(body, reply, thought)):
            yield data | {"sequence_number": number}

    def _events(self, body: Mapping[str, Any], reply: ModelReply, thought: str) -> Events:
        yield {"type": "response.created", "response": _response(body, reply, [], "in_progress")}
        items = _items(reply, thought)
        for index, item in enumerate(items):
            place: JSON = {"output_index": index, "item_id": item["id"]}
            yield {"type": "response.output_item.added", "output_index": index, "item": item | _empty(item)}
            if item["type"] == "message":
                part = {"content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}}
                yield {"type": "response.content_part.added", **place, **part}
                for piece in model.pieces(reply.text):
                    of = {"type": "response.output_text.delta", "content_index": 0, "logprobs": []}
                    yield place | of | {"delta": piece}
            elif item["type"] == "reasoning":
                part = {"summary_index": 0, "part": {"type": "summary_text", "text": ""}}
                yield {"type": "response.reasoning_summary_part.added", **place, **part}
                for piece in model.pieces(thought):
                    kind = "response.reasoning_summary_text.delta"
                    yield place | {"type": kind, "summary_index": 0, "delta": piece}
            else:
                yield place | {"type": "response.function_call_arguments.delta", "delta": item["arguments"]}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": _response(body, reply, items, "completed")}


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
        about = {"id": f"fc_{number}", "call_id": call.id, "name": call.name}
        about["arguments"] = _arguments(call)
        items.append({"type": "function_call", "status": "completed", **about})
    return items


def _empty(item: JSON) -> JSON:
    """The fields that are empty when an item begins."""
    empty: JSON = {"status": "in_progress"}
    return empty | {name: type(item[name])() for name in ("content", "summary", "arguments") if name in item}


def _response(body: Mapping[str, Any], reply: ModelReply, output: list[JSON], status: str) -> JSON:
    given, made = reply.usage.input_tokens, reply.usage.output_tokens
    usage: JSON = {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    about = {"id": "resp_1", "object": "response", "created_at": _CREATED, "status": status}
    model_name = str(body.get("model") or "test")
    told = {"model": model_name, "output": output, "usage": usage if status == "completed" else None}
    return about | told | {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


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


Dialect = Anthropic | Google | Responses


def dialect_of(path: str) -> Dialect | None:
    """Return the dialect of a request's path. None: chat completions."""
    where = urlsplit(path).path
    if where.endswith("/v1/messages"):
        return Anthropic()
    if where.endswith("/v1/responses"):
        return Responses()
    return Google() if ":streamGenerateContent" in path else None
