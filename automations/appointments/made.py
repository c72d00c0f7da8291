"""The appointments that turns made, by stored facts: what a turn promises in words is no appointment (rule 11.8)."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from automations.appointments.messages import name_of, zone_name
from automations.models import CronJob, MessageStatus, ScheduledMessage
from automations.runs.describe import when
from automations.schedules.describe import describe_job
from automations.schedules.zone_files import zone_or_utc
from sessions_app.models import Session

MOST = 200  # appointments of each kind that are read


def appointments_made(
    sessions: Collection[uuid.UUID], turn_ids: Collection[int]
) -> dict[int, list[tuple[str, str]]]:
    """Return, by id of these turns, the name and the time in words of each appointment that the turn made and that
    still exists. Two statements.
    """
    found: dict[int, list[tuple[str, str]]] = {}
    # by agent or session first: the column of the turn has no index
    agents = Session.objects.filter(pk__in=sessions).values("agent")
    jobs = CronJob.objects.filter(agent__in=agents, created_by_turn__in=turn_ids)
    for job in jobs.select_related("agent").order_by("created_at", "pk")[:MOST]:
        words = describe_job(job, zone_or_utc(job.agent.timezone).key)
        found.setdefault(job.created_by_turn_id or 0, []).append((job.name, words))
    texts = ScheduledMessage.objects.filter(session__in=sessions, created_by_turn__in=turn_ids)
    texts = texts.exclude(status=MessageStatus.CANCELLED).select_related("session__agent")
    for message in texts.order_by("created_at", "pk")[:MOST]:
        zone = zone_name(message)
        at = f"{when(message.send_at, zone_or_utc(zone))} ({zone})"
        found.setdefault(message.created_by_turn_id or 0, []).append((name_of(message), at))
    return found
