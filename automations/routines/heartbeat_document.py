"""HEARTBEAT.md: reading it shows the routines, writing it changes them in one transaction (rule 6.6).

A corrupted text is stored for its repair and changes no routine: the rows are the last good snapshot.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

import structlog

from automations.exceptions import BadJob
from automations.jobs.clock import database_now
from automations.jobs.removed_routines import normalised
from automations.models import CronJob, JobClock, ScheduleKind
from automations.routines.edit import NewRoutine, add_routine, agent_routines, lock_agent, update_routine
from automations.routines.heartbeat_md import (
    PLAIN,
    Parse,
    Task,
    parse_heartbeat_md,
    render_heartbeat_md,
    task_blocks_text,
    text_around_blocks,
)
from automations.routines.plan import EPOCH, RoutineFields, read_first_run, routine_schedule_text
from automations.routines.reads import Routine, routine_of, shown_routines, task_json
from sessions_app.agents.documents import DocumentChange, DocumentView, DocumentWrite
from sessions_app.exceptions import TooLarge
from sessions_app.models import Agent, Document

log = structlog.get_logger(__name__)

NAME = "HEARTBEAT.md"
MOST_CHANGED = 50  # routines that one text may add, change and disable; each takes about ten statements
_PLAIN = tuple(name for name in PLAIN if name not in ("source", "policy"))
_COLUMNS = {"title": "name", "instructions": "message"}  # a routine's field → a job's column, if it differs


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """A corrupted HEARTBEAT.md: its revision, the problem, and the JSON blocks as they are in it."""

    revision: int
    problem: str
    blocks: str


class HeartbeatDocument:
    """Connects the document HEARTBEAT.md with the agent's routines."""

    name = NAME

    def shown(self, document: Document) -> DocumentView:
        """The prose with the current routines; a corrupted text as it was written."""
        agent = Agent.objects.get(pk=document.agent_id)
        parsed = parse_heartbeat_md(document.content, zone=agent.timezone, now=database_now())
        rows = listed_routines(agent, parsed.tasks)
        text = document.content
        if parsed.parse is not Parse.CORRUPTED:
            named = zip(ids_named(agent, parsed.tasks), parsed.tasks, strict=True)
            text = render_heartbeat_md(text, _tasks_json(rows, dict(named)))
        return DocumentView(content=text, basis=_basis(document, rows))

    def written(self, content: str) -> int:
        """The length of the prose: a routine's texts have limits of their own."""
        return sum(len(piece) for piece in text_around_blocks(content))

    def lock(self, agent_id: int) -> None:
        """Lock the clocks, then the jobs, then the agent, as everywhere."""
        ids = list(agent_routines(agent_id).order_by("pk").values_list("pk", flat=True))
        list(JobClock.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
        list(CronJob.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
        lock_agent(agent_id)

    def take(self, document: Document, content: str) -> DocumentWrite:
        """Change the routines to what the text says. One invalid routine rejects the whole text."""
        agent, now = Agent.objects.get(pk=document.agent_id), database_now()
        before = parse_heartbeat_md(document.content, zone=agent.timezone, now=now)
        parsed = parse_heartbeat_md(content, zone=agent.timezone, now=now)
        if parsed.parse is Parse.CORRUPTED:
            log.warning("heartbeat_md_corrupted", agent=agent.pk, problem=parsed.problem)
        applying = _Applying(agent=agent, now=now)
        if parsed.parse is Parse.OK:
            listed = [row.id for row in listed_routines(agent, before.tasks)]
            kept = applying.apply(parsed.tasks, listed)
            if not all(task.id for task in parsed.tasks):  # if all have ids, the text is stored unchanged
                rows = listed_routines(agent, (), mentioned=kept)
                content = render_heartbeat_md(
                    content, _tasks_json(rows, dict(zip(kept, parsed.tasks, strict=True)))
                )
        return DocumentWrite(
            content=content, parse=parsed.parse, problem=parsed.problem, changes=tuple(applying.done)
        )


def corruption(agent_id: int) -> Corruption | None:
    """The corruption of the agent's HEARTBEAT.md; None when it can be read."""
    document = Document.objects.filter(agent_id=agent_id, name=NAME).select_related("agent").first()
    return corruption_of(document.content, document.agent, document.revision) if document else None


def corruption_of(content: str, agent: Agent, revision: int) -> Corruption | None:
    """The corruption of this text of the agent's HEARTBEAT.md, which has this revision; None when it can be read."""
    # only whether it can be read is asked, so it need not be the database's time
    parsed = parse_heartbeat_md(content, zone=agent.timezone, now=datetime.now(UTC))
    if parsed.parse is not Parse.CORRUPTED:
        return None
    return Corruption(revision=revision, problem=parsed.problem, blocks=task_blocks_text(content))


def _tasks_json(rows: Iterable[Routine], named: dict[str, Task]) -> list[dict[str, Any]]:
    """The routines as the document lists them, each with the foreign fields that the text has for it."""
    return [task_json(row) | dict(named[row.id].foreign if row.id in named else {}) for row in rows]


def ids_named(agent: Agent, tasks: tuple[Task, ...]) -> list[str]:
    """The ids of the routines that the tasks name, by their id or by the id they were imported with."""
    came = CronJob.objects.filter(agent=agent, imported_id__in=[task.id for task in tasks if task.id])
    by_import = dict(came.values_list("imported_id", "pk"))
    return [by_import.get(task.id, task.id) for task in tasks]


def _basis(document: Document, rows: Iterable[Routine]) -> str:
    """The revisions of the text and of each listed routine, as one tag that only edits change."""
    told = ",".join(f"{row.id}.{row.revision}" for row in rows)
    return f"{document.revision}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def listed_routines(
    agent: Agent, tasks: tuple[Task, ...], *, mentioned: list[str] | None = None
) -> list[Routine]:
    """The routines that the document lists: those it names, in its order, then other enabled ones that are not done."""
    rows = list(shown_routines(agent=agent))
    if mentioned is None:
        mentioned = ids_named(agent, tasks)
    order = {each: number for number, each in enumerate(mentioned)}
    shown = [routine_of(row) for row in rows]
    listed = [row for row in shown if row.id in order or (row.enabled and row.state != "done")]
    return sorted(listed, key=lambda row: order.get(row.id, len(order)))


def _as_told(job: CronJob) -> dict[str, Any]:
    """The fields of this routine that a task of the text has."""
    plain = {name: getattr(job, _COLUMNS.get(name, name)) for name in _PLAIN}
    return plain | {"timezone": job.timezone, "policy": job.policy, "schedule": routine_schedule_text(job)}


@dataclass(kw_only=True)
class _Applying:
    """Applies a text to the agent's routines, all of which are locked."""

    agent: Agent
    now: datetime
    rows: dict[str, CronJob] = field(default_factory=dict)
    done: list[DocumentChange] = field(default_factory=list)

    def apply(self, tasks: tuple[Task, ...], listed: list[str]) -> list[str]:
        """Disable routines that are not listed any more, change existing ones, add new ones. Returns the tasks' ids."""
        self.rows = {row.pk: row for row in agent_routines(self.agent.pk)}
        known = self._known(tasks)
        kept = set(known.values())
        gone = [each for each in listed if each not in kept]
        changes = {number: self._changes(self.rows[each], tasks[number]) for number, each in known.items()}
        changes = {number: each for number, each in changes.items() if each}
        if (count := len(gone) + len(changes) + len(tasks) - len(known)) > MOST_CHANGED:
            raise TooLarge(f"the text changes {count:,} routines; one text may change {MOST_CHANGED}")
        for routine_id in gone:
            self._note("disabled", self.rows[routine_id].name)
            update_routine(routine_id, {"enabled": False})
        ids: dict[int, str] = {}
        # disabled tasks first: they make room below the limit for enabled ones
        for number, task in sorted(enumerate(tasks), key=lambda each: each[1].enabled):
            ids[number] = known.get(number) or self._added(task)
            if number in changes:
                self._change(known[number], changes[number])
        return [ids[number] for number in range(len(tasks))]

    def _known(self, tasks: tuple[Task, ...]) -> dict[int, str]:
        """The existing routine of each task, by the task's number: found by id, imported id, or title and schedule."""
        by_import = {row.imported_id: row.pk for row in self.rows.values() if row.imported_id}
        known: dict[int, str] = {}
        taken: set[str] = set()
        for number, task in enumerate(tasks):
            routine_id = task.id if task.id in self.rows else by_import.get(task.id)
            if routine_id is not None and routine_id not in taken:
                known[number] = routine_id
                taken.add(routine_id)
        free: dict[tuple[str, str | None], list[CronJob]] = defaultdict(list)
        for row in self.rows.values():
            if row.pk not in taken:
                free[normalised(row.name), routine_schedule_text(row)].append(row)
        for number, task in enumerate(tasks):
            alike = [] if task.id else free.get((normalised(task.title), task.schedule), [])
            same = self._same(alike, task) if alike else None
            if same is not None:
                known[number] = same.pk
                alike.remove(same)
        return known

    def _same(self, alike: list[CronJob], task: Task) -> CronJob | None:
        """Which of these routines a task without an id means. A one-time routine must have the same time."""
        if task.schedule is not None or task.next_run_at is None:
            return alike[0]
        text = task.next_run_at
        return next((job for job in alike if job.at == self._instant(text, task, job)), None)

    def _instant(self, text: str, task: Task, job: CronJob | None = None) -> datetime:
        """The instant of a text; it may have passed. Without a zone in the task, it is in its routine's."""
        zone = job.timezone if job is not None and "timezone" not in task.given else task.timezone
        return read_first_run(text, timezone=zone or self.agent.timezone, now=EPOCH)

    def _has_ended(self, task: Task) -> bool:
        """Whether a new one-time task is added as done: it ran elsewhere, or its time has passed."""
        if task.schedule is not None or task.next_run_at is None:
            return task.schedule is None and task.is_done
        return task.is_done or self._instant(task.next_run_at, task) <= self.now

    def _changes(self, job: CronJob, task: Task) -> dict[str, Any]:
        """The changes to the routine that its task asks for; empty when nothing differs."""
        changes = {name: getattr(task, name) for name in (*_PLAIN, "timezone") if name in task.given}
        if "policy" in task.given:
            changes["policy"] = dict.fromkeys(job.policy) | dict(task.policy)  # missing limits are removed
        is_once = "schedule" in task.given or job.schedule_kind == ScheduleKind.AT
        if task.schedule is not None:
            changes["schedule"] = task.schedule
        elif is_once and task.next_run_at is not None and self._is_moved(job, task):
            return changes | {"schedule": None, "next_run_at": task.next_run_at}
        now, said = _as_told(job), dict(changes)
        if "title" in said:
            said["title"] = task.title.strip()
        if "timezone" in said:
            said["timezone"] = task.timezone or self.agent.timezone
        if "policy" in said:
            said["policy"] = {name: limit for name, limit in task.policy.items() if limit is not None}
        return changes if any(now[name] != value for name, value in said.items()) else {}

    def _is_moved(self, job: CronJob, task: Task) -> bool:
        """Whether the time of a one-time routine changes. One that is done keeps its time."""
        at = self._instant(task.next_run_at or "", task, job)
        over = job.clock.next_run_at is None and task.is_done and at <= self.now
        return not over and at != job.at

    def _change(self, routine_id: str, changes: dict[str, Any]) -> None:
        before, job = self.rows[routine_id], update_routine(routine_id, changes)
        was, told = _as_told(before) | {"time": before.at}, _as_told(job) | {"time": job.at}
        if differing := [name.replace("_", " ") for name, value in told.items() if value != was[name]]:
            self._note("changed", job.name, ", ".join(differing))

    def _note(self, what: str, title: str, detail: str = "") -> None:
        self.done.append(DocumentChange(what=what, title=title, detail=detail))

    def _added(self, task: Task) -> str:
        """Add a routine, with the task's id if it is well-formed and free; else the id is stored as `imported_id`."""
        if not task.title:
            raise BadJob(f"the task {task.id!r} is new and has no title", code="empty_title")
        said: dict[str, Any] = {each.name: getattr(task, each.name) for each in fields(RoutineFields)}
        if task.schedule is not None:
            said["next_run_at"] = None
        about: dict[str, Any] = {
            "routine_id": task.id,
            "ended": self._has_ended(task),
            "allow_duplicate": True,
        }
        job = add_routine(NewRoutine(agent_id=self.agent.pk, **about, **said))
        self._note("added", job.name, routine_schedule_text(job) or "once")
        taken = CronJob.objects.filter(agent=self.agent, imported_id=task.id).exists()
        if task.id and job.pk != task.id and not taken:
            CronJob.objects.filter(pk=job.pk).update(imported_id=task.id)
        return job.pk
