"""Automations and scheduled messages on the admin pages of sessions, and on those that confirm a deletion."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q
from django.urls import reverse

from automations.models import CronJob, ExecutionMode, ScheduledMessage
from automations.schedules.describe import describe_job
from interfaces.admin.base import instant
from interfaces.admin.panels import Panel, link, list_url, table_panel
from sessions_app.models import Session
from sessions_app.sessions.dependents import Blocker

MOST = 50  # rows of a panel


def automations_panel(session: Session) -> Panel:
    """The session's automations and the routines whose home it is, newest last."""
    mine = CronJob.objects.filter(Q(session=session) | Q(home=session))
    jobs = mine.select_related("clock", "agent").order_by("created_at")
    return table_panel(
        "Automations",
        ["name", "id", "schedule", "enabled", "next run (UTC)"],
        [
            [
                link(job),
                job.pk,
                describe_job(job, job.agent.timezone),
                "yes" if job.enabled else "no",
                instant(job.clock.next_run_at),
            ]
            for job in jobs[:MOST]
        ],
        more=list_url(CronJob, session__id__exact=session.pk),
    )


def messages_panel(session: Session) -> Panel:
    """The session's scheduled messages, newest first."""
    rows = ScheduledMessage.objects.filter(session=session).order_by("-created_at", "-pk")[:MOST]
    return table_panel(
        "Scheduled messages",
        ["id", "due (UTC)", "status", "text"],
        [[link(row), instant(row.send_at), row.status, row.message_text[:80]] for row in rows],
        more=list_url(ScheduledMessage, session__id__exact=session.pk),
    )


def blocker_url(blocker_id: str) -> str:
    """The page of a job that blocks a deletion."""
    return reverse("admin:automations_cronjob_change", args=[blocker_id])


def jobs_of(agent_ids: Collection[int]) -> tuple[Blocker, ...]:
    """Jobs bound to sessions of these agents, and their routines: they block the agents' deletion."""
    bound = Q(session__isnull=False) | ~Q(execution_mode=ExecutionMode.SESSION)
    jobs = CronJob.objects.filter(bound, agent_id__in=agent_ids).order_by("created_at", "id")
    return tuple(Blocker(id=job.pk, name=job.name, enabled=job.enabled) for job in jobs)
