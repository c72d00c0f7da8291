"""Consent: what is dangerous needs a person's plain yes to just that call (rule 3.5).

Nothing is kept for it: the history shows that the call was refused in the turn before, and the message is the yes.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_core import words
from agent_core.limits import intent
from agent_core.types import Entry, Role, ToolCall, ToolOutcome
from sessions_app.kinds import is_persons
from sessions_app.models import Turn

ASK = (
    "This needs the person's consent. Tell them exactly what you want to do and ask for a yes; when their next"
    " message is a plain yes, make the very same call again."
)


def given(turn: Turn, history: Sequence[Entry], said: str, call: ToolCall) -> bool:
    """Whether `said` is a person's plain yes, and the turn before it, which they saw, asked for just this call."""
    is_yes = is_persons(turn) and words.is_whole("yes", said)
    return is_yes and intent(call) in _refused_before(history) and not _was_on_its_way(turn)


def _was_on_its_way(turn: Turn) -> bool:
    """A yes that was written before another turn had ended was not said to what that one asked for."""
    others = Turn.objects.filter(session_id=turn.session_id).exclude(pk=turn.pk)
    return others.filter(started_at__isnull=False, finished_at__gt=turn.queued_at).exists()


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
