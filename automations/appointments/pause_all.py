"""Pause all automations and routines of a conversation or of a person, and take that back: each in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from automations.appointments.jobs import MOST_JOBS, Kind, job_rows, lives_in
from automations.exceptions import BadJob
from automations.jobs.clock import database_now
from automations.jobs.edit import future_time, update_job
from automations.models import CronJob, JobClock
from automations.models.job import Category, Pause, category
from automations.routines.edit import update_routine
from automations.runs.describe import when
from automations.schedules.zone_files import zone_or_utc
from sessions_app.exceptions import SessionsError
from sessions_app.reads.selectors import shown_id

KINDS = (Kind.AUTOMATION, Kind.ROUTINE)


@dataclass(frozen=True, kw_only=True)
class Several:
    """`done`: the jobs that were changed, by their ids. `left`: those that were left as they are, and why.

    `before`: what brings each of `done` back to how it stood.
    """

    done: list[CronJob] = field(default_factory=list)
    left: list[tuple[CronJob, str]] = field(default_factory=list)
    before: dict[str, dict[str, Any]] = field(default_factory=dict)


def pause_all(
    user: AbstractBaseUser,
    zone: str,
    *,
    session_id: uuid.UUID | None = None,
    begin: str | None = None,
    until: str | None = None,
) -> Several:
    """Pause what the user reaches and what runs, or what of it lives in one conversation, at most MOST_JOBS jobs.

    `begin`, `until`: ISO times, without an offset in this zone; None: at once, until each is resumed. A job that has
    another pause, which does not lie within this one, keeps that. BadJob, NotFound.
    """
    now = database_now()
    ends = future_time(until, zone, now, "paused_until")
    begins = future_time(begin, zone, now, "paused_from")
    if begins is not None and (ends is None or begins >= ends):
        raise BadJob("paused_from must be before the end of the pause", code="bad_paused_from")
    runs = job_rows(user, KINDS).filter(enabled=True, fault="", clock__next_run_at__isnull=False)
    if session_id is not None:
        runs = runs.filter(lives_in([session_id, shown_id(user, session_id)]))
    if ends is not None:  # so that another call goes on where this one ended
        runs = runs.exclude(clock__paused_from=begins, clock__paused_until=ends)
    changes: dict[str, Any] = {"enabled": False}
    if ends is not None:
        changes = {
            "paused_from": begins.isoformat() if begins else None,
            "paused_until": ends.isoformat(),
        }
    with transaction.atomic():
        jobs = _locked(runs.values_list("pk", flat=True)[:MOST_JOBS], enabled=True, fault="")
        wanted = Pause(begins, ends) if ends else None
        other = {pk: why for pk, job in jobs.items() if (why := _other_pause(job, wanted, now, zone))}
        found = change_all({pk: changes for pk in jobs if pk not in other})
    found.left.extend((jobs[pk], why) for pk, why in other.items())
    found.before.update({job.pk: _standing(jobs[job.pk].clock.pause, now) for job in found.done})
    return found


def change_all(
    changes: Mapping[str, Mapping[str, Any]], revisions: Mapping[str, int] | None = None
) -> Several:
    """Change automations and routines in one transaction; one that refuses is left. `revisions`: those expected."""
    found = Several()
    with transaction.atomic():
        for pk, job in _locked(changes).items():
            change = update_routine if category(job) is Category.ROUTINE else update_job
            try:
                with transaction.atomic():
                    found.done.append(change(pk, changes[pk], revision=(revisions or {}).get(pk)))
            except SessionsError as error:
                found.left.append((job, str(error)))
    return found


def _locked(ids: Any, **still: Any) -> dict[str, CronJob]:
    """The jobs, their clocks locked before any session: no other edit can wait for us while we wait for it.

    `still`: what they must have after the lock as before it.
    """
    clocks = JobClock.objects.filter(pk__in=list(ids)).order_by("pk").select_for_update(no_key=True)
    known = [clock.pk for clock in clocks]
    return {
        job.pk: job
        for job in CronJob.objects.filter(pk__in=known, **still).select_related("clock").order_by("pk")
    }


def _other_pause(job: CronJob, wanted: Pause | None, now: datetime, zone: str) -> str:
    """Why the job keeps its pause; empty: it has none, or one that lies within the wanted one."""
    pause = job.clock.pause
    if pause is None or pause.end <= now or wanted is None:
        return ""
    begins, to_begin = pause.begin or now, wanted.begin or now
    if max(begins, now) >= to_begin and pause.end <= wanted.end:
        return ""
    return f"it has another pause, until {when(pause.end, zone_or_utc(zone))}"


def _standing(pause: Pause | None, now: datetime) -> dict[str, Any]:
    """What brings an enabled job with this pause back to it, as `update_job` takes it."""
    is_over = pause is None or pause.end <= now
    begins = None if pause is None or pause.begin is None or pause.begin <= now else pause.begin.isoformat()
    until = None if is_over or pause is None else pause.end.isoformat()
    return {"enabled": True, "paused_from": begins if until else None, "paused_until": until}
