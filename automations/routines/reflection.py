"""Register routines from a heartbeat (rule 5.6).

A routine is never registered twice, and never when a person removed it. Each is reported to people. Firing starts none
before the heartbeat has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.db import transaction

from automations.exceptions import AutomationsError, DuplicateRoutine
from automations.jobs.removed_routines import normalised, was_removed
from automations.models import CronJob, ScheduleKind, Source
from automations.routines.edit import NewRoutine, add_routine, agent_routines, lock_agent
from automations.routines.intents import register_intent
from automations.runs import report
from sessions_app.models import Turn
from sessions_app.postgres.retry import retry_deadlocks


class RoutineRemoved(AutomationsError):
    """A person removed a routine with this title."""

    code = "routine_removed"


@dataclass(frozen=True, kw_only=True)
class Intended:
    """The line of MEMORY.md that a routine is for, with the document's revision."""

    line: int
    revision: int


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A routine; `is_new`: it did not exist before."""

    job: CronJob
    is_new: bool


def register_reflected_routine(
    turn: Turn, source_key: str, given: NewRoutine, intended: Intended | None
) -> Registered:
    """Register a routine in the heartbeat's turn. With `intended`, an existing routine is returned.

    DuplicateRoutine, RoutineRemoved, NoIntent, RevisionConflict, and the errors of `add_routine`.
    """
    given = replace(given, source=Source.HEARTBEAT_REFLECT, allow_duplicate=False, session_id=None)
    new: list[str] = []

    def add(routine: NewRoutine) -> CronJob:
        job = _added(turn, source_key, routine)
        new[:] = [job.pk]
        return job

    if intended is None:
        job = retry_deadlocks(lambda: add(given))
    else:
        job = register_intent(intended.line, intended.revision, given, add=add)
    return Registered(job=job, is_new=job.pk in new)


@transaction.atomic
def _added(turn: Turn, source_key: str, given: NewRoutine) -> CronJob:
    lock_agent(given.agent_id)
    _refuse_what_was_there(given)
    job = add_routine(given)
    report.report_registered(turn, job, source_key)
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
