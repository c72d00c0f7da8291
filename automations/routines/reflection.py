"""Routines that a heartbeat registers, by itself or for intents: lines of MEMORY.md that are to become routines (rule
5.6).

A routine is never registered twice, and never when a person removed it. Each is reported to people. Firing starts none
before the heartbeat has ended.

The line of an intent stays; its mark `[to be registered]` becomes `[registered: <id>]`, and `[待注册]` becomes
`[已注册: <id>]`. The routine is added and the mark is changed in one transaction, so a line is never registered twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from django.db import transaction

from agent_core.memory.task_state import is_outside
from automations.exceptions import AutomationsError, DuplicateRoutine
from automations.jobs.removed_routines import normalised, was_removed
from automations.models import CronJob, ScheduleKind, Source
from automations.routines.edit import NewRoutine, add_routine, agent_routines, lock_agent
from automations.runs import report
from sessions_app.agents.documents import put_document
from sessions_app.models import Document, Turn
from sessions_app.postgres.retry import retry_deadlocks

MEMORY = "MEMORY.md"
MARK = re.compile(r"\[\s*(?P<words>待注册|to be registered)\s*\]", re.IGNORECASE)
DONE = {"待注册": "已注册"}  # in the language of the mark
_BULLET = re.compile(r"^\s*(?:[-*+]|[0-9]+[.)])?\s*(?:\[[ xX]?\]\s+)?")
_ARROW = re.compile(r"(?:→|->|=>|—|–|:|：)$")  # noqa: RUF001 - as people write them


@dataclass(frozen=True, kw_only=True)
class Intent:
    """A line that is to become a routine: its number, counted from 1, and its text without the mark."""

    line: int
    text: str


class NoIntent(AutomationsError):
    """This line of MEMORY.md has no mark [to be registered]: it was registered, or the document was edited."""

    code = "no_intent"


def find_intents(memory_text: str) -> tuple[Intent, ...]:
    """The lines with the mark `[待注册]` or `[to be registered]`."""
    lines = memory_text.split("\n")
    return tuple(
        Intent(line=number, text=_said(text)) for number, text in enumerate(lines, 1) if _is_intent(text)
    )


def mark_registered(memory_text: str, line: int, routine_id: str) -> str:
    """The text with this line's mark changed to registered; the rest is unchanged. NoIntent."""
    lines = memory_text.split("\n")
    if not 1 <= line <= len(lines) or not _is_intent(lines[line - 1]):
        raise NoIntent
    lines[line - 1] = MARK.sub(
        lambda mark: f"[{DONE.get(mark['words'], 'registered')}: {routine_id}]", lines[line - 1], count=1
    )
    return "\n".join(lines)


def register_intent(
    line: int, revision: int, given: NewRoutine, *, add: Callable[[NewRoutine], CronJob] = add_routine
) -> CronJob:
    """Add a routine for an intent of this revision of MEMORY.md; if it exists, only the mark is changed.

    NoIntent, RevisionConflict, and the errors of `add`: then nothing was written.
    """
    return retry_deadlocks(lambda: _register(line, revision, given, add))


@transaction.atomic
def _register(line: int, revision: int, given: NewRoutine, add: Callable[[NewRoutine], CronJob]) -> CronJob:
    lock_agent(given.agent_id)  # of two callers with the same revision, the second finds another one
    memory = Document.objects.filter(agent_id=given.agent_id, name=MEMORY).first()
    text = memory.content if memory else ""
    mark_registered(text, line, "")
    try:
        job = add(given)
    except DuplicateRoutine as duplicate:
        job = CronJob.objects.select_related("clock").get(pk=duplicate.routine_id)
    put_document(given.agent_id, MEMORY, mark_registered(text, line, job.pk), revision=revision)
    return job


def _is_intent(line: str) -> bool:
    """Whether the line has the mark and is not text from outside, which must not become a routine."""
    return MARK.search(line) is not None and not is_outside(line)


def _said(line: str) -> str:
    before, _, after = MARK.sub("\0", line, count=1).partition("\0")
    text = f"{_ARROW.sub('', _BULLET.sub('', before).rstrip())} {after.strip()}"
    return " ".join(MARK.sub(" ", text).split())


class RoutineRemoved(AutomationsError):
    """A person removed a routine with this title."""

    code = "routine_removed"


def register_reflected_routine(
    turn: Turn, given: NewRoutine, intended: tuple[int, int] | None
) -> tuple[CronJob, bool]:
    """Register a routine in the heartbeat's turn. Returns it, and whether it is new.

    `intended`: the line of MEMORY.md that it is for, with the document's revision; then an existing routine is
    returned. DuplicateRoutine, RoutineRemoved, NoIntent, RevisionConflict, and the errors of `add_routine`.
    """
    given = replace(given, source=Source.HEARTBEAT_REFLECT, allow_duplicate=False, session_id=None)
    new: list[CronJob] = []

    def add(routine: NewRoutine) -> CronJob:
        new[:] = [_added(turn, routine)]
        return new[0]

    if intended is None:
        return retry_deadlocks(lambda: add(given)), True
    job = register_intent(*intended, given, add=add)
    return job, job in new


@transaction.atomic
def _added(turn: Turn, given: NewRoutine) -> CronJob:
    lock_agent(given.agent_id)
    _refuse_what_was_there(given)
    job = add_routine(given)
    report.report_registered(turn, job)
    return job


def _refuse_what_was_there(given: NewRoutine) -> None:
    """Refuse a title that exists with any schedule: another schedule for the same work is not new."""
    wanted = normalised(given.title)
    for job in agent_routines(given.agent_id):
        if normalised(job.name) != wanted or _may_come_again(job, given):
            continue
        state = "exists already" if job.enabled else "is disabled; only a person can enable it again"
        raise DuplicateRoutine(f"the routine {job.pk} with this title {state}", routine_id=job.pk)
    if was_removed(given.agent_id, given.title):
        raise RoutineRemoved("a routine with this title was deleted; only a person may register it again")


def _may_come_again(job: CronJob, given: NewRoutine) -> bool:
    """Whether a one-time routine that is done may be registered again, now with a schedule."""
    is_done = job.enabled and job.schedule_kind == ScheduleKind.AT and job.clock.next_run_at is None
    return is_done and given.schedule is not None
