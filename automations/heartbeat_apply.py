"""HEARTBEAT.md and the routines: reading it shows the rows, writing it changes them in one transaction (rule 6.6).

The rows are the last good snapshot: a corrupted text is kept for whoever mends it, and changes none of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from django.db import transaction

from automations.clocks import database_now
from automations.heartbeat_md import Parse, Task, mended, parse, prose, render
from automations.jobs import RESERVED_IDS
from automations.models import CronJob, JobClock, ScheduleKind
from automations.routine_reads import Routine, routine_of, shown_routines
from automations.routine_schedule import BEGINNING, read_first, written
from automations.routines import (
    NewRoutine,
    add_routine,
    locked_agent,
    normalised,
    routines,
    update_routine,
)
from sessions_app.agents import put_document
from sessions_app.documents import Shown, Taken
from sessions_app.models import Agent, Document

log = structlog.get_logger(__name__)

NAME = "HEARTBEAT.md"
_WELL_FORMED = re.compile(r"[A-Za-z0-9_-]{1,32}")
_STATES = {"scheduled": "pending"}  # the document's words for ours, where they differ


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """A HEARTBEAT.md that cannot be understood: since which revision, and why."""

    revision: int
    problem: str


class HeartbeatDocument:
    """What stands behind HEARTBEAT.md."""

    name = NAME

    def shown(self, document: Document) -> Shown:
        """The prose with the routines as they are now; a corrupted text as it was written."""
        agent = Agent.objects.get(pk=document.agent_id)
        parsed = parse(document.content, zone=agent.timezone, now=database_now())
        rows = _listed(agent, parsed.tasks)
        text = document.content
        if parsed.parse is not Parse.CORRUPTED:
            named = zip(_ids(agent, parsed.tasks), parsed.tasks, strict=True)
            text = render(text, _tasks_json(rows, dict(named)))
        return Shown(content=text, basis=_basis(document, rows))

    def written(self, content: str) -> int:
        """Its prose: a routine's texts have bounds of their own."""
        return len(prose(content))

    def lock(self, agent_id: int) -> None:
        """The clocks, then the jobs, then the agent: as everybody locks."""
        ids = list(routines(agent_id).order_by("pk").values_list("pk", flat=True))
        list(JobClock.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
        list(CronJob.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
        locked_agent(agent_id)

    def take(self, document: Document, content: str) -> Taken:
        """Make the routines what the text says. What a routine may not be refuses the whole text."""
        agent, now = Agent.objects.get(pk=document.agent_id), database_now()
        before = parse(document.content, zone=agent.timezone, now=now)
        parsed = parse(content, zone=agent.timezone, now=now)
        if parsed.parse is Parse.CORRUPTED:
            log.warning("heartbeat_md_corrupted", agent=agent.pk, problem=parsed.problem)
        if parsed.parse is Parse.OK:
            listed = [row.id for row in _listed(agent, before.tasks)]
            kept = _Applying(agent=agent, now=now).apply(parsed.tasks, listed)
            if not all(
                task.id for task in parsed.tasks
            ):  # else the text stays to the letter as it was written
                rows = _listed(agent, (), mentioned=kept)
                content = render(content, _tasks_json(rows, dict(zip(kept, parsed.tasks, strict=True))))
        return Taken(content=content, parse=parsed.parse, problem=parsed.problem)


def corruption(agent_id: int) -> Corruption | None:
    """What is wrong with the agent's HEARTBEAT.md, for its heartbeat to tell once of each revision."""
    document = Document.objects.filter(agent_id=agent_id, name=NAME).select_related("agent").first()
    if document is None:
        return None
    parsed = parse(document.content, zone=document.agent.timezone, now=database_now())
    if parsed.parse is not Parse.CORRUPTED:
        return None
    return Corruption(revision=document.revision, problem=parsed.problem)


def heartbeat_prose(agent_id: int) -> str:
    """What HEARTBEAT.md says beside its routines."""
    document = Document.objects.filter(agent_id=agent_id, name=NAME).first()
    return prose(document.content) if document else ""


@transaction.atomic
def mend(agent_id: int) -> bool:
    """Give a corrupted HEARTBEAT.md a sound block of the routines as they are; whether that was needed.

    What could not be read stays in it as plain text.
    """
    broken = corruption(agent_id)
    if broken is None:
        return False
    document = Document.objects.select_related("agent").get(agent_id=agent_id, name=NAME)
    rows = _listed(document.agent, ())
    text = mended(document.content, [task_json(row) for row in rows])
    put_document(agent_id, NAME, text, revision=broken.revision)
    return True


def task_json(routine: Routine) -> dict[str, Any]:
    """A routine as HEARTBEAT.md lists it."""
    shown = routine.to_json()
    task = {
        name: shown[name]
        for name in (
            "id",
            "title",
            "description",
            "schedule",
            "timezone",
            "execution_mode",
            "source",
            "enabled",
        )
    }
    if routine.instructions:
        task["instructions"] = routine.instructions
    if routine.policy:
        task["policy"] = routine.policy
    if routine.task_type:
        task["task_type"] = routine.task_type
    return task | {
        "state": "failed" if routine.last_status == "failed" else _STATES.get(routine.state, routine.state),
        "last_run_at": shown["last_run_at"],
        "next_run_at": shown["next_run_at"] or shown["at"],
        "timeout_seconds": routine.timeout_seconds,
        "retry": max(0, routine.attempt - 1),
        "max_retry": routine.max_retry,
        "error_message": routine.error,
        "created_at": shown["created_at"],
    }


def _tasks_json(rows: Iterable[Routine], named: dict[str, Task]) -> list[dict[str, Any]]:
    """The routines as the document lists them, each with what the text says of it that means nothing here."""
    return [task_json(row) | dict(named[row.id].foreign if row.id in named else {}) for row in rows]


def _ids(agent: Agent, tasks: tuple[Task, ...]) -> list[str]:
    """The routines that the tasks name: by their id, or by the one that they came with."""
    came = CronJob.objects.filter(agent=agent, imported_id__in=[task.id for task in tasks if task.id])
    by_import = dict(came.values_list("imported_id", "pk"))
    return [by_import.get(task.id, task.id) for task in tasks]


def _basis(document: Document, rows: Iterable[Routine]) -> str:
    """Of the text and of each routine listed: what only an edit changes."""
    told = ",".join(f"{row.id}.{row.revision}" for row in rows)
    return f"{document.revision}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def _listed(agent: Agent, tasks: tuple[Task, ...], *, mentioned: list[str] | None = None) -> list[Routine]:
    """The routines that the document lists: those it names, in its order, then the enabled ones that are not done."""
    rows = list(shown_routines(agent=agent))
    if mentioned is None:
        mentioned = _ids(agent, tasks)
    order = {each: number for number, each in enumerate(mentioned)}
    shown = [routine_of(row) for row in rows]
    listed = [row for row in shown if row.id in order or (row.enabled and row.state != "done")]
    return sorted(listed, key=lambda row: order.get(row.id, len(order)))


@dataclass(kw_only=True)
class _Applying:
    """A text under way to the rows, all of them locked."""

    agent: Agent
    now: datetime
    rows: dict[str, CronJob] = field(default_factory=dict)

    def apply(self, tasks: tuple[Task, ...], listed: list[str]) -> list[str]:
        """Disable what was listed and is not any more, change what is there, add the rest; the ids in order."""
        self.rows = {row.pk: row for row in routines(self.agent.pk)}
        known = self._known(tasks)
        for routine_id in listed:
            if routine_id not in known.values():
                update_routine(routine_id, {"enabled": False})
        ids: dict[int, str] = {}
        # what is disabled makes room below the limit for what is enabled
        for number, task in sorted(enumerate(tasks), key=lambda each: each[1].enabled):
            ids[number] = known.get(number) or self._added(task)
            if number in known:
                update_routine(known[number], self._changes(self.rows[known[number]], task))
        return [ids[number] for number in range(len(tasks))]

    def _known(self, tasks: tuple[Task, ...]) -> dict[int, str]:
        """By the number of a task, the routine that it is: by id, by the id it came with, else by what it says."""
        by_import = {row.imported_id: row.pk for row in self.rows.values() if row.imported_id}
        known: dict[int, str] = {}
        for number, task in enumerate(tasks):
            routine_id = task.id if task.id in self.rows else by_import.get(task.id)
            if routine_id is not None and routine_id not in known.values():
                known[number] = routine_id
        free = [row for row in self.rows.values() if row.pk not in known.values()]
        for number, task in enumerate(tasks):
            same = next((row for row in free if not task.id and self._same(row, task)), None)
            if same is not None:
                known[number] = same.pk
                free.remove(same)
        return known

    def _same(self, job: CronJob, task: Task) -> bool:
        """Whether a task without id is this routine. What is to be done once, at once, is not done again."""
        if normalised(job.name) != normalised(task.title):
            return False
        if task.schedule is not None or job.schedule_kind != ScheduleKind.AT:
            return written(job) == task.schedule
        return task.next_run_at is None or self._instant(task.next_run_at, task) == job.at

    def _instant(self, text: str, task: Task) -> datetime:
        """One that may have passed."""
        return read_first(text, timezone=task.timezone or self.agent.timezone, now=BEGINNING)

    def _has_ended(self, task: Task) -> bool:
        """Done once, elsewhere or before this text was written: doing it again, late, is what nobody asks for."""
        return task.schedule is None and (task.is_done or self._has_passed(task))

    def _has_passed(self, task: Task) -> bool:
        return task.next_run_at is not None and self._instant(task.next_run_at, task) <= self.now

    def _changes(self, job: CronJob, task: Task) -> dict[str, Any]:
        changes: dict[str, Any] = {
            name: getattr(task, name)
            for name in (
                *("title", "description", "instructions", "execution_mode", "enabled", "timezone"),
                *("timeout_seconds", "max_retry", "task_type"),
            )
        }
        changes["policy"] = dict.fromkeys(job.policy) | dict(task.policy)  # what is absent goes
        if task.schedule is not None:
            changes["schedule"] = task.schedule
        elif task.next_run_at is not None and self._is_moved(job, task):
            changes |= {"schedule": None, "next_run_at": task.next_run_at}
        return changes

    def _is_moved(self, job: CronJob, task: Task) -> bool:
        """What is done keeps its instant, whatever another program wrote down as the time it was done."""
        over = job.clock.next_run_at is None and task.is_done and self._has_passed(task)
        return not over and self._instant(task.next_run_at or "", task) != job.at

    def _added(self, task: Task) -> str:
        """A new routine, with its id where that is well-formed and free; else the id is remembered."""
        wanted = task.id if _WELL_FORMED.fullmatch(task.id) and task.id not in RESERVED_IDS else ""
        job = add_routine(
            NewRoutine(
                agent_id=self.agent.pk,
                title=task.title,
                description=task.description,
                instructions=task.instructions,
                schedule=task.schedule,
                next_run_at=task.next_run_at if task.schedule is None else None,
                execution_mode=task.execution_mode,
                timezone=task.timezone,
                timeout_seconds=task.timeout_seconds,
                policy=task.policy,
                max_retry=task.max_retry,
                task_type=task.task_type,
                source=task.source,
                enabled=task.enabled,
                allow_duplicate=True,
                ended=self._has_ended(task),
                routine_id=wanted,
            )
        )
        taken = CronJob.objects.filter(agent=self.agent, imported_id=task.id).exists()
        if task.id and job.pk != task.id and not taken:
            CronJob.objects.filter(pk=job.pk).update(imported_id=task.id)
        return job.pk
