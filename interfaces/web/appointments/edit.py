"""Make and change automations and scheduled messages in forms that show when they will run."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict

from automations import selectors
from automations.appointments.jobs import Kind
from automations.exceptions import BadJob
from automations.jobs.edit import NewJob, bind_job, parse_api_schedule, update_job
from automations.models import CronJob
from automations.routines import reads as routine_reads
from automations.routines.edit import update_routine
from automations.scheduled_messages import schedule_in_thread
from automations.schedules.describe import Preview, preview
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import paused_until
from interfaces.web.agent.sections import given_revision
from interfaces.web.appointments.appointments import changed, place_of, show_part
from interfaces.web.appointments.change_forms import ChangeForm, RoutineForm
from interfaces.web.appointments.forms import AutomationForm, LaterForm, ScheduleForm, schedule_fields
from interfaces.web.appointments.moment_field import local_time, wall_time
from interfaces.web.pages import fragment, person, person_page
from sessions_app.agents.edit import known_zones
from sessions_app.exceptions import RevisionConflict, SessionsError
from sessions_app.models import Session
from sessions_app.reads.selectors import session as session_of

CONFLICT = "It was changed meanwhile. Save again to replace that by what stands here, or cancel to see it."
COMING = 5  # times that are shown while one types
KEPT = (
    "name",
    "message",
    "max_runs",
    "overlap",
    "catch_up",
    "max_retry",
    "timeout_seconds",
    "jitter_seconds",
    "ping_url",
)


@person_page("GET", "HEAD", "POST")
def new(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Make an automation."""
    session = session_of(person(request), session_id)
    zone = session.agent.timezone
    start = {"timezone": zone, "at": _next_hour(zone), "message": request.GET.get("message", "")[:1000]}
    form = AutomationForm(_sent(request), initial=start)
    if form.is_valid() and _stored(form, lambda: _create(session_id, form)):
        return changed(request, session)
    return _shown(request, session, form)


@person_page("GET", "HEAD", "POST")
def change(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Change an automation. Only the fields that differ are replaced."""
    session = place_of(request, session_id, Kind.AUTOMATION, job_id)
    automation = selectors.automation_to_change(person(request), job_id)
    job = CronJob.objects.select_related("agent", "clock").get(pk=automation.id)
    form = ChangeForm(_sent(request), initial=_initial(job))
    seen = given_revision(request)
    if form.is_valid() and _stored(form, lambda: update_job(job.pk, form.changes(), revision=seen)):
        return changed(request, session)
    return _shown(request, session, form, job=job)


@person_page("GET", "HEAD", "POST")
def change_routine(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Change a routine. Only the fields that differ are replaced."""
    session = place_of(request, session_id, Kind.ROUTINE, job_id)
    routine = routine_reads.routine(person(request), job_id)
    job = CronJob.objects.select_related("agent").get(pk=routine.id)
    form = RoutineForm(
        _sent(request), initial=_of_repeats(job.agent.timezone, job.timezone) | RoutineForm.stored(job)
    )
    seen = given_revision(request)
    if form.is_valid() and _stored(form, lambda: update_routine(job.pk, form.changes(), revision=seen)):
        return changed(request, session)
    return _shown(request, session, form, job=job, part="routine.html")


@person_page("GET", "HEAD", "POST")
def later(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Schedule a fixed text."""
    session = session_of(person(request), session_id)
    form = LaterForm(_sent(request), initial={"send_at": _next_hour(session.agent.timezone)})
    if form.is_valid() and _stored(form, lambda: _schedule(session_id, form)):
        return changed(request, session)
    return show_part(
        request, session, "later.html", status=_status(form), form=form, zone=session.agent.timezone
    )


@person_page("POST")
def coming(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """The schedule in words and the next times, while one types. Nothing is stored."""
    session = session_of(person(request), session_id)
    form = ScheduleForm(request.POST)
    found, error, zone = None, "", session.agent.timezone
    if form.is_valid():
        try:
            found = _preview(form.cleaned_data["schedule"], zone)
        except BadJob as refused:
            error = str(refused)
    else:
        error = " ".join(str(text) for texts in form.errors.values() for text in texts)
    return fragment(request, "appointments/coming.html", preview=found, error=error, zone=zone)


def _preview(schedule: dict[str, Any], zone: str) -> Preview:
    now = datetime.now(UTC)
    return preview(parse_api_schedule(schedule, zone, now), now, COMING, zone=zone)


def _shown(
    request: HttpRequest,
    session: Session,
    form: ScheduleForm,
    job: CronJob | None = None,
    part: str = "form.html",
) -> HttpResponse:
    context = {
        "form": form,
        "job": job,
        "revision": _revision_to_send(request, form, job) if job else None,
        "zones": sorted(known_zones()),
        "zone": session.agent.timezone,
    }
    return show_part(request, session, part, status=_status(form), **context)


def _sent(request: HttpRequest) -> QueryDict | None:
    """What a form was sent with; None: it is shown for the first time."""
    return request.POST if request.method == "POST" else None


def _status(form: forms.Form) -> int:
    return 422 if form.is_bound else 200


def _revision_to_send(request: HttpRequest, form: forms.Form, job: CronJob) -> int:
    """What the person has seen: the stored values, also when told that these were changed meanwhile."""
    if form.is_bound and not form.has_error(NON_FIELD_ERRORS, RevisionConflict.code):
        return given_revision(request)
    return job.revision


def _create(session_id: uuid.UUID, form: AutomationForm) -> CronJob:
    return bind_job(NewJob(session_id=session_id, **form.values()))


def _schedule(session_id: uuid.UUID, form: LaterForm) -> object:
    given = form.cleaned_data
    text = given["message_text"].replace("\r\n", "\n")
    return schedule_in_thread(session_id, send_at=wall_time(given["send_at"]), message_text=text)


def _stored(form: forms.Form, store: Callable[[], object]) -> bool:
    """Whether it was stored. If it was refused, the form says why."""
    try:
        store()
    except RevisionConflict as error:
        form.add_error(None, ValidationError(CONFLICT, code=error.code))
        return False
    except SessionsError as error:
        name, text = error.code.removeprefix("bad_"), str(error)
        field = name if name in form.fields else None
        if text.startswith(f"{field} "):  # the API's name of the field, which the form shows with a label
            text = f"it{text.removeprefix(name)}"
        form.add_error(field, text[:1].upper() + text[1:])
        return False
    return True


def _initial(job: CronJob) -> dict[str, Any]:
    start = {name: getattr(job, name) for name in KEPT}
    for name, at in (("ends_at", job.ends_at), ("paused_until", paused_until(job))):
        start[name] = at and local_time(at, job.agent.timezone)
    return _of_repeats(job.agent.timezone, job.agent.timezone) | start | schedule_fields(job)


def _of_repeats(own_zone: str, zone: str) -> dict[str, Any]:
    """What the fields of the other ways to repeat begin with."""
    return {"timezone": zone, "at": _next_hour(own_zone)}


def _next_hour(zone: str) -> datetime:
    """The wall time of the next full hour there."""
    local = datetime.now(zone_or_utc(zone)) + timedelta(hours=1)
    return local.replace(minute=0, second=0, microsecond=0, tzinfo=None)
