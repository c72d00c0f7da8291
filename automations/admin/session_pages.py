"""What automations add to the pages of sessions below."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q
from django.urls import reverse

from automations.jobs import schedule_of
from automations.models import CronJob, ExecutionMode, ScheduledMessage
from automations.schedule import ScheduleError
from automations.schedule_words import describe
from sessions_app.admin import above
from sessions_app.admin.base import instant
from sessions_app.admin.panels import Panel, link, list_of, table
from sessions_app.delete import Blocker
from sessions_app.models import Session

MOST = 50  # automations shown on a session's page


class AutomationPages:
    """Automations on a session's page and on the pages that delete."""

    def panel(self, session: Session) -> Panel:
        """The session's automations and the routines whose home it is, newest last."""
        mine = CronJob.objects.filter(Q(session=session) | Q(home=session))
        jobs = mine.select_related("clock", "agent").order_by("created_at")
        return table(
            "Automations",
            ["name", "id", "schedule", "enabled", "next run (UTC)"],
            [
                [
                    link(job),
                    job.pk,
                    _words(job),
                    "yes" if job.enabled else "no",
                    instant(job.clock.next_run_at),
                ]
                for job in jobs[:MOST]
            ],
            more=list_of(CronJob, session__id__exact=session.pk),
        )

    def page_of(self, blocker_id: str) -> str:
        """The job's page."""
        return reverse("admin:automations_cronjob_change", args=[blocker_id])

    def owned_by(self, agent_ids: Collection[int]) -> tuple[Blocker, ...]:
        """Jobs bound to sessions of these agents, and their routines."""
        bound = Q(session__isnull=False) | ~Q(execution_mode=ExecutionMode.SESSION)
        jobs = CronJob.objects.filter(bound, agent_id__in=agent_ids).order_by("created_at", "id")
        return tuple(Blocker(id=job.pk, name=job.name, enabled=job.enabled) for job in jobs)


class MessagePages:
    """Scheduled messages on a session's page; they are in no deletion's way."""

    def panel(self, session: Session) -> Panel:
        """What is scheduled in the session, newest first."""
        rows = ScheduledMessage.objects.filter(session=session).order_by("-created_at", "-pk")[:MOST]
        return table(
            "Scheduled messages",
            ["id", "due (UTC)", "status", "text"],
            [[link(row), instant(row.send_at), row.status, row.message_text[:80]] for row in rows],
            more=list_of(ScheduledMessage, session__id__exact=session.pk),
        )

    def page_of(self, blocker_id: str) -> str:  # noqa: ARG002 - everybody is asked alike
        """None of them is ever in the way."""
        return ""

    def owned_by(self, agent_ids: Collection[int]) -> tuple[Blocker, ...]:  # noqa: ARG002
        """Nothing that is in the way."""
        return ()


def _words(job: CronJob) -> str:
    try:
        return describe(schedule_of(job), zone=job.agent.timezone)
    except ScheduleError as error:
        return f"unreadable: {error}"


above.register(AutomationPages())
above.register(MessagePages())
