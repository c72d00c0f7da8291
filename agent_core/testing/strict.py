"""What OpenAI, Anthropic, Google and Mistral reject, in one server: a request that passes here passes at each of them.

The rules are those of names, ids, schemas, roles and sizes, and no message may be empty. See ``ModelServer.strict``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, Final
from urllib.parse import urlsplit

from agent_core.testing.responses import Responses
from agent_core.types import JSON

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # Google: no digit first; OpenAI: 64 at most
_ID: Final = re.compile(r"[A-Za-z0-9]{9}")  # Mistral; Google sends none
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # Anthropic, of properties
_NOT_ON_TOP: Final = {"anyOf", "oneOf", "allOf", "enum", "not"}
NO_ID: Final = "000000000"  # of a call without one
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
    where = urlsplit(path).path
    if where.endswith("/v1/messages"):
        said, tools = _anthropic(body), [(each, each.get("input_schema")) for each in body.get("tools") or ()]
    elif ":streamGenerateContent" in path:
        said = _google(body)
        told = [each for tool in body.get("tools") or () for each in tool.get("functionDeclarations") or ()]
        tools = [(each, each.get("parametersJsonSchema") or each.get("parameters")) for each in told]
    elif where.endswith("/v1/responses"):
        said = _openai(Responses().chat_body(path, body))
        tools = [(each, each.get("parameters")) for each in body.get("tools") or ()]
    else:
        said = _openai(body)
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


def _openai(body: Mapping[str, Any]) -> list[_Said]:
    said: list[_Said] = []
    for message in body.get("messages") or ():
        if message["role"] in {"system", "developer"}:
            continue
        one = _Said(role=message["role"])
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        one.texts = [each["text"] for each in blocks if each["type"] == "text"]
        one.shows = any(each["type"] in {"image_url", "input_image"} for each in blocks)
        for call in message.get("tool_calls") or ():
            one.calls.append((call["id"], call["function"]["name"], call["function"]["arguments"]))
        if one.role == "tool":
            one.results = [message["tool_call_id"]]
        if said and said[-1].role == one.role == "tool":
            said[-1].results += one.results
        else:
            said.append(one)
    return said


def _anthropic(body: Mapping[str, Any]) -> list[_Said]:
    said: list[_Said] = []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        one = _Said(role=message["role"])
        one.texts = [each["text"] for each in blocks if each["type"] == "text"]
        one.calls = [
            (each["id"], each["name"], each["input"]) for each in blocks if each["type"] == "tool_use"
        ]
        results = [each["tool_use_id"] for each in blocks if each["type"] == "tool_result"]
        one.shows = any(each["type"] == "image" for each in blocks)
        if results:
            said.append(_Said(role="tool", results=results))
        if one.texts or one.calls or one.shows or not results:
            said.append(one)
    return said


def _google(body: Mapping[str, Any]) -> list[_Said]:
    said: list[_Said] = []
    for content in body["contents"]:
        one = _Said(role="assistant" if content.get("role") == "model" else "user")
        results = []
        for part in content["parts"]:
            if "functionCall" in part:
                call = part["functionCall"]
                one.calls.append((call.get("id") or NO_ID, call["name"], call.get("args") or {}))
            elif "functionResponse" in part:
                results.append(part["functionResponse"].get("id") or NO_ID)
            elif "text" in part:
                one.texts.append(part["text"])
            else:
                one.shows = True
        if results:
            said.append(_Said(role="tool", results=results))
        if one.texts or one.calls or one.shows or not results:
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
