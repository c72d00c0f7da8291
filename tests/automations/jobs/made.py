"""Automations for tests: made, made due, looked at."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from automations.jobs.edit import NewJob, create_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.routines.edit import NewRoutine, add_routine
from sessions_app.exceptions import SessionsError
from sessions_app.models import Session
from tests.conftest import Person
from tests.races import in_thread

DAILY = {"kind": "cron", "expr": "0 9 * * *", "timezone": "Europe/Berlin"}
EVERY, HOURLY, EVERY_SECOND = ({"kind": "every", "seconds": each} for each in (60, 3600, 1))


def new(session: Session, **fields: Any) -> CronJob:
    """An automation of the session; daily, if nothing else is said."""
    return create_job(NewJob(session_id=session.pk, **({"message": "go", "schedule": DAILY} | fields)))


def add(person: Person, title: str = "Water", **fields: Any) -> CronJob:
    """A routine of the person's agent, which is due at once if nothing else is said."""
    return add_routine(NewRoutine(agent_id=person.agent.pk, title=title, **fields))


def clock_of(job: CronJob) -> JobClock:
    return JobClock.objects.get(pk=job.pk)


def planned_for(job: CronJob) -> datetime:
    """When the job is fired next."""
    at = clock_of(job).next_run_at
    assert at is not None
    return at


def overdue(job: CronJob, seconds: float = 1) -> datetime:
    """Let the job's next slot lie so long in the past, and its grid begin there. Returns the slot."""
    now = datetime.now(UTC)
    slot = now.replace(microsecond=now.microsecond // 1000 * 1000) - timedelta(seconds=seconds)
    JobClock.objects.filter(pk=job.pk).update(next_run_at=slot)
    CronJob.objects.filter(pk=job.pk, schedule_kind="every").update(anchor=slot)
    return slot


def past_run(job: CronJob, days: int, state: RunState, reason: str = "", **about: Any) -> RunRecord:
    """Store a run of a slot so many days ago."""
    slot = datetime.now(UTC).replace(microsecond=0) - timedelta(days=days)
    about |= {"run_id": f"{job.pk}:{days}", "scheduled_for": slot, "finished_at": slot}
    return RunRecord.objects.create(job=job, session=job.session, state=state, reason=reason, **about)


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """Run the actions at the same time, each on a connection of its own; what each came to."""
    started = [in_thread(action) for action in actions]
    for thread, _ in started:
        thread.join(30)
    return [came[0] for _, came in started]


def code_of(refused: Callable[[], Any]) -> str:
    """The code with which this is refused, in words as well."""
    with pytest.raises(SessionsError) as refusal:
        refused()
    assert str(refusal.value)
    return refusal.value.code
