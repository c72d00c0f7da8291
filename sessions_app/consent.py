"""Consent: what is dangerous needs a person's plain yes to just that call (rule 3.5).

Nothing is kept for it: the history shows that the call was refused in the turn before, and the message is the yes.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_core import words
from agent_core.limits import intent
from agent_core.types import Entry, Role, ToolCall, ToolOutcome

ASK = (
    "This needs the person's consent. Tell them exactly what you want to do and ask for a yes; when their next"
    " message is a plain yes, make the very same call again."
)


def given(history: Sequence[Entry], said: str, call: ToolCall) -> bool:
    """Whether `said` is a plain yes, and the turn before it asked for just this call."""
    return words.is_whole("yes", said) and intent(call) in _refused_before(history)


def _refused_before(history: Sequence[Entry]) -> set[str]:
    """The calls of the last turn in the history that were refused."""
    refused: set[str] = set()
    wanted: set[str] = set()
    for entry in reversed(history):
        if entry.role is Role.USER:
            break
        refused |= {result.id for result in entry.results if result.outcome is ToolOutcome.REFUSED}
        wanted |= {intent(call) for call in entry.calls if call.id in refused}
    return wanted
