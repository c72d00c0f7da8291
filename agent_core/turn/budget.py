"""Cuts a model request to its token budget: system prompt, tools, history and the turn's results together.

The oldest tool results are shortened first, then the oldest messages are left out, then the newest results are
shortened. The system prompt and the message to answer stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from agent_core import images
from agent_core.llm import tokens
from agent_core.llm.protocol import ModelCall
from agent_core.tool_spec import ToolSpec
from agent_core.types import Entry, Role

LEAST_SHARE: Final = 4  # history and results always have a quarter of the budget
_SHORT = 60  # tokens that an older result is shortened to
_SHORTEST = 200  # tokens that each of the newest results keeps
_MIDDLE = "\n(… {count} characters left out: the request would be too long …)\n"

_limit: Callable[[], int] = int  # returns 0: no bound


def use_limit(limit: Callable[[], int]) -> None:
    """Set the process's function that returns the token limit of one request; 0: no bound."""
    global _limit  # noqa: PLW0603
    _limit = limit


def limit() -> int:
    """Return the token limit of one request; 0: no bound."""
    return _limit()


def room(fixed: int) -> int:
    """Return the tokens left for history and results beside `fixed` tokens that stay."""
    return max(limit() - fixed, limit() // LEAST_SHARE)


def of_tools(tools: Iterable[ToolSpec]) -> int:
    """Return the tokens of the tools' descriptions."""
    return sum(tokens.of_text(tool.as_text) for tool in tools)


def clipped(text: str, most: int) -> str:
    """Cut the middle out of a text, so that it has at most `most` tokens, and say how much was left out."""
    if tokens.of_text(text) <= most:
        return text
    fits, too_many = 0, len(text)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if tokens.of_text(_without_middle(text, middle)) <= most:
            fits = middle
        else:
            too_many = middle
    return _without_middle(text, fits)


def _without_middle(text: str, kept: int) -> str:
    tail = kept // 3
    left_out = _MIDDLE.format(count=f"{len(text) - kept:,}")
    return text[: kept - tail] + left_out + text[len(text) - tail :]


def fit_call(call: ModelCall) -> ModelCall:
    """Return the call, cut to the budget. Its last ``call.kept`` entries stay, and those with ``stays``."""
    if not limit() or _is_surely_short(call):
        return call
    left = room(tokens.of_text(call.system_prompt) + of_tools(call.tools))
    entries = list(call.entries)
    sizes = [tokens.of_entry(entry) for entry in entries]
    newest = max((n for n, entry in enumerate(entries) if entry.results), default=-1)
    for number, entry in enumerate(entries):
        if sum(sizes) <= left:
            break
        if entry.results and number != newest:
            entries[number] = _shortened(entry, _SHORT)
            sizes[number] = tokens.of_entry(entries[number])
    kept = _kept(entries, sizes, left, len(entries) - min(call.kept, len(entries)))
    over = sum(sizes[number] for number in kept) - left
    if over > 0 and newest in kept:
        results = entries[newest].results
        outputs = sum(tokens.of_text(result.output) for result in results)
        share = max(_SHORTEST, (outputs - over) // len(results))
        entries[newest] = _shortened(entries[newest], share)
    return replace(call, entries=tuple(entries[number] for number in kept))


def _is_surely_short(call: ModelCall) -> bool:
    """A text has no more tokens than characters, so the tokens of a short request need not be counted."""
    tools = sum(len(tool.as_text) for tool in call.tools)
    return len(call.system_prompt) + sum(map(_length, call.entries)) + tools < limit()


def _length(entry: Entry) -> int:
    calls = sum(len(str(call.arguments)) + len(call.unparsed or "") for call in entry.calls)
    shown = images.TOKENS * len(entry.images)
    return 20 + len(entry.content) + shown + calls + sum(len(result.output) for result in entry.results)


def _kept(entries: Sequence[Entry], sizes: Sequence[int], left: int, past: int) -> list[int]:
    """The numbers of the entries to send. The oldest go first, and no result stays without its call."""
    spent, kept = sum(sizes), []
    is_enough = False
    for number, entry in enumerate(entries[:past]):
        is_enough = is_enough or (spent <= left and entry.role is not Role.TOOL and not entry.stays)
        if is_enough or entry.stays:
            kept.append(number)
        else:
            spent -= sizes[number]
    return [*kept, *range(past, len(entries))]


def _shortened(entry: Entry, most: int) -> Entry:
    results = (replace(result, output=clipped(result.output, most)) for result in entry.results)
    return replace(entry, results=tuple(results))
