"""Cuts a model request to its limit of tokens: system prompt, tools, history and the turn's results together.

The oldest tool results are shortened first, then the oldest messages are left out, then the newest results are
shortened. The system prompt and the message to answer stay.

A model whose context is shorter than the limit rejects the request. This process then keeps a lower limit for that
model.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

from agent_core.connections import Connection, connection_of, hooks
from agent_core.llm import tokens
from agent_core.llm.protocol import ModelCall
from agent_core.tool_spec import ToolSpec
from agent_core.types import Entry, Role

LEAST_SHARE: Final = 4  # history and results always have a quarter of the limit
_SHORT = 60  # tokens that an older result is shortened to
_SHORTEST = 200  # tokens that each of the newest results keeps
_MIDDLE = "\n(… {count} characters left out: the request would be too long …)\n"

LEAST_LEARNED: Final = 1000  # tokens; no model's context is shorter
MOST_LEARNED: Final = 1000  # models with a limit of their own; the one that was learned first goes

_learned: OrderedDict[str, int] = OrderedDict()
_model: ContextVar[str] = ContextVar("model", default="")  # of the turn that this thread runs


def use_model(model: str, connections: Iterable[Connection]) -> None:
    """Set the model whose limit counts in this thread from now on."""
    _model.set(model_key(model, connections))


def model_key(model: str, connections: Iterable[Connection]) -> str:
    """Return what names a model in this module. Connections of two users may have the same name."""
    connection, name = connection_of(model, connections)
    return f"{connection.id if connection else ''}:{name}"


def limit(key: str | None = None) -> int:
    """Return the token limit of one request to a model; None: to that of `use_model`. 0: no bound."""
    given, learned = hooks.context_tokens(), _learned.get(_model.get() if key is None else key, 0)
    return min(given, learned) if given and learned else given or learned


@dataclass
class Lesson:
    """Whether what is learned of a model within a `learning` is kept."""

    keep: bool = True


@contextmanager
def learning(key: str) -> Iterator[Lesson]:
    """One request and its shorter forms. What they teach is forgotten after it unless it is to be kept."""
    known, lesson = _learned.get(key), Lesson()
    try:
        yield lesson
    finally:
        if not lesson.keep:
            _learned.pop(key, None)
            _learned.update({key: known} if known else {})


def learn(key: str, most: int) -> None:
    """Note `most` tokens as the limit of a model that rejected a longer request."""
    _learned[key] = max(most, LEAST_LEARNED)
    while len(_learned) > MOST_LEARNED:
        _learned.popitem(last=False)


def room(fixed: int, key: str | None = None) -> int:
    """Return the tokens left for history and results beside `fixed` tokens that stay. `key` as for `limit`."""
    most = limit(key)
    return max(most - fixed, most // LEAST_SHARE)


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


def of_call(call: ModelCall) -> int:
    """Return the tokens of a request."""
    return _fixed(call) + sum(map(tokens.of_entry, call.entries))


def _fixed(call: ModelCall) -> int:
    return tokens.of_text(call.system_prompt) + of_tools(call.tools)


def fit_call(call: ModelCall, key: str | None = None) -> ModelCall:
    """Return the call, cut to the limit. Its last ``call.kept`` entries stay, and those with ``stays``.

    `key` as for `limit`.
    """
    if not limit(key):
        return call
    left = room(_fixed(call), key)
    entries = list(call.entries)
    sizes = [tokens.of_entry(entry) for entry in entries]
    if sum(sizes) <= left:
        return call
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
