"""System jobs: the jobs that the server creates for each agent, one for each event (rule 4.1).

They are protected: created and deleted with the agent, and changed by no tool and no API.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from automations.jobs.clock import (
    database_now,
    notify_beats,
    restart_clock,
    skip_overdue_slots,
    start_clock,
)
from automations.jobs.edit import save_columns
from automations.models import CronJob, JobClock, JobKind, ScheduledMessage, Source
from automations.schedules.plan import offset_of_agent, schedule_columns
from automations.schedules.schedule import CronSchedule, EverySchedule, whole_milliseconds
from sessions_app.models import Agent
from sessions_app.postgres.rows import get_or_none

DREAM, HEARTBEAT = "dream", "heartbeat"
DREAM_HOUR = 3  # in the agent's zone


def dream_schedule(agent: Agent) -> CronSchedule:
    """Nightly; agents are spread over the hour by their id."""
    return CronSchedule(expr=f"{agent.pk % 60} {DREAM_HOUR} * * *", timezone=agent.timezone)


def heartbeat_columns(agent: Agent, now: datetime) -> dict[str, Any]:
    """The heartbeat's schedule from the agent's settings; agents are spread over the interval."""
    seconds = agent.heartbeat["interval_seconds"]
    first, end = agent.heartbeat["active_hours"]
    anchor = whole_milliseconds(now) + offset_of_agent(agent.pk, timedelta(seconds=seconds))
    schedule = EverySchedule(seconds=seconds, anchor=anchor)
    hours = {"active_from": first, "active_to": end}
    return hours | {"enabled": agent.heartbeat["enabled"]} | schedule_columns(schedule, agent.timezone)


class SystemJobs:
    """Creates and updates an agent's system jobs when the agent is created or changed."""

    def made(self, agent: Agent) -> None:
        """Create the dream and the heartbeat of a new agent."""
        now = database_now()
        _make(agent, DREAM, schedule_columns(dream_schedule(agent), agent.timezone), now)
        _make(agent, HEARTBEAT, heartbeat_columns(agent, now), now)
        transaction.on_commit(notify_beats, robust=True)

    def heartbeat_changed(self, agent: Agent) -> None:
        """Apply changed heartbeat settings from now on. A new interval gets a new anchor."""
        job = get_or_none(CronJob.objects.filter(agent=agent, system_event=HEARTBEAT))
        if job is None:
            return
        now = database_now()
        columns = heartbeat_columns(agent, now)
        if columns["every_seconds"] == job.every_seconds:
            del columns["anchor"]
        change_system_job(job, columns | {"fault": ""}, now)
        transaction.on_commit(notify_beats, robust=True)

    def lock(self, agent_id: int) -> None:
        """Lock the clocks, then the jobs, of the agent's system and legacy jobs."""
        clocks = JobClock.objects.select_for_update(of=("self",))
        ids = [clock.pk for clock in clocks.filter(job__agent_id=agent_id, job__session=None).order_by("pk")]
        list(CronJob.objects.select_for_update().filter(pk__in=ids).order_by("pk").values_list("pk"))

    def zone_changed(self, agent: Agent, before: str) -> None:
        """Move system jobs to the agent's new zone, except those with another zone than the agent's old one."""
        for job in CronJob.objects.exclude(system_event="").filter(agent=agent, timezone=before):
            columns: dict[str, Any] = {"timezone": agent.timezone}
            if job.fault:  # the old zone may have been the cause
                enabled = job.system_event != HEARTBEAT or agent.heartbeat["enabled"]
                columns |= {"enabled": enabled, "fault": ""}
            change_system_job(job, columns, database_now())
        transaction.on_commit(notify_beats, robust=True)

    def is_used(self, agent_id: int) -> bool:
        """Whether anything but system jobs is planned for the agent."""
        jobs = CronJob.objects.filter(agent_id=agent_id).exclude(source=Source.SYSTEM)
        return jobs.exists() or ScheduledMessage.objects.filter(session__agent_id=agent_id).exists()


def _make(agent: Agent, event: str, columns: dict[str, Any], now: datetime) -> None:
    job = CronJob(
        agent=agent,
        name=event.capitalize(),
        kind=JobKind.SYSTEM_EVENT,
        system_event=event,
        source=Source.SYSTEM,
        **columns,
    )
    job.save(force_insert=True)
    start_clock(job, now)


def change_system_job(job: CronJob, columns: Mapping[str, Any], now: datetime) -> None:
    """Write these columns and plan the job anew from now. Slots that are due are recorded as skipped."""
    job.clock = JobClock.objects.get(job=job)
    if not job.fault:
        skip_overdue_slots(job.clock, job, now)
    save_columns(job, columns)
    restart_clock(job.clock, job, now)
