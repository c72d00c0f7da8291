"""Bound automations: what a slot's turn begins with, and what is bound to a session."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now

from automations.models import CronJob, ExecutionMode, JobClock, RunRecord, RunState
from automations.queued_runs import cancel_queued_runs
from automations.slot_kind import SlotKind, trigger_of
from sessions_app.delete import Blocker
from sessions_app.kinds import Trigger
from sessions_app.models import Session, SessionType, Turn, TurnKind

PROMPT = "cron.agent_turn.reminder"


class AutomationKind(SlotKind):
    """A slot of a bound job: a normal turn of its session, with a readable trigger and a recorded run."""

    name = TurnKind.AUTOMATION

    def trigger(self, turn: Turn) -> Trigger:
        """The automation's own words; the answer goes where a person last wrote, never to a legacy address."""
        return trigger_of(turn, PROMPT, route_of(turn.session_id))


def route_of(session_id: uuid.UUID) -> dict[str, Any]:
    """Where the answer goes: where a person last wrote in this session, `web` before anyone has."""
    last = Session.objects.values_list("last_route", flat=True).get(pk=session_id)
    return last or {"channel": "web", "chat_id": "", "meta": {}}


def _of_session(session_id: uuid.UUID) -> Q:
    """What belongs to a session: a routine without a home belongs to the agent's primary one."""
    primary = Session.objects.filter(pk=session_id, type=SessionType.PRIMARY).values("agent_id")
    homeless = Q(home=None, agent__in=primary) & ~Q(execution_mode=ExecutionMode.SESSION)
    return Q(session_id=session_id) | Q(home_id=session_id) | homeless


class SessionAutomations:
    """What automations and routines bind to sessions, for deletion."""

    def blockers(self, session_id: uuid.UUID) -> tuple[Blocker, ...]:
        """The session's bound jobs and the routines whose home it is, disabled ones too."""
        jobs = CronJob.objects.filter(_of_session(session_id)).order_by("created_at", "id")
        return tuple(Blocker(id=job.pk, name=job.name, enabled=job.enabled) for job in jobs)

    def lock(self, session_ids: list[uuid.UUID], agent_id: int | None) -> tuple[str, ...]:
        """Lock the clocks, then the jobs: the order beat and edits lock in; the ids of those that are in the way."""
        which = Q(job__session_id__in=session_ids) | Q(job__home_id__in=session_ids)
        if agent_id is not None:  # its legacy and system jobs, too
            which |= Q(job__agent_id=agent_id)
        clocks = JobClock.objects.select_for_update(of=("self",)).filter(which).order_by("job_id")
        ids = list(clocks.values_list("job_id", flat=True))
        jobs = CronJob.objects.select_for_update().filter(pk__in=ids).order_by("pk")
        return tuple(
            job.pk
            for job in jobs.only("session_id", "execution_mode")
            if job.session_id is not None or job.execution_mode != ExecutionMode.SESSION
        )

    def delete(self, ids: tuple[str, ...]) -> None:
        """Delete these jobs with their runs. One that was bound since the lock stays, and is in the way.

        A routine runs in other sessions than its home, which stay: what waits there ends with it.
        """
        for job in CronJob.objects.filter(pk__in=ids).exclude(execution_mode=ExecutionMode.SESSION):
            cancel_queued_runs(job, "deleted")
        RunRecord.objects.filter(job_id__in=ids).delete()
        JobClock.objects.filter(job_id__in=ids).delete()
        CronJob.objects.filter(pk__in=ids).delete()

    def let_go(self, session_ids: list[uuid.UUID]) -> None:
        """A legacy or system job outlives its session: runs that wait or run in it end with it."""
        RunRecord.objects.filter(
            session_id__in=session_ids, state__in=[RunState.QUEUED, RunState.RUNNING]
        ).update(state=RunState.CANCELLED, reason="session_deleted", not_before=None, finished_at=Now())
