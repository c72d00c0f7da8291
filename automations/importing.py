"""Importing nanobot's job store into an agent, in one transaction (rule 4.1).

What is there by its id in the store is left alone, so importing twice changes nothing, also at the same time: an
import holds the agent's row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from automations.clocks import account_overdue, database_now, rewind
from automations.due import plans_changed
from automations.edit import check_limit, locked_session
from automations.import_report import Line, Outcome, Report
from automations.jobs import RESERVED_IDS, Category, schedule_columns
from automations.models import CronJob, JobClock, Source, new_job_id
from automations.plan import plan_of
from automations.schedule_words import describe
from automations.store_file import StoredJob, read_store
from automations.store_job import JobRefused, Wanted, id_of, text_of, wanted_of
from automations.system import DREAM
from sessions_app import belongings
from sessions_app.exceptions import NotFound, SessionExists, SessionsError
from sessions_app.models import PRIMARY_KEY, Agent, Session
from sessions_app.open import must_be_free, open_session
from sessions_app.patience import through_deadlocks

_KEPT_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
HEARTBEAT = "the heartbeat comes from the agent's own settings in a later release"


def import_store(agent_id: int, content: bytes, *, dry_run: bool = False) -> Report:
    """Bring in the jobs of a store, or with `dry_run` only say what would come of them. StoreRefused, NotFound."""
    jobs = read_store(content)
    lines = through_deadlocks(lambda: _import(agent_id, jobs, dry_run))
    return Report(lines=tuple(lines), dry_run=dry_run)


def _import(agent_id: int, jobs: list[StoredJob], dry_run: bool) -> list[Line]:
    try:
        with transaction.atomic():
            belongings.lock(agent_id)
            agent = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()
            if agent is None:
                raise NotFound("there is no such agent")
            importer = _Importer(agent=agent, now=database_now())
            lines = [importer.bring_in(job) for job in jobs]
            transaction.on_commit(plans_changed, robust=True)
            if dry_run:
                transaction.set_rollback(True)
    except IntegrityError as error:  # at the commit: the agent or a session went meanwhile
        raise NotFound("the agent or a session of it was deleted just now") from error
    return lines


@dataclass(kw_only=True)
class _Importer:
    """One import under way; `seen` maps ids of the store to where they stood first."""

    agent: Agent
    now: datetime
    seen: dict[str, str] = field(default_factory=dict)

    def bring_in(self, job: StoredJob) -> Line:
        """One job; a refusal is its own and holds up no other."""
        about: dict[str, Any] = {"place": job.place}
        try:
            about |= {"stored_id": id_of(job), "name": text_of(job, "name")}
            first = self.seen.setdefault(about["stored_id"], job.place)
            if first != job.place:
                raise JobRefused(f"its id stands at {first} already")
            return Line(**about | self._brought_in(job, about["stored_id"]))
        except (JobRefused, SessionsError) as refusal:
            return Line(**about, outcome=Outcome.REFUSED, note=str(refusal))

    def _brought_in(self, job: StoredJob, stored_id: str) -> dict[str, Any]:
        there = CronJob.objects.filter(agent=self.agent, imported_id=stored_id).first()
        if there is not None:
            return {"outcome": Outcome.ALREADY_THERE, "id": there.pk}
        if stored_id == "heartbeat":
            return {"outcome": Outcome.NOT_STORED, "category": Category.SYSTEM, "note": HEARTBEAT}
        wanted = wanted_of(job, timezone=self.agent.timezone, now=self.now)
        return self._told(self._stored(wanted), wanted)

    def _stored(self, wanted: Wanted) -> CronJob:
        match wanted.category:
            case Category.BOUND:
                return self._bound(wanted)
            case Category.LEGACY:
                return self._made(wanted, **wanted.legacy)
            case Category.SYSTEM:
                return self._dream(wanted)
            case Category.ROUTINE:
                raise JobRefused("a job store holds no routines")

    def _bound(self, wanted: Wanted) -> CronJob:
        session = self._session(wanted.session_key)
        if wanted.enabled:
            check_limit(session)
        return self._made(wanted, session=session)

    def _session(self, key: str) -> Session:
        """The agent's session of this key, opened when there is none. BadInput, SessionClosed."""
        if key != PRIMARY_KEY:
            must_be_free(key)  # also when such a session is there: internal ones come and go
        session = Session.objects.filter(agent=self.agent, key=key).first()
        if session is None and key != PRIMARY_KEY:
            try:
                session = open_session(self.agent, key=key)
            except SessionExists:  # somebody opened it just now
                session = Session.objects.get(agent=self.agent, key=key)
        if session is None:
            raise NotFound("the agent has no primary session")
        return locked_session(session.pk)

    def _made(self, wanted: Wanted, **columns: Any) -> CronJob:
        job = CronJob(
            pk=_id_for(wanted.stored_id),
            agent=self.agent,
            name=wanted.name,
            message=wanted.message,
            enabled=wanted.enabled,
            source=Source.IMPORT,
            imported_id=wanted.stored_id,
            **({"timezone": self.agent.timezone} | schedule_columns(wanted.schedule)),
            **columns,
        )
        try:
            with transaction.atomic():
                job.save(force_insert=True)
        except IntegrityError:  # another agent took the id just now
            job.pk = new_job_id()
            job.save(force_insert=True)
        next_run_at = plan_of(job, 0).next_firing(self.now) if job.enabled else None
        job.clock = JobClock.objects.create(job=job, next_run_at=next_run_at, planned_from=self.now)
        return job

    def _dream(self, wanted: Wanted) -> CronJob:
        """The agent's own dream gets the schedule; whether it is on is the operator's business here."""
        job = CronJob.objects.filter(agent=self.agent, system_event=DREAM).first()
        if wanted.stored_id != DREAM or job is None:
            raise JobRefused(f"the system event {wanted.stored_id[:60]!r} is not known here")
        clock = JobClock.objects.get(job=job)
        account_overdue(clock, job, self.now)
        columns = {"timezone": self.agent.timezone} | schedule_columns(wanted.schedule)
        for name, value in (columns | {"imported_id": wanted.stored_id}).items():
            setattr(job, name, value)
        job.revision += 1
        job.save()
        rewind(clock, job, self.now)
        job.clock = clock
        return job

    def _told(self, job: CronJob, wanted: Wanted) -> dict[str, Any]:
        system = wanted.category is Category.SYSTEM
        following = job.clock.next_run_at
        notes = [wanted.note]
        if not system and job.pk != wanted.stored_id:
            notes.append("its id is taken or has another form here")
        return {
            "outcome": Outcome.TAKEN_OVER if system else Outcome.IMPORTED,
            "category": wanted.category,
            "id": job.pk,
            "name": job.name,
            "session_key": job.session.key if job.session else None,
            "schedule": describe(wanted.schedule, zone=job.timezone),
            "enabled": job.enabled,
            "next_run_at": following.isoformat() if following else None,
            "note": "; ".join(filter(None, notes)),
        }


def _id_for(stored_id: str) -> str:
    """The id of the store where it is well-formed and free, else a new one."""
    if not _KEPT_ID.fullmatch(stored_id) or stored_id in RESERVED_IDS:
        return new_job_id()
    return new_job_id() if CronJob.objects.filter(pk=stored_id).exists() else stored_id
