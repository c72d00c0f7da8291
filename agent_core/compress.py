"""Compression: older messages become task state, so that a long conversation stays within its budget."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from agent_core import aside, memory, prompts
from agent_core.control import TurnControl
from agent_core.exceptions import Stale
from agent_core.exchange import Watch
from agent_core.memory import Held
from agent_core.types import Entry, TurnRequest, Usage

PROMPT: Final = "memory.compress"
LONGEST_SECONDS: Final = 30.0  # for the exchange with all its tries: the turn's commit waits for it
LONGEST_SHOWN: Final = 60_000  # characters of all messages that the model is shown
_LONGEST_MESSAGE = 2000  # characters of one of them
_LONGEST_RESULT = 400  # characters of a tool's output
_CUT = " [...] "

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compressed:
    """What is held from now on, and what it cost."""

    held: Held
    usage: Usage


def compress(
    older: Sequence[Entry], held: Held, *, live: Iterable[str], request: TurnRequest, control: TurnControl
) -> Compressed | None:
    """Ask the turn's own model; `older` are as many as fit. None if it fails: then nothing is to be changed.

    Raises Stale. A request to stop or to cancel ends it at once with None, since the turn has its answer already.
    """
    watch = Watch(control, min(LONGEST_SECONDS, request.policy.timeout_seconds))
    system_prompt = prompts.render(PROMPT, {"most": memory.MOST_ITEMS}).text
    before = prompts.inside_block(held.in_words()) or "(nothing)"
    message = f"<held>\n{before}\n</held>\n<messages>\n{_shown(older)}\n</messages>"
    try:
        reply = aside.ask(request, watch, system_prompt=system_prompt, message=message)
    except Stale:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the conversation goes on as it was
        log.warning("not_compressed", extra={"why": type(error).__name__})
        return None
    new = memory.read(reply.text)
    if new is None:
        log.warning("not_compressed", extra={"why": "its answer cannot be read"})
        return None
    lasting = memory.durable(new, tools=[tool.name for tool in request.tools], live=live)
    return Compressed(held=lasting, usage=reply.usage)


def fitting(entries: Sequence[Entry]) -> int:
    """How many of them, from the first on, the model can be shown at once. The others must stay in the window."""
    left = LONGEST_SHOWN
    for number, entry in enumerate(entries):
        left -= len(_line(entry)) + 1
        if left < 0:
            return number
    return len(entries)


def _shown(entries: Sequence[Entry]) -> str:
    return "\n".join(map(_line, entries)) or "(nothing)"


def _line(entry: Entry) -> str:
    """The entry in one line. A long one loses its middle: what it begins and ends with says most of what it is."""
    said = [entry.content, *(f"({call.name} is called)" for call in entry.calls)]
    said += [f"{result.name}: {_cut(result.output, _LONGEST_RESULT)}" for result in entry.results]
    return f"{entry.role}: {prompts.inside_block(_cut(' '.join(said), _LONGEST_MESSAGE))}"


def _cut(text: str, longest: int) -> str:
    line = " ".join(text.split())
    if len(line) <= longest:
        return line
    tail = (longest - len(_CUT)) // 3
    return line[: longest - len(_CUT) - tail] + _CUT + line[-tail:]
