"""Intents of MEMORY.md: lines that say what is to become a routine, turned into one once (rule 5.6).

The line stays; its mark `[to be registered]` becomes `[registered: <id>]`. The routine and the mark are one
transaction, and a mark that is gone is not found a second time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from django.db import transaction

from automations.exceptions import AutomationsError, DuplicateRoutine
from automations.models import CronJob, Source
from automations.routines import NewRoutine, add_routine, locked_agent
from sessions_app.agents import put_document
from sessions_app.models import Document
from sessions_app.patience import through_deadlocks

MEMORY = "MEMORY.md"
MARK = re.compile(r"\[\s*(?:待注册|to be registered)\s*\]", re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*+]|[0-9]+[.)])?\s*(?:\[[ xX]?\]\s+)?")
_ARROW = re.compile(r"\s*(?:→|->|=>|—|–|:|：)\s*$")  # noqa: RUF001 - as people write them


@dataclass(frozen=True, kw_only=True)
class Intent:
    """A line that waits to become a routine: where it stands, counted from 1, and what it says without its mark."""

    line: int
    text: str


class NoIntent(AutomationsError):
    """There is no intent on this line of MEMORY.md: it was registered already, or the document was edited."""

    code = "no_intent"


def intents(memory_text: str) -> tuple[Intent, ...]:
    """The lines that are marked `[待注册]` or `[to be registered]`."""
    lines = memory_text.split("\n")
    return tuple(
        Intent(line=number, text=_said(text)) for number, text in enumerate(lines, 1) if MARK.search(text)
    )


def mark_registered(memory_text: str, line: int, routine_id: str) -> str:
    """The text with this line's mark saying that it was done; all else to the letter as it was. NoIntent."""
    lines = memory_text.split("\n")
    if not 1 <= line <= len(lines) or not MARK.search(lines[line - 1]):
        raise NoIntent
    lines[line - 1] = MARK.sub(f"[registered: {routine_id}]", lines[line - 1], count=1)
    return "\n".join(lines)


def register_intent(line: int, revision: int, given: NewRoutine) -> CronJob:
    """Turn an intent of this revision of MEMORY.md into a routine; one that exists already is only named.

    NoIntent, RevisionConflict, and what `add_routine` refuses with: then nothing was written.
    """
    return through_deadlocks(
        lambda: _register(line, revision, replace(given, source=Source.HEARTBEAT_REFLECT))
    )


@transaction.atomic
def _register(line: int, revision: int, given: NewRoutine) -> CronJob:
    locked_agent(given.agent_id)  # of two that read the same document the second finds another revision
    memory = Document.objects.filter(agent_id=given.agent_id, name=MEMORY).first()
    text = memory.content if memory else ""
    mark_registered(text, line, "")
    try:
        job = add_routine(given)
    except DuplicateRoutine as duplicate:
        job = CronJob.objects.select_related("clock").get(pk=duplicate.routine_id)
    put_document(given.agent_id, MEMORY, mark_registered(text, line, job.pk), revision=revision)
    return job


def _said(line: str) -> str:
    before, _, after = MARK.sub("\0", line, count=1).partition("\0")
    text = f"{_ARROW.sub('', _BULLET.sub('', before))} {after.strip()}"
    return " ".join(MARK.sub(" ", text).split())
