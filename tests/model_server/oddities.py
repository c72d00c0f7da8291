"""Odd replies that the test server can give, and the requests that it rejects as strict providers do."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, Final
from urllib.parse import urlsplit

from agent_core.llm.protocol import ModelReply
from agent_core.types import JSON, ToolCall
from tests.model_server import wire
from tests.model_server.wire import NO_ID, Anthropic, Google, Responses, dialect_of

DONE: Final = "data: [DONE]\n\n"


@dataclass(frozen=True, kw_only=True)
class Odd:
    """A body of status 200, in the pieces in which it is sent. It then ends as a whole one does."""

    pieces: Iterable[str]
    content_type: str = "text/event-stream"


def sse(data: Any, name: str = "") -> str:
    """Return an event of a stream."""
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"


def chunk(delta: JSON, reason: str | None = None) -> str:
    """Return one chunk of a chat completion as an event."""
    return sse(wire.chunk(delta, reason))


def chat(*deltas: JSON | str, reason: str | None = "stop", done: bool = True) -> Odd:
    """Return a chat completion of these deltas; a text stands for one of text."""
    pieces = [chunk({"content": each} if isinstance(each, str) else each) for each in deltas]
    end = [chunk({}, reason)] if reason is not None else []
    return Odd(pieces=[*pieces, *end, *([DONE] if done else [])])


def call_piece(index: int | None, call_id: str | None, name: str | None, arguments: str | None) -> JSON:
    """Return a delta with a piece of a tool call. What is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    piece = {"index": index, "id": call_id, "type": "function", "function": function}
    return {"tool_calls": [{key: value for key, value in piece.items() if value is not None}]}


def _sent(events: Iterable[JSON]) -> Odd:
    return Odd(pieces=[sse(each, each.get("type", "")) for each in events])


def anthropic(*texts: str, reason: str | None = "end_turn", tool: str | None = None) -> Odd:
    """Return a message of Anthropic; with `tool`, the JSON of a call's arguments as far as it came."""
    calls = () if tool is None else (ToolCall(id="t", name="write", arguments={}, unparsed=tool),)
    reply = ModelReply(text="".join(texts), calls=calls)
    *events, last, end = Anthropic().events({"model": "m"}, reply, "")
    last["delta"]["stop_reason"] = reason
    return _sent(events[:-1] if reason is None else [*events, last, end])


def google(*texts: str, reason: str | None = "STOP", blocked: str = "") -> Odd:
    """Return an answer of Google; `blocked`: why the prompt was not answered."""
    *events, end = Google().events({"model": "m"}, ModelReply(text="".join(texts)), "")
    end["candidates"][0]["finishReason"] = reason
    if blocked:
        end = {"promptFeedback": {"blockReason": blocked}}
    return _sent(events if reason is None else [*events, end])


def responses(*texts: str, status: str | None = "completed", reason: str = "", refusal: str = "") -> Odd:
    """Return a response of OpenAI's Responses API, which ends with this status."""
    *events, end = Responses().events({"model": "m"}, ModelReply(text="".join(texts)), "")
    if refusal:
        of = {"item_id": "i", "output_index": 0, "content_index": 0, "sequence_number": len(events)}
        events.append({"type": "response.refusal.done", "refusal": refusal, **of})
    if status is None:
        return _sent(events[:-1])
    end["type"], end["response"]["status"] = f"response.{status}", status
    end["response"] |= {"incomplete_details": {"reason": reason}} if reason else {}
    return _sent([*events, end])


def plain(texts: Iterable[str]) -> Odd:
    """Return a body that is no stream."""
    return Odd(pieces=texts, content_type="application/json")


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # Google: no digit first; OpenAI: 64 at most
_ID: Final = re.compile(r"[A-Za-z0-9]{9}")  # Mistral; Google sends none
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # Anthropic, of properties
_NOT_ON_TOP: Final = {"anyOf", "oneOf", "allOf", "enum", "not"}
MOST_TOOLS: Final = 128  # OpenAI
LONGEST_DESCRIPTION: Final = 1024  # OpenAI


@dataclass(kw_only=True)
class _Said:
    """A message of a request: its role (user, assistant, tool), texts, calls (id, name, arguments) and result ids."""

    role: str
    texts: list[str] = field(default_factory=list)
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    shows: bool = False  # an image


def problem(path: str, body: Mapping[str, Any]) -> str:
    """Say why the request would be rejected; empty if it would not."""
    dialect = dialect_of(path)
    body = dialect.chat_body(path, body) if dialect else body
    said = _said(body)
    tools = [(each["function"], each["function"].get("parameters")) for each in body.get("tools") or ()]
    offered = {tool["name"] for tool, _ in tools}
    found = (_wrong_tools(tools), _wrong_order(said), *(_wrong_message(one, offered) for one in said))
    return next(chain.from_iterable(found), "")


def error(path: str, status: int, text: str, code: str) -> JSON:
    """Return an error as the provider of this path words it."""
    if urlsplit(path).path.endswith("/v1/messages"):
        return {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
    if ":streamGenerateContent" in path:
        return {"error": {"code": status, "message": text, "status": "INVALID_ARGUMENT"}}
    return {"error": {"message": text, "type": "invalid_request_error", "param": None, "code": code or None}}


def too_long(path: str, sent: int, most: int) -> str:
    """Return the words with which the provider of this path says that a request is longer than the context."""
    if urlsplit(path).path.endswith("/v1/messages"):
        return f"prompt is too long: {sent} tokens > {most} maximum"
    if ":streamGenerateContent" in path:
        return f"The input token count ({sent}) exceeds the maximum number of tokens allowed ({most})."
    return f"This model's maximum context length is {most} tokens. However, your messages resulted in {sent} tokens."


def _said(body: Mapping[str, Any]) -> list[_Said]:
    said: list[_Said] = []
    for message in body.get("messages") or ():
        if message["role"] in {"system", "developer"}:
            continue
        one = _Said(role=message["role"])
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        one.texts = [each["text"] for each in blocks if each["type"] == "text"]
        one.shows = any(each["type"] in {"image", "image_url", "input_image"} for each in blocks)
        for call in message.get("tool_calls") or ():
            one.calls.append((call["id"], call["function"]["name"], call["function"]["arguments"]))
        if one.role == "tool":
            one.results = [message["tool_call_id"]]
        if said and said[-1].role == one.role == "tool":
            said[-1].results += one.results
        else:
            said.append(one)
    return said


def _wrong_tools(tools: list[tuple[Mapping[str, Any], Any]]) -> Iterator[str]:
    if len(tools) > MOST_TOOLS:
        yield f"Invalid 'tools': array too long. Expected at most {MOST_TOOLS} but got {len(tools)}."
    names = [tool["name"] for tool, _ in tools]
    if len(names) != len(set(names)):
        yield "Tool names must be unique."
    for tool, schema in tools:
        if not _NAME.fullmatch(tool["name"]):
            yield f"Invalid function name {tool['name']!r}."
        if len(tool.get("description") or "") > LONGEST_DESCRIPTION:
            yield f"The description of {tool['name']!r} is too long."
        if schema and (str(schema.get("type")).lower() != "object" or _NOT_ON_TOP & schema.keys()):
            yield f"Invalid schema for {tool['name']!r}: the top level must be a plain object."
        yield from (f"Invalid schema for {tool['name']!r}: {each}" for each in _wrong_schema(schema))


def _wrong_schema(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _wrong_schema(each)
    if not isinstance(schema, dict):
        return
    if str(schema.get("type")).lower() == "array" and "items" not in schema:
        yield "array schema missing items."
    for key in schema.get("properties") or ():
        if not _KEY.fullmatch(key):
            yield f"property keys must match {_KEY.pattern}: {key!r}."
    for value in schema.values():
        yield from _wrong_schema(value)


def _wrong_order(said: list[_Said]) -> Iterator[str]:
    """Wrong is who speaks when, and a call or a result without the other."""
    if not said or said[0].role != "user":
        yield "The first message must be the user's."
    if said and said[-1].role == "assistant":
        yield "Expected last role user or tool, but got assistant."
    for before, one in pairwise((_Said(role=""), *said, _Said(role=""))):
        if before.role == one.role == "assistant":
            yield "Roles must alternate: two messages of the assistant."
        asked = sorted(call_id for call_id, _, _ in before.calls)
        if sorted(one.results) != asked:
            yield f"Results {one.results} do not answer the calls {asked} of the message before."
    ids = [call_id for one in said for call_id, _, _ in one.calls if call_id != NO_ID]
    if len(ids) != len(set(ids)):
        yield "A tool call id is used twice."


def _wrong_message(one: _Said, offered: set[str]) -> Iterator[str]:
    if not (one.texts or one.calls or one.results or one.shows):
        yield f"A message of the {one.role} has no content."
    if one.role != "tool" and any(not text.strip() for text in one.texts):
        yield "Text content blocks must be non-empty."
    for call_id, name, arguments in one.calls:
        if not _ID.fullmatch(call_id):
            yield f"Tool call id was {call_id!r} but must be a-z, A-Z, 0-9, with a length of 9."
        if not _NAME.fullmatch(name):
            yield f"Invalid 'tool_calls[].function.name': {name!r} does not match the pattern."
        elif name not in offered:
            yield f"The request calls {name!r}, but has no such tool."
        if not _is_object(arguments):
            yield f"The arguments of {name!r} are not a JSON object."


def _is_object(arguments: Any) -> bool:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return False
    return isinstance(arguments, dict)
