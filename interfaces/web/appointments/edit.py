"""Make and change automations and scheduled messages in forms that show when they will run."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict

from automations import selectors
from automations.appointments.jobs import Kind
from automations.exceptions import BadJob, DuplicateJob
from automations.jobs.edit import NewJob, bind_job, parse_api_schedule, update_job
from automations.models import CronJob
from automations.routines import reads as routine_reads
from automations.routines.edit import update_routine
from automations.scheduled_messages import schedule_in_thread
from automations.schedules.describe import preview
from automations.schedules.zone_files import zone_or_utc
from interfaces.web.appointments.forms import (
    AutomationForm,
    ChangeForm,
    LaterForm,
    RoutineForm,
    ScheduleForm,
    beside_field,
    in_words,
    wall_time,
)
from interfaces.web.appointments.panel import changed, session_with, show_part
from interfaces.web.pages import fragment, given_revision, person, person_page
from sessions_app.agents.edit import known_zones
from sessions_app.exceptions import RevisionConflict, SessionsError
from sessions_app.models import Session
from sessions_app.reads.selectors import session as session_of

CONFLICT = "It was changed meanwhile. Save again to replace that by what stands here, or cancel to see it."
# as the API names fields of an object
_PART = re.compile(r"(?P<whole>\w+)\.(?P<part>(?P<period>\w+)(\.(?P<amount>\w+))?):? ")
FIELDS = {"url": "gate", "pointer": "gate_pointer"}
COMING = 5  # times that are shown while one types


@person_page("GET", "HEAD", "POST")
def new(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Make an automation."""
    session = session_of(person(request), session_id)
    zone = session.agent.timezone
    start = {"timezone": zone, "at": _next_hour(zone), "message": request.GET.get("message", "")[:1000]}
    form = AutomationForm(_sent(request), initial=start)
    is_meant = request.POST.get("allow_duplicate") == "yes"

    def store() -> object:
        return bind_job(NewJob(session_id=session_id, allow_duplicate=is_meant, **form.values()))

    return _answer(request, session, form, store, "form.html")


@person_page("GET", "HEAD", "POST")
def change(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Change an automation. Only the fields that differ are replaced."""
    session = session_with(request, session_id, Kind.AUTOMATION, job_id)
    job = _job(selectors.automation_to_change(person(request), job_id).id)
    zone, seen = job.agent.timezone, given_revision(request)
    start = {"timezone": zone, "at": _next_hour(zone)}  # of the other ways to repeat
    form = ChangeForm(_sent(request), initial=start | ChangeForm.stored(job))
    return _answer(
        request,
        session,
        form,
        lambda: update_job(job.pk, form.changes(), revision=seen),
        "form.html",
        job,
    )


@person_page("GET", "HEAD", "POST")
def change_routine(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Change a routine. Only the fields that differ are replaced."""
    session = session_with(request, session_id, Kind.ROUTINE, job_id)
    job = _job(routine_reads.routine(person(request), job_id).id)
    seen = given_revision(request)
    start = {"timezone": job.timezone, "at": _next_hour(job.agent.timezone)}
    form = RoutineForm(_sent(request), initial=start | RoutineForm.stored(job))
    return _answer(
        request,
        session,
        form,
        lambda: update_routine(job.pk, form.changes(), revision=seen),
        "routine.html",
        job,
    )


@person_page("GET", "HEAD", "POST")
def later(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Schedule a fixed text."""
    session = session_of(person(request), session_id)
    form = LaterForm(_sent(request), initial={"send_at": _next_hour(session.agent.timezone)})

    def store() -> object:
        text = form.cleaned_data["message_text"].replace("\r\n", "\n")
        at = wall_time(form.cleaned_data["send_at"])
        return schedule_in_thread(session_id, send_at=at, message_text=text)

    return _answer(request, session, form, store, "later.html")


@person_page("POST")
def coming(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """The schedule in words and the next times, while one types. Nothing is stored."""
    session = session_of(person(request), session_id)
    form = ScheduleForm(request.POST)
    found, error, zone, now = None, "", session.agent.timezone, datetime.now(UTC)
    if form.is_valid():
        try:
            schedule = parse_api_schedule(form.cleaned_data["schedule"], zone, now)
            found = preview(schedule, now, COMING, zone=zone)
        except BadJob as refused:
            error = str(refused)
    else:
        error = " ".join(str(text) for texts in form.errors.values() for text in texts)
    return fragment(request, "appointments/coming.html", preview=found, error=error, zone=zone)


def _job(job_id: str) -> CronJob:
    return CronJob.objects.select_related("agent", "clock").get(pk=job_id)


def _sent(request: HttpRequest) -> QueryDict | None:
    """Return the fields that the browser sent, or None if the form is shown for the first time."""
    return request.POST if request.method == "POST" else None


def _answer(
    request: HttpRequest,
    session: Session,
    form: forms.Form,
    store: Callable[[], object],
    part: str,
    job: CronJob | None = None,
) -> HttpResponse:
    """Store what the form has. Unless it is stored, the form is shown, and says why not."""
    if form.is_valid() and _stored(form, store):
        return changed(request, session)
    context: dict[str, Any] = {
        "form": form,
        "job": job,
        "zone": session.agent.timezone,
        "zones": sorted(known_zones()),
        "is_duplicate": form.has_error(NON_FIELD_ERRORS, DuplicateJob.code),
    }
    if job:
        # what the person has seen: the stored values, also when told that these were changed meanwhile
        is_told = form.has_error(NON_FIELD_ERRORS, RevisionConflict.code)
        context["revision"] = given_revision(request) if form.is_bound and not is_told else job.revision
    return show_part(request, session, part, status=422 if form.is_bound else 200, **context)


def _stored(form: forms.Form, store: Callable[[], object]) -> bool:
    """Store the form. Returns whether it was stored; if not, the form says why."""
    try:
        store()
    except RevisionConflict as error:
        form.add_error(None, ValidationError(CONFLICT, code=error.code))
        return False
    except SessionsError as error:
        name, text = error.code.removeprefix("bad_"), str(error)
        field = name
        if (found := _PART.match(text)) and found["whole"] == name:
            field = FIELDS.get(found["part"], f"{found['amount']}_{found['period']}")
        if field in form.fields:
            form.add_error(field, ValidationError(beside_field(text, name), code=error.code))
        else:
            form.add_error(None, ValidationError(in_words(text), code=error.code))
        return False
    return True


def _next_hour(zone: str) -> datetime:
    """The wall time of the next full hour there."""
    local = datetime.now(zone_or_utc(zone)) + timedelta(hours=1)
    return local.replace(minute=0, second=0, microsecond=0, tzinfo=None)
