"""Describes a form (structured output) as text, for providers that cannot force a tool call."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from agent_core.llm.protocol import ModelCall
from agent_core.tool_spec import ToolSpec


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
