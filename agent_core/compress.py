"""Compression: older messages become task state, so that a long conversation stays within its budget."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from agent_core import aside, memory, prompts
from agent_core.control import TurnControl
from agent_core.exceptions import Stale
from agent_core.exchange import Watch
from agent_core.memory import Held
from agent_core.types import Entry, Role, TurnRequest, Usage

PROMPT: Final = "memory.compress"
LONGEST_SECONDS: Final = 60.0  # for the exchange with all its tries
_LONGEST_MESSAGE = 2000  # characters of one message that the model is shown
_LONGEST_SHOWN = 60_000  # characters of all of them

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compressed:
    """What is held from now on, and what it cost."""

    held: Held
    usage: Usage


def compress(
    older: Iterable[Entry], held: Held, *, live: Iterable[str], request: TurnRequest, control: TurnControl
) -> Compressed | None:
    """Ask the turn's own model. None for whatever keeps it from answering: then nothing is to be changed.

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


def _shown(entries: Iterable[Entry]) -> str:
    lines = [
        f"{entry.role}: {prompts.inside_block(' '.join(entry.content.split())[:_LONGEST_MESSAGE])}"
        for entry in entries
        if entry.role is not Role.TOOL and entry.content.strip()
    ]
    return "\n".join(lines)[:_LONGEST_SHOWN] or "(nothing)"
