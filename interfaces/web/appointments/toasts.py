"""What a page says after something was done, and the address that takes it back: the toasts of `parts/toast.html`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest
from django.urls import reverse

from automations.appointments.pause_all import Several
from automations.jobs.explain import next_run
from automations.models import CronJob
from automations.runs.describe import when
from automations.runs.skips import Gap
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import coming_pause, paused_until
from interfaces.web.formats import with_times

OFF, ON = "off", "on"  # what `switch` takes; anything else is `<begin>/<end>` of a pause, or its end alone
MOST_NAMED = 3  # that were left as they are


@dataclass(frozen=True, kw_only=True)
class Done:
    """What was done, in a sentence; instants in it are on the clock of `zone`. `undo`: the address that a POST to takes
    it back; empty: nothing does. `card`: the appointment.
    """

    text: str
    zone: str
    undo: str = ""
    card: str = ""

    def say(self, request: HttpRequest) -> None:
        """Show it with the next page or part of a page."""
        messages.success(request, with_times(self.text, self.zone), extra_tags=self.undo)


def done(job: CronJob, text: str, undo: str = "") -> Done:
    """Something was done with this automation or routine; `text` follows its name."""
    return Done(text=f"“{job.name}” {text}", zone=job.timezone, undo=undo, card=job.pk)


def planned(job: CronJob, text: str, undo: str = "") -> Done:
    """The same, and when it runs next."""
    at = next_run(job.pk)
    coming = f" Next run: {when(at, zone_or_utc(job.timezone))}." if at else ""
    return done(job, f"{text}{coming}", undo)


def skipped(session_id: uuid.UUID, job: CronJob, gap: Gap) -> Done:
    """These slots were skipped, which can be undone as long as one of them is to come."""
    zone = zone_or_utc(job.timezone)
    undo = (
        f"{reverse('unskip', args=[session_id, job.pk])}?{urlencode({'since': gap.slots_from.isoformat()})}"
    )
    if gap.slots_from == gap.slots_to:
        text = f"The run of “{job.name}” at {when(gap.slots_from, zone)} is left out."
    else:
        ends = f"from {when(gap.slots_from, zone)} to {when(gap.slots_to, zone)}"
        text = f"{gap.count or 'More than 1,000'} runs of “{job.name}” are left out, {ends}."
    is_to_come = gap.slots_to > datetime.now(UTC)
    return Done(text=text, zone=job.timezone, undo=undo if is_to_come else "", card=job.pk)


def standing(job: CronJob) -> str:
    """What `switch` takes to bring the job back to how it stands."""
    if not job.enabled:
        return OFF
    if pause := coming_pause(job):
        return "/".join(each.isoformat() for each in pause if each)
    until = paused_until(job)
    return until.isoformat() if until else ON


def switched(session_id: uuid.UUID, kind: str, job: CronJob, before: str) -> Done:
    """The job was paused or resumed. `before`: how it stood; if it stands so still, there is nothing to undo."""
    now, back = standing(job), urlencode({"to": before, "revision": job.revision})
    undo = "" if now == before else f"{reverse('switch', args=[session_id, kind, job.pk])}?{back}"
    if now == ON:
        return planned(job, "runs at its usual pace again." if now == before else "runs again.", undo)
    return done(job, f"is paused{'' if now == OFF else paused(job, job.timezone)}.", undo)


def paused(job: CronJob, clock: str) -> str:
    """` from … until …` or ` until …` on this clock; empty for a job without a pause."""
    zone, pause, until = zone_or_utc(clock), coming_pause(job), paused_until(job)
    if pause and pause.begin:
        return f" from {when(pause.begin, zone)} until {when(pause.end, zone)}"
    return f" until {when(until, zone)}" if until else ""


def several(found: Several, zone: str, undo: str) -> Done:
    """All of a conversation or a person were paused, or brought back."""
    left = "".join(f" “{job.name}” was left as it is: {why}." for job, why in found.left[:MOST_NAMED])
    more = len(found.left) - MOST_NAMED
    left += f" So were {more} more." if more > 0 else ""
    number, pause = len(found.done), "".join(paused(job, zone) for job in found.done[:1])
    what = f"{number} appointment{'s are' if number > 1 else ' is'} {f'paused{pause}' if undo else 'back as before'}."
    return Done(text=f"{what if number else 'Nothing was changed.'}{left}", zone=zone, undo=undo)


def moved(session_id: uuid.UUID, job: CronJob, slot: datetime, to: datetime) -> Done:
    """A run was moved, and is moved back the same way."""
    zone = zone_or_utc(job.timezone)
    back = urlencode({"slot": to.isoformat(), "to": slot.isoformat()})
    undo = f"{reverse('move', args=[session_id, job.pk])}?{back}"
    return planned(job, f"runs at {when(to, zone)} instead of {when(slot, zone)}.", undo)
