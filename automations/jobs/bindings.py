"""Automations, routines and scheduled messages of a session, for its deletion."""

from __future__ import annotations

import uuid

from django.db.models import F, Q

from automations.jobs.removed_routines import remember_removed_titles
from automations.models import CronJob, ExecutionMode, JobClock, MessageStatus, RunRecord, ScheduledMessage
from automations.runs.record import cancel_queued_runs
from sessions_app.models import Session, SessionType
from sessions_app.models.session import WEB, ChatType
from sessions_app.sessions.delete import Blocker
from sessions_app.single_line import one_line

LONGEST_NAME = 60  # characters of a message's text

# routines at home in a private web thread: the same person can read their results in the primary session
_CAN_MOVE = Q(home__type=SessionType.SUB, home__channel=WEB, home__chat_type=ChatType.PRIVATE)


def _of_session(session_id: uuid.UUID) -> Q:
    """The jobs of a session; routines without a home are the primary session's."""
    primary = Session.objects.filter(pk=session_id, type=SessionType.PRIMARY).values("agent_id")
    homeless = Q(home=None, agent__in=primary) & ~Q(execution_mode=ExecutionMode.SESSION)
    return Q(session_id=session_id) | Q(home_id=session_id) | homeless


class SessionAppointments:
    """Automations, routines and scheduled messages of sessions that are to be deleted.

    Automations and routines block the deletion, but a routine whose home is a private web thread moves to the primary
    session. Pending messages go along.
    """

    def blockers(self, session_id: uuid.UUID, *, with_agent: bool) -> tuple[Blocker, ...]:
        """The session's bound jobs and the routines that would lose their home, disabled ones too."""
        jobs = CronJob.objects.filter(_of_session(session_id)).order_by("created_at", "id")
        if not with_agent:
            jobs = jobs.exclude(_CAN_MOVE)
        return tuple(Blocker(id=job.pk, name=job.name, enabled=job.enabled) for job in jobs)

    def companions(self, session_id: uuid.UUID) -> tuple[Blocker, ...]:
        """The session's messages that were not sent yet, the next one first."""
        rows = ScheduledMessage.objects.filter(session_id=session_id, status=MessageStatus.PENDING)
        return tuple(
            Blocker(id=row.pk, name=one_line(row.message_text, LONGEST_NAME), enabled=True)
            for row in rows.order_by("send_at", "pk")
        )

    def lock(self, session_ids: list[uuid.UUID], agent_id: int | None) -> tuple[str, ...]:
        """Lock the clocks, then the jobs, then the waiting messages, as beat and edits do: beat skips locked messages.

        Returns the ids of the jobs to delete.
        """
        which = Q(job__session_id__in=session_ids) | Q(job__home_id__in=session_ids)
        if agent_id is not None:  # also its legacy and system jobs
            which |= Q(job__agent_id=agent_id)
        clocks = JobClock.objects.select_for_update(of=("self",)).filter(which).order_by("job_id")
        ids = list(clocks.values_list("job_id", flat=True))
        list(CronJob.objects.select_for_update().filter(pk__in=ids).order_by("pk").values_list("pk"))
        messages = ScheduledMessage.objects.waiting().filter(session_id__in=session_ids)
        list(messages.select_for_update().order_by("pk").values_list("pk"))
        of_session = Q(session__isnull=False) | ~Q(execution_mode=ExecutionMode.SESSION)
        gone = CronJob.objects.filter(of_session, pk__in=ids).order_by("pk")
        if agent_id is None:
            gone = gone.exclude(_CAN_MOVE)
        return tuple(gone.values_list("pk", flat=True))

    def delete(self, ids: tuple[str, ...]) -> None:
        """Delete these jobs with their runs. A job bound after the lock stays, and blocks the deletion.

        A routine's queued runs are cancelled, because they wait in sessions other than its home.
        """
        routines = list(CronJob.objects.filter(pk__in=ids).exclude(execution_mode=ExecutionMode.SESSION))
        for job in routines:
            cancel_queued_runs(job, "deleted")
        remember_removed_titles(routines)
        RunRecord.objects.filter(job_id__in=ids).delete()
        JobClock.objects.filter(job_id__in=ids).delete()
        CronJob.objects.filter(pk__in=ids).delete()

    def detach_from_sessions(self, session_ids: list[uuid.UUID]) -> tuple[str, ...]:
        """Cancel open runs in these sessions, and move routines to the primary session. Returns the moved ids.

        The sessions' messages are deleted with their runs, before the history that they refer to.
        """
        RunRecord.objects.filter(session_id__in=session_ids).cancel("session_deleted")
        leaving = CronJob.objects.filter(_CAN_MOVE, home_id__in=session_ids).order_by("pk")
        moving = tuple(leaving.values_list("pk", flat=True))
        if moving:
            CronJob.objects.filter(pk__in=moving).update(home=None, revision=F("revision") + 1)
        RunRecord.objects.filter(scheduled_message__session_id__in=session_ids).delete()
        mine = ScheduledMessage.objects.filter(session_id__in=session_ids)
        mine.update(replaced_by=None)
        mine.delete()
        return moving
