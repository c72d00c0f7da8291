"""Makes a request valid for every provider, whatever a model has said before (rule 3.3).

A session keeps what its models said word for word. A provider rejects a request with a call whose name or id is outside
its alphabet, and would reject every later request of the session. The same request always becomes the same, so that
providers can cache its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Final

from agent_core.llm.protocol import ModelCall
from agent_core.text import fence
from agent_core.tool_spec import ToolSpec
from agent_core.types import Entry, Role, ToolCall, ToolOutcome, ToolResult

NO_RESULT: Final = "No result was recorded."
NO_TEXT: Final = "(no text)"


def valid_call(call: ModelCall) -> ModelCall:
    """Return the call as every provider takes it.

    Calls get the ids ``c00000001`` and so on: Mistral takes nine letters and digits only, others up to 40 or 64
    characters. A call of a tool that this request does not offer is told as text, and so is its result. No message is
    empty, and every call has one result.
    """
    offered = {tool.name for tool in (*call.tools, *((call.form,) if call.form else ()))}
    numbers = count(1)
    ids: dict[str, str] = {}  # of the last response's calls: the id in this request
    entries: list[Entry] = []
    for entry in with_all_results(call.entries):
        if entry.role is Role.TOOL:
            entries += _results(entry, ids)
            continue
        ids = {each.id: f"c{next(numbers):08}" for each in entry.calls if each.name in offered}
        told = [_as_text(each) for each in entry.calls if each.id not in ids]
        content = "\n".join(filter(str.strip, (entry.content, *told)))
        calls = tuple(_valid(each, ids[each.id]) for each in entry.calls if each.id in ids)
        if content or calls or entry.images:
            entries.append(replace(entry, content=content, calls=calls))
    if not entries or entries[-1].role is Role.ASSISTANT:
        entries.append(Entry(role=Role.USER, content=NO_TEXT))
    return replace(call, entries=tuple(entries))


def with_all_results(entries: Iterable[Entry]) -> list[Entry]:
    """Add a result to each tool call without one, and drop results without a call."""
    closed: list[Entry] = []
    waiting: dict[str, ToolCall] = {}
    for entry in entries:
        if entry.role is Role.TOOL:
            results = tuple(result for result in entry.results if waiting.pop(result.id, None))
            if results:
                closed.append(replace(entry, content="", results=results))
            continue
        closed.extend(_missing(waiting))
        waiting = {call.id: call for call in entry.calls}
        closed.append(entry)
    closed.extend(_missing(waiting))
    return closed


def shown_output(result: ToolResult) -> str:
    """The output, fenced as data unless it is the server's own text about a refused or interrupted call."""
    is_data = result.outcome is ToolOutcome.OK or result.foreign
    return fence.fenced(f"result of {result.name}", result.output) if is_data else result.output


def _missing(waiting: dict[str, ToolCall]) -> list[Entry]:
    if not waiting:
        return []
    results = tuple(
        ToolResult(id=call.id, name=call.name, output=NO_RESULT, outcome=ToolOutcome.UNKNOWN)
        for call in waiting.values()
    )
    return [Entry(role=Role.TOOL, content="", results=results)]


def _results(entry: Entry, ids: dict[str, str]) -> list[Entry]:
    """The results with their calls' ids. Results of calls that became text are a message of their own."""
    results = tuple(replace(each, id=ids[each.id]) for each in entry.results if each.id in ids)
    told = [
        f"[The call of {json.dumps(each.name)} returned:]\n{shown_output(each)}"
        for each in entry.results
        if each.id not in ids
    ]
    shown = [replace(entry, results=results)] if results else []
    return [*shown, Entry(role=Role.USER, content="\n".join(told))] if told else shown


def _valid(call: ToolCall, call_id: str) -> ToolCall:
    """The call under this id. Arguments that are no JSON object become one, because some providers parse them."""
    if call.unparsed is None:
        return replace(call, id=call_id)
    return replace(call, id=call_id, arguments={"unparsed": call.unparsed}, unparsed=None)


def _as_text(call: ToolCall) -> str:
    given = json.dumps(call.arguments, ensure_ascii=False) if call.unparsed is None else call.unparsed
    return f"[Called {json.dumps(call.name)} with {given}]"


def form_as_text(form: ToolSpec, tools: Iterable[ToolSpec]) -> str:
    """Describe the form and the tools that it may name."""
    listed = "\n".join(_tool(tool) for tool in tools) or "(none)"
    return (
        f"# Tools\n\n{listed}\n\n# Form {form.name}\n\n{form.description} You cannot call it here. Answer with one JSON"
        f" object of this schema and with nothing else:\n{_json(form.parameters)}"
    )


def with_form_as_text(call: ModelCall) -> ModelCall:
    """Return the call with its form and tools described at the end of its last message."""
    if call.form is None or not call.entries:
        return call
    *before, last = call.entries
    asked = replace(last, content=f"{last.content}\n\n{form_as_text(call.form, call.tools)}")
    return replace(call, entries=(*before, asked), tools=(), form=None)


def _tool(tool: ToolSpec) -> str:
    return f"- {tool.name}: {' '.join(tool.description.split())}\n  arguments: {_json(tool.parameters)}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
