"""Import nanobot's job store into an agent, in one transaction (rule 4.1).

Jobs that were imported before, by their id in the store, are not changed, so importing twice is harmless, even at the
same time: an import locks the agent's row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from automations.jobs.clock import database_now, notify_beats, restart_clock, skip_overdue_slots
from automations.jobs.edit import check_limit, lock_session
from automations.jobs.system import DREAM
from automations.models import CronJob, JobClock, Source, new_job_id
from automations.models.category import RESERVED_IDS, Category
from automations.nanobot_import.report import Line, Outcome, Report
from automations.nanobot_import.store_file import StoredJob, read_store
from automations.nanobot_import.store_job import JobRefused, Wanted, id_of, stored_text, wanted_of
from automations.schedules.plan import plan_of, schedule_columns
from sessions_app.agents.edit import lock_dependents
from sessions_app.exceptions import NotFound, SessionExists, SessionsError
from sessions_app.models import PRIMARY_KEY, Agent, Session
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.postgres.rows import get_or_none
from sessions_app.sessions.open import check_key_not_reserved, open_session

_KEPT_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
HEARTBEAT = "use the agent's setting `heartbeat` instead"


def import_store(agent_id: int, content: bytes, *, dry_run: bool = False) -> Report:
    """Import the jobs of a store; with `dry_run` only report what would be imported. StoreRefused, NotFound."""
    jobs = read_store(content)
    lines = retry_deadlocks(lambda: _import(agent_id, jobs, dry_run))
    return Report(lines=tuple(lines), dry_run=dry_run)


def _import(agent_id: int, jobs: list[StoredJob], dry_run: bool) -> list[Line]:
    try:
        with transaction.atomic():
            lock_dependents(agent_id)
            agent = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()
            if agent is None:
                raise NotFound("there is no such agent")
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
                return self._store_bound(wanted)
            case Category.LEGACY:
                return self._create(wanted, **wanted.legacy)
            case Category.SYSTEM:
                return self._update_dream(wanted)
            case Category.ROUTINE:
                raise JobRefused("a job store cannot hold routines")

    def _store_bound(self, wanted: Wanted) -> CronJob:
        session = self._session(wanted.session_key)
        if wanted.enabled:
            check_limit(session)
        return self._create(wanted, session=session)

    def _session(self, key: str) -> Session:
        """The agent's session with this key; opened when it does not exist. BadInput, SessionClosed."""
        if key != PRIMARY_KEY:
            check_key_not_reserved(key)  # even if the session exists: internal keys are reserved
        session = get_or_none(Session.objects.filter(agent=self.agent, key=key))
        if session is None and key != PRIMARY_KEY:
            try:
                session = open_session(self.agent, key=key, served_elsewhere=True)
            except SessionExists:  # opened by another request meanwhile
                session = Session.objects.get(agent=self.agent, key=key)
        if session is None:
            raise NotFound("the agent has no primary session")
        return lock_session(session.pk)

    def _create(self, wanted: Wanted, **columns: Any) -> CronJob:
        job = CronJob(
            pk=_id_for(wanted.stored_id),
            agent=self.agent,
            name=wanted.name,
            message=wanted.message,
            enabled=wanted.enabled,
            source=Source.IMPORT,
            imported_id=wanted.stored_id,
            **schedule_columns(wanted.schedule, self.agent.timezone),
            **columns,
        )
        try:
            with transaction.atomic():
                job.save(force_insert=True)
        except IntegrityError:  # another agent took the id meanwhile
            job.pk = new_job_id()
            job.save(force_insert=True)
        next_run_at = plan_of(job, 0).next_firing(self.now) if job.enabled else None
        job.clock = JobClock.objects.create(job=job, next_run_at=next_run_at, planned_from=self.now)
        return job

    def _update_dream(self, wanted: Wanted) -> CronJob:
        """Give the schedule to the agent's own dream; it stays enabled or disabled as it was."""
        job = get_or_none(CronJob.objects.filter(agent=self.agent, system_event=DREAM))
        if wanted.stored_id != DREAM or job is None:
            raise JobRefused(f"unknown system event {wanted.stored_id[:60]!r}")
        clock = JobClock.objects.get(job=job)
        skip_overdue_slots(clock, job, self.now)
        columns = schedule_columns(wanted.schedule, self.agent.timezone)
        for name, value in (columns | {"imported_id": wanted.stored_id}).items():
            setattr(job, name, value)
        job.revision += 1
        job.save()
        restart_clock(clock, job, self.now)
        job.clock = clock
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


def _id_for(stored_id: str) -> str:
    """The id of the store if it is well-formed and free, else a new one."""
    if not _KEPT_ID.fullmatch(stored_id) or stored_id in RESERVED_IDS:
        return new_job_id()
    return new_job_id() if CronJob.objects.filter(pk=stored_id).exists() else stored_id
