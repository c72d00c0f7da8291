"""System jobs: what the server does for each agent by itself, one job of each event (rule 4.1).

They are protected: made with the agent, deleted with it, and changed by no tool and no API.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from automations.clocks import account_overdue, database_now, rewind
from automations.due import plans_changed
from automations.jobs import schedule_columns
from automations.models import CronJob, JobClock, JobKind, Source
from automations.plan import plan_of, spread
from automations.schedule import CronSchedule, EverySchedule, whole_milliseconds
from sessions_app.models import Agent

DREAM, HEARTBEAT = "dream", "heartbeat"
DREAM_HOUR = 3  # on the agent's own clock


def dream_schedule(agent: Agent) -> CronSchedule:
    """Nightly; agents are spread over the hour by their number."""
    return CronSchedule(expr=f"{agent.pk % 60} {DREAM_HOUR} * * *", timezone=agent.timezone)


def heartbeat_columns(agent: Agent, now: datetime) -> dict[str, Any]:
    """The heartbeat's plan as the agent's settings have it; agents are spread over the interval."""
    seconds = agent.heartbeat["interval_seconds"]
    first, end = agent.heartbeat["active_hours"]
    anchor = whole_milliseconds(now) + spread(agent.pk, timedelta(seconds=seconds))
    schedule = EverySchedule(seconds=seconds, anchor=anchor)
    hours = {"active_from": first, "active_to": end, "timezone": agent.timezone}
    return hours | {"enabled": agent.heartbeat["enabled"]} | schedule_columns(schedule)


class SystemJobs:
    """The system jobs of agents, as their agents come and change."""

    def made(self, agent: Agent) -> None:
        """A dream and a heartbeat for the new agent."""
        now = database_now()
        _make(agent, DREAM, schedule_columns(dream_schedule(agent)), now)
        _make(agent, HEARTBEAT, heartbeat_columns(agent, now), now)
        transaction.on_commit(plans_changed, robust=True)

    def heartbeat_changed(self, agent: Agent) -> None:
        """Another interval begins a grid of its own; other hours, on and off count from now."""
        job = CronJob.objects.filter(agent=agent, system_event=HEARTBEAT).first()
        if job is None:
            return
        clock, now = JobClock.objects.get(job=job), database_now()
        if job.enabled and not job.fault:
            account_overdue(clock, job, now)
        columns = heartbeat_columns(agent, now)
        if columns["every_seconds"] == job.every_seconds:
            del columns["anchor"]
        for name, value in (columns | {"fault": ""}).items():
            setattr(job, name, value)
        job.revision += 1
        job.save(update_fields=[*columns, "fault", "revision", "updated_at"])
        rewind(clock, job, now)
        transaction.on_commit(plans_changed, robust=True)

    def lock(self, agent_id: int) -> None:
        """The clocks, then the jobs that are bound to no session: system jobs and legacy ones."""
        clocks = JobClock.objects.select_for_update(of=("self",))
        ids = [clock.pk for clock in clocks.filter(job__agent_id=agent_id, job__session=None).order_by("pk")]
        list(CronJob.objects.select_for_update().filter(pk__in=ids).order_by("pk").values_list("pk"))

    def zone_changed(self, agent: Agent, before: str) -> None:
        """System jobs keep the agent's time of day, unless they were given a zone of their own."""
        for job in CronJob.objects.exclude(system_event="").filter(agent=agent, timezone=before):
            clock, now = JobClock.objects.get(job=job), database_now()
            if job.fault:  # the zone may have been what set it aside
                job.enabled, job.fault = job.system_event != HEARTBEAT or agent.heartbeat["enabled"], ""
            else:
                account_overdue(clock, job, now)
            job.timezone = agent.timezone
            job.revision += 1
            job.save(update_fields=["timezone", "enabled", "fault", "revision", "updated_at"])
            rewind(clock, job, now)
        transaction.on_commit(plans_changed, robust=True)


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
    first = plan_of(job, 0).next_firing(now) if job.enabled else None
    JobClock.objects.create(job=job, next_run_at=first, planned_from=now)
