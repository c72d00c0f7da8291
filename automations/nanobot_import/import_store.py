"""Import nanobot's job store into an agent, in one transaction (rule 4.1).

Jobs that were imported before, by their id in the store, are not changed, so importing twice is harmless, even at the
same time: an import locks the agent's row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db import IntegrityError, transaction

from automations.jobs.clock import database_now, notify_beats, start_clock
from automations.jobs.edit import check_limit, insert_job, lock_session
from automations.jobs.system import DREAM, change_system_job
from automations.models import CronJob, Source
from automations.models.job import Category
from automations.nanobot_import.store_file import (
    JobRefused,
    StoredJob,
    Wanted,
    id_of,
    read_store,
    stored_text,
    wanted_of,
)
from automations.schedules.plan import schedule_columns
from sessions_app.agents.edit import lock_dependents
from sessions_app.exceptions import NotFound, SessionExists, SessionsError
from sessions_app.models import PRIMARY_KEY, Agent, Session
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.postgres.rows import existing, get_or_none
from sessions_app.sessions.open import check_key_not_reserved, open_session

HEARTBEAT = "use the agent's setting `heartbeat` instead"


class Outcome(StrEnum):
    """The result for one job of the file."""

    IMPORTED = "imported"
    TAKEN_OVER = "taken over"
    NOT_STORED = "not stored"
    ALREADY_THERE = "already there"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One job of the file. `stored_id` is its id in the file, `id` its id here; `next_run_at` is an ISO time.

    `category` is bound, legacy or system. `note`: what differs from the file, or why the job was refused.
    """

    place: str
    outcome: Outcome
    stored_id: str = ""
    name: str = ""
    category: str | None = None
    id: str | None = None
    session_key: str | None = None
    schedule: str | None = None
    enabled: bool | None = None
    next_run_at: str | None = None
    note: str = ""

    def in_words(self) -> str:
        """The job in one line."""
        head = f"{self.place} {_one_line(self.stored_id)} {_one_line(self.name)!r}"
        if self.outcome is Outcome.REFUSED:
            return f"refused  {head}: {self.note}"
        parts = [f"{self.category or '-':<8} {head}: {self.outcome}"]
        if self.id is not None:
            parts.append(f"as {self.id}")
        if self.session_key:
            parts.append(f"in {self.session_key}")
        if self.schedule:
            parts.append(self.schedule)
        if self.enabled is not None:
            parts.append(f"next run {self.next_run_at or 'none'}" if self.enabled else "paused")
        return ", ".join(parts) + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All jobs of the file, in its order."""

    lines: tuple[Line, ...]
    dry_run: bool

    @property
    def totals(self) -> dict[str, int]:
        """The number of imported jobs by category, and of jobs not stored, refused or there already."""
        came = [line for line in self.lines if line.outcome in {Outcome.IMPORTED, Outcome.TAKEN_OVER}]
        counts = {kind: sum(line.category == kind for line in came) for kind in ("bound", "legacy", "system")}
        others = (Outcome.NOT_STORED, Outcome.REFUSED, Outcome.ALREADY_THERE)
        return counts | {
            outcome.replace(" ", "_"): sum(line.outcome is outcome for line in self.lines)
            for outcome in others
        }

    def in_words(self) -> Iterator[str]:
        """One line for each job, then the totals."""
        for line in self.lines:
            yield line.in_words()
        yield ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self.totals.items()) + "."
        if self.dry_run:
            yield "A dry run: nothing was stored."

    def to_json(self) -> dict[str, Any]:
        """`{ok, dry_run, jobs, totals}`."""
        jobs = [asdict(line) for line in self.lines]
        return {"ok": True, "dry_run": self.dry_run, "jobs": jobs, "totals": self.totals}


def _one_line(text: str) -> str:
    """A text of the file without control characters, at most 60 characters."""
    printable = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return printable[:60]


def import_store(agent_id: int, content: bytes, *, dry_run: bool = False) -> Report:
    """Import the jobs of a store; with `dry_run` only report what would be imported. StoreRefused, NotFound."""
    jobs = read_store(content)
    lines = retry_deadlocks(lambda: _import(agent_id, jobs, dry_run))
    return Report(lines=tuple(lines), dry_run=dry_run)


def _import(agent_id: int, jobs: list[StoredJob], dry_run: bool) -> list[Line]:
    try:
        with transaction.atomic():
            lock_dependents(agent_id)
            agent = existing(Agent.objects.select_for_update(no_key=True).filter(pk=agent_id))
            importer = _Importer(agent=agent, now=database_now())
            lines = [importer.import_job(job) for job in jobs]
            transaction.on_commit(notify_beats, robust=True)
            if dry_run:
                transaction.set_rollback(True)
    except IntegrityError as error:  # at the commit: the agent or a session was deleted
        raise NotFound("the agent or a session of it was deleted just now") from error
    return lines


@dataclass(kw_only=True)
class _Importer:
    """One import; `seen` maps ids of the store to their first place in the file."""

    agent: Agent
    now: datetime
    seen: dict[str, str] = field(default_factory=dict)

    def import_job(self, job: StoredJob) -> Line:
        """Import one job. A refused job does not stop the others."""
        about: dict[str, Any] = {"place": job.place}
        try:
            about |= {"stored_id": id_of(job), "name": stored_text(job, "name")}
            first = self.seen.setdefault(about["stored_id"], job.place)
            if first != job.place:
                raise JobRefused(f"{first} has the same id")
            return Line(**about | self._result(job, about["stored_id"]))
        except (JobRefused, SessionsError) as refusal:
            return Line(**about, outcome=Outcome.REFUSED, note=str(refusal))

    def _result(self, job: StoredJob, stored_id: str) -> dict[str, Any]:
        there = get_or_none(CronJob.objects.filter(agent=self.agent, imported_id=stored_id))
        if there is not None:
            return {"outcome": Outcome.ALREADY_THERE, "id": there.pk}
        if stored_id == "heartbeat":
            return {"outcome": Outcome.NOT_STORED, "category": Category.SYSTEM, "note": HEARTBEAT}
        wanted = wanted_of(job, timezone=self.agent.timezone, now=self.now)
        return self._line_fields(self._store(wanted), wanted)

    def _store(self, wanted: Wanted) -> CronJob:
        match wanted.category:
            case Category.BOUND:
                session = self._session(wanted.session_key)
                if wanted.enabled:
                    check_limit(session)
                return self._create(wanted, session=session)
            case Category.LEGACY:
                return self._create(wanted, **wanted.legacy)
            case Category.SYSTEM:
                return self._update_dream(wanted)
        raise JobRefused("a job store cannot hold routines")

    def _session(self, key: str) -> Session:
        """The agent's session with this key; opened when it does not exist. BadInput, NotFound, SessionClosed."""
        rows = Session.objects.filter(agent=self.agent, key=key)
        if key != PRIMARY_KEY:
            check_key_not_reserved(key)  # even if the session exists: internal keys are reserved
            if not rows.exists():
                with suppress(SessionExists):  # opened by another request meanwhile
                    open_session(self.agent, key=key, served_elsewhere=True)
        return lock_session(existing(rows).pk)

    def _create(self, wanted: Wanted, **columns: Any) -> CronJob:
        job = CronJob(
            agent=self.agent,
            name=wanted.name,
            message=wanted.message,
            enabled=wanted.enabled,
            source=Source.IMPORT,
            imported_id=wanted.stored_id,
            **schedule_columns(wanted.schedule, self.agent.timezone),
            **columns,
        )
        insert_job(job, wanted.stored_id)
        start_clock(job, self.now)
        return job

    def _update_dream(self, wanted: Wanted) -> CronJob:
        """Give the schedule to the agent's own dream; it stays enabled or disabled as it was."""
        job = get_or_none(CronJob.objects.filter(agent=self.agent, system_event=DREAM))
        if wanted.stored_id != DREAM or job is None:
            raise JobRefused(f"unknown system event {wanted.stored_id[:60]!r}")
        columns = schedule_columns(wanted.schedule, self.agent.timezone)
        change_system_job(job, columns | {"imported_id": wanted.stored_id}, self.now)
        return job

    def _line_fields(self, job: CronJob, wanted: Wanted) -> dict[str, Any]:
        system = wanted.category is Category.SYSTEM
        following = job.clock.next_run_at
        notes = [wanted.note]
        if not system and job.pk != wanted.stored_id:
            notes.append("its id is taken or not valid here")
        return {
            "outcome": Outcome.TAKEN_OVER if system else Outcome.IMPORTED,
            "category": wanted.category,
            "id": job.pk,
            "name": job.name,
            "session_key": job.session.key if job.session else None,
            "schedule": wanted.schedule.in_words(job.timezone),
            "enabled": job.enabled,
            "next_run_at": following.isoformat() if following else None,
            "note": "; ".join(filter(None, notes)),
        }
