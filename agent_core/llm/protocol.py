"""Requests to a model and its replies, which are bounded, and cleaned before anything else reads them.

The work of the providers' client grows with the square of the number of a reply's parts: with 2,000 it takes a minute.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from agent_core.connections import DEFAULT, CallSettings, hooks
from agent_core.text.json_values import clean_text, clean_value
from agent_core.tool_spec import ToolSpec
from agent_core.types import Ended, Entry, ToolCall, Usage

MOST_CALLS: Final = 64  # of one reply
MOST_PARTS: Final = 256  # of one reply: calls, and pieces of text and reasoning that take turns
MOST_COUNTED: Final = 10**9  # tokens that a provider may report of one call


class Bounds:
    """How much may still come of one reply: characters, parts and calls."""

    def __init__(self) -> None:
        self.characters, self.calls, self.parts = hooks.reply_characters(), MOST_CALLS, MOST_PARTS

    def take(self, size: int, *, begins_part: bool, begins_call: bool) -> bool:
        """Count a piece. False: it does not fit, and only its first ``characters`` may still be taken."""
        if size > self.characters or (begins_call and not self.calls) or (begins_part and not self.parts):
            return False
        self.characters -= size
        self.calls -= begins_call
        self.parts -= begins_part
        return True


_LONGEST_ARGUMENTS = 1_000_000  # characters
_LONGEST_UNPARSED = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCall:
    """One request to a model. ``entries`` ends with the message to answer.

    ``form``: the model must fill in this form; it may name the ``tools`` but not call them. ``form_as_text``: the form
    is described in the message, for a provider that rejects forced calls. ``kept``: how many of the last entries stay
    if the request is too long. ``settings``: as the agent has them. ``is_bounded``: their ``max_tokens`` also
    bounds a form. ``patience``: seconds that the model may send nothing.
    """

    system_prompt: str
    entries: tuple[Entry, ...]
    tools: tuple[ToolSpec, ...] = ()
    form: ToolSpec | None = None
    form_as_text: bool = False
    kept: int = 3
    settings: CallSettings = DEFAULT
    is_bounded: bool = False
    patience: float = math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReply:
    """A reply: its text, which may be empty, the tool calls it asks for, and how it ended.

    A reply that was cut raises ModelUnavailable instead. Of a reply that is not whole only the text is used, which
    people see with a note.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    ended_by: Ended = Ended.STOP
    usage: Usage = field(default_factory=lambda: Usage(requests=1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Thought:
    """A piece of a model's reasoning, which is no part of its reply."""

    text: str


class Model(Protocol):
    """A language model. Its streams run only on the process's event loop (``process.py``)."""

    def stream(self, call: ModelCall) -> AsyncIterator[str | Thought | ModelReply]:
        """Yield pieces of text and of reasoning as they come, then exactly one ModelReply.

        Raises ModelUnavailable if a retry may help, else ModelRefused.
        """


def clean_reply(reply: ModelReply) -> ModelReply:
    """Return a reply that can be stored. Arguments that cannot be stored become ``unparsed``.

    The calls of a reply that is not whole lose their arguments, because they are not made.
    """
    calls = tuple(_clean_call(call) for call in reply.calls[:MOST_CALLS])
    if reply.ended_by is not Ended.STOP:
        calls = tuple(replace(call, arguments={}, unparsed=None) for call in calls)
    return replace(reply, text=clean_text(reply.text), calls=calls, usage=_clean_usage(reply.usage))


def _clean_usage(usage: Usage) -> Usage:
    """The usage. Of counts that no request can have nothing is taken, as if the provider had counted nothing."""
    counts = (usage.input_tokens, usage.output_tokens)
    if all(0 <= each <= MOST_COUNTED for each in counts):
        return usage
    return replace(usage, input_tokens=0, output_tokens=0)


def _clean_call(call: ToolCall) -> ToolCall:
    named = replace(call, id=clean_text(call.id), name=clean_text(call.name))
    if call.unparsed is not None:
        return replace(named, unparsed=clean_text(call.unparsed)[:_LONGEST_UNPARSED])
    try:
        return replace(named, arguments=clean_value(call.arguments))
    except ValueError as error:
        return replace(named, arguments={}, unparsed=f"({error})")


def read_call(call_id: str, name: str, raw: str) -> ToolCall:
    """Return a call with arguments given as JSON text."""
    arguments = parse_arguments(raw)
    return ToolCall(
        id=call_id, name=name, arguments=arguments or {}, unparsed=raw if arguments is None else None
    )


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Parse a call's arguments. None: no JSON object, or too long. An empty text means no arguments."""
    if len(raw) > _LONGEST_ARGUMENTS:
        return None
    try:
        arguments = json.loads(raw or "{}")
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
