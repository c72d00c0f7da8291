"""How many automations, routines and scheduled messages one user may have."""

from __future__ import annotations

from django.conf import settings
from django.db.models import QuerySet

from automations.exceptions import AutomationsError, TooManyMessages
from automations.models import CronJob, MessageStatus, ScheduledMessage
from sessions_app import quotas
from sessions_app.models import Session

FREQUENT = 60  # seconds; a shorter interval counts as frequent
MOST_FREQUENT = 10  # automations and routines of one user with such an interval


def check_quota(job: CronJob, error: type[AutomationsError]) -> None:
    """Raise the error if the owner of this enabled job has as many others as a user may have.

    Jobs without slots left and those of the system do not count. Call it in the transaction that stores the job, after
    its locks.
    """
    quotas.one_at_a_time("automations", job.agent.owner_id)
    others = CronJob.objects.filter(
        agent__owner_id=job.agent.owner_id, enabled=True, system_event="", clock__next_run_at__isnull=False
    ).exclude(pk=job.pk)
    most = settings.RONDO_AUTOMATIONS_PER_USER
    if _has(others, most):
        raise error(f"you have {most:,} enabled automations and routines, as many as a user may have here")
    is_frequent = job.every_seconds is not None and job.every_seconds < FREQUENT
    if is_frequent and _has(others.filter(every_seconds__lt=FREQUENT), MOST_FREQUENT):
        raise error(
            f"you have {MOST_FREQUENT} automations and routines with an interval of less than {FREQUENT} s, as many as"
            f" a user may have; use at least {FREQUENT} s"
        )


def check_message_quota(session: Session, *, replaces: bool) -> None:
    """TooManyMessages. `replaces`: the message takes the place of the session's pending ones.

    Call it in the transaction that stores the message.
    """
    quotas.one_at_a_time("messages", session.owner_id)
    pending = ScheduledMessage.objects.filter(
        status=MessageStatus.PENDING, session__owner_id=session.owner_id
    )
    most = settings.RONDO_AUTOMATIONS_PER_USER
    if _has(pending.exclude(session=session) if replaces else pending, most):
        raise TooManyMessages(
            f"you have {most:,} pending scheduled messages, as many as a user may have here; cancel some first"
        )


def count_texts(job: CronJob) -> None:
    """Count the texts of a job that is stored among what its user stores."""
    quotas.count_texts(job.agent.owner_id, job.message, job.description)


def stored_texts(owner_id: int) -> int:
    """Return the bytes of the texts of a user's automations and routines."""
    return quotas.octets(CronJob.objects.filter(agent__owner_id=owner_id), "message", "description")


def _has(rows: QuerySet[CronJob] | QuerySet[ScheduledMessage], most: int) -> bool:
    return rows.order_by()[most - 1 : most].exists()
