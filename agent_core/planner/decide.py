"""The decision table: what a turn's input means to the executions that there are (rule 7.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent_core import words
from agent_core.execution import WAITING, Execution, Status

_NAMED = re.compile(r"#([0-9a-z]{6,})\b", re.IGNORECASE)


class Meaning(StrEnum):
    """What the input is."""

    CLEAR = "clear"
    CONFIRMATION = "confirmation"  # yes or no to what waits
    NEW_REQUEST = "new_request"  # what waits is closed, this is planned
    REPLY = "reply"
    RETRY = "retry"
    CLOSED = "closed"  # an answer to a question that does not wait any more
    FRESH = "fresh"


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What the input is, and to which execution."""

    meaning: Meaning
    execution: Execution | None = None


def is_clear(text: str) -> bool:
    """Whether a person wants the conversation to begin anew."""
    return words.is_whole("clear", text)


def decide(text: str, executions: Sequence[Execution], *, live_request: bool, named: str = "") -> Decision:
    """Decide about a person's message. Automations and jobs never ask here: theirs is a fresh one each time.

    `executions`: of the session, the newest first: those that waited when it was said, and what may be tried again.
    `live_request`: it asks for live state, or to change some. `named`: the id of the one that is answered, where the
    person named it; one in the text counts, too. What is named and does not wait is never taken for another.
    """
    if is_clear(text):
        return Decision(meaning=Meaning.CLEAR)
    open_ = [each for each in executions if each.status in WAITING]
    if named and all(each.id != named for each in open_):
        return Decision(meaning=Meaning.CLOSED)
    waiting = _named(text, named, open_)
    if waiting is not None:
        if words.is_whole("yes", text) or words.is_whole("no", text):
            return Decision(meaning=Meaning.CONFIRMATION, execution=waiting)
        if live_request and not named and words.begins("request", text):
            return Decision(meaning=Meaning.NEW_REQUEST, execution=waiting)
        return Decision(meaning=Meaning.REPLY, execution=waiting)
    last = executions[0] if executions else None
    if last is not None and last.status in (Status.FAILED, Status.COMPLETED) and words.begins("retry", text):
        return Decision(meaning=Meaning.RETRY, execution=last)
    return Decision(meaning=Meaning.FRESH)


def _named(text: str, named: str, waiting: Sequence[Execution]) -> Execution | None:
    """The newest that waits, unless another one is named."""
    ids = {named.lower(), *(found.lower() for found in _NAMED.findall(text))}
    return next((each for each in waiting if each.id.lower() in ids), waiting[0] if waiting else None)
