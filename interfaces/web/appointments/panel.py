"""The appointments of a conversation: the list, why each ran or did not, and the forms that make and change them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.urls import reverse

from automations import selectors
from automations.appointments.jobs import Kind, appointment_kind
from automations.appointments.panel import appointments_of, is_of_session, why
from automations.exceptions import BadJob, DuplicateJob
from automations.jobs.edit import (
    MOST_SKIPPED,
    NewJob,
    bind_job,
    delete_job,
    parse_api_schedule,
    skip_slots,
    update_job,
)
from automations.jobs.failing import try_again
from automations.models import CronJob, RunRecord, ScheduleKind
from automations.routines import reads as routine_reads
from automations.routines.edit import remove_routine, update_routine
from automations.runs.describe import slot_of
from automations.scheduled_messages import cancel_message, schedule_in_thread
from automations.schedules.describe import preview
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import usage_of_runs
from interfaces.http.headers import is_fragment
from interfaces.web.appointments.forms import (
    AutomationForm,
    ChangeForm,
    LaterForm,
    RoutineForm,
    ScheduleForm,
    beside_field,
    in_words,
    own_settings,
)
from interfaces.web.appointments.moments import ClockForm, next_hour
from interfaces.web.conversation import can_write
from interfaces.web.pages import (
    clock_of,
    fragment,
    given_revision,
    page,
    person,
    person_page,
    title_of,
    whole_number,
)
from sessions_app.agents.zones import known_zones
from sessions_app.exceptions import RevisionConflict, SessionsError
from sessions_app.models import Session
from sessions_app.reads.selectors import session as session_of
from sessions_app.spending.caps import budget_of, caps_in_words

# the section of an agent's page where a person ends what such a reason or attention names
CURED_IN = {
    "model_auth": "connections",
    "model_quota": "model",
    "model_not_found": "model",
    "model_not_configured": "model",
    "budget": "spending",
    "needs_consent": "tools",
}
_RETRIED = (Kind.AUTOMATION, Kind.ROUTINE)


def show_part(
    request: HttpRequest, session: Session, part: str, status: int = 200, **context: Any
) -> HttpResponse:
    """A part of the panel, or a page with that part for a browser without scripts."""
    shown = context | {"session": session, "title": title_of(session), "part": f"web/appointments/{part}"}
    if is_fragment(request):
        return fragment(request, f"appointments/{part}", status=status, **shown)
    return page(request, "appointments/page.html", status=status, **shown)


def changed(request: HttpRequest, session: Session) -> HttpResponse:
    """The list after a change."""
    if is_fragment(request):
        return panel_of(request, session)
    return HttpResponse(status=303, headers={"Location": reverse("appointments", args=[session.pk])})


def panel_of(request: HttpRequest, session: Session) -> HttpResponse:
    """The list of the session's appointments."""
    found = appointments_of(person(request), session.pk)
    return show_part(request, session, "panel.html", appointments=found, can_add=can_write(session))


@person_page("GET", "HEAD")
def panel(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """The session's automations, routines, heartbeat and scheduled messages, failing ones first."""
    return panel_of(request, session_of(person(request), session_id))


@person_page("GET", "HEAD")
def explained(request: HttpRequest, session_id: uuid.UUID, kind: str, key: str) -> HttpResponse:
    """Why the last slots did or did not run, and what comes next."""
    session = session_with(request, session_id, kind, key)
    found = why(person(request), kind, key)
    used = usage_of_runs(key)
    about: dict[str, Any] = {"explanation": found, "key": key, "most_skipped": MOST_SKIPPED}
    about |= {"can_skip": kind == Kind.AUTOMATION and bool(found.next), "can_retry": kind in _RETRIED}
    if kind in _RETRIED:
        job = CronJob.objects.select_related("agent", "clock").get(pk=key)
        budget = budget_of("automation", key, job.limits, zone=job.agent.timezone)
        caps = caps_in_words(budget, is_partial=used.cost.is_partial).values()
        about |= {"settings": own_settings(job), "caps": caps}
    return show_part(request, session, "why.html", used=used, **about)


@person_page("GET", "HEAD")
def run_page(request: HttpRequest, session_id: uuid.UUID, run_id: str) -> HttpResponse:
    """One slot: what happened, when, and the way to its place in the conversation."""
    user = person(request)
    # also those of heartbeats, which the API's reads leave out
    theirs = Q(job__agent__owner=user.pk) | Q(scheduled_message__session__owner=user.pk)
    found = RunRecord.objects.filter(theirs, pk=run_id).select_related("job").first()
    if found is None:
        raise Http404
    kind = appointment_kind(found.job).value if found.job else Kind.MESSAGE.value
    key = str(found.job_id or found.scheduled_message_id)
    session = session_with(request, session_id, kind, key)
    zone = zone_or_utc(found.job.timezone if found.job else session.agent.timezone)
    about: dict[str, Any] = {
        "run": found,
        "slot": slot_of(found, zone),
        "zone": str(zone),
        "told": str(found.snapshot.get("message") or ""),
        "can_retry": kind in _RETRIED,
        "cured_in": CURED_IN.get(found.reason or found.attention, ""),
        "is_here": found.turn_id is not None and found.session_id == session.pk,
    }
    return show_part(request, session, "run.html", **about, kind=kind, key=key)


def session_with(request: HttpRequest, session_id: uuid.UUID, kind: str, key: str) -> Session:
    """The session in whose address an appointment is named. NotFound; Http404 if it is another session's."""
    user = person(request)
    session: Session = session_of(user, session_id)
    if not is_of_session(user, session_id, kind, key):
        raise Http404
    return session


def _check_ownership(request: HttpRequest, kind: str, key: str) -> None:
    """JobNotFound, RoutineNotFound, ProtectedJob; Http404 for what is neither an automation nor a routine."""
    if kind not in {Kind.AUTOMATION, Kind.ROUTINE}:
        raise Http404
    find = routine_reads.routine if kind == Kind.ROUTINE else selectors.automation_to_change
    find(person(request), key)


@person_page("POST")
def switch(request: HttpRequest, session_id: uuid.UUID, kind: str, key: str) -> HttpResponse:
    """Pause or resume."""
    session = session_with(request, session_id, kind, key)
    _check_ownership(request, kind, key)
    update = update_routine if kind == Kind.ROUTINE else update_job
    update(key, {"enabled": request.POST.get("to") == "on"})
    return changed(request, session)


@person_page("POST")
def skip_next(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Do not run the next slot, or so many as `slots` says. BadJob."""
    session = session_with(request, session_id, Kind.AUTOMATION, job_id)
    job = selectors.automation_to_change(person(request), job_id)
    skip_slots(job.id, slots=whole_number(request.POST.get("slots", "1")) or 0)
    return changed(request, session)


@person_page("POST")
def retry_run(request: HttpRequest, session_id: uuid.UUID, run_id: str) -> HttpResponse:
    """Try a failed slot again. RunNotFailed, JobPaused, SessionClosed."""
    found = selectors.run_record(person(request), run_id)
    kind = appointment_kind(found.job).value if found.job else Kind.MESSAGE.value
    session = session_with(request, session_id, kind, str(found.job_id or found.scheduled_message_id))
    try_again(found.pk)
    return changed(request, session)


@person_page("GET", "HEAD", "POST")
def delete_appointment(request: HttpRequest, session_id: uuid.UUID, kind: str, key: str) -> HttpResponse:
    """Ask, then delete an automation or a routine with its runs."""
    session = session_with(request, session_id, kind, key)
    _check_ownership(request, kind, key)
    if request.method == "POST":
        if kind == Kind.ROUTINE:
            remove_routine(key, hard=True)
        else:
            delete_job(key)
        return changed(request, session)
    name = CronJob.objects.values_list("name", flat=True).get(pk=key)
    runs = RunRecord.objects.filter(job_id=key).count()
    return show_part(request, session, "deleting.html", name=name, kind=kind, key=key, runs=runs)


@person_page("POST")
def withdraw(request: HttpRequest, session_id: uuid.UUID, message_id: str) -> HttpResponse:
    """Cancel a scheduled message."""
    session = session_with(request, session_id, Kind.MESSAGE, message_id)
    cancel_message(selectors.scheduled_message(person(request), message_id).pk)
    return changed(request, session)


CONFLICT = "It was changed meanwhile. Save again to replace that by what stands here, or cancel to see it."
# as the API names fields of an object
_PART = re.compile(r"(?P<whole>\w+)\.(?P<part>(?P<period>\w+)(\.(?P<amount>\w+))?):? ")
FIELDS = {"url": "gate", "pointer": "gate_pointer"}
COMING = 5  # times that are shown while one types


@person_page("GET", "HEAD", "POST")
def new(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Make an automation."""
    session = session_of(person(request), session_id)
    clock = _clock(request, session)
    start = {"at": next_hour(clock), "message": request.GET.get("message", "")[:1000]}
    form = AutomationForm(_sent(request), clock=clock, initial=start | {"timezone": session.agent.timezone})
    is_meant = request.POST.get("allow_duplicate") == "yes"

    def store() -> object:
        return bind_job(NewJob(session_id=session_id, allow_duplicate=is_meant, **form.values()))

    return _answer(request, session, form, store, "form.html")


@person_page("GET", "HEAD", "POST")
def change(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Change an automation. Only the fields that differ are replaced."""
    session = session_with(request, session_id, Kind.AUTOMATION, job_id)
    job = _job(selectors.automation_to_change(person(request), job_id).id)
    clock, seen = _clock(request, session), given_revision(request)
    start = {"timezone": job.agent.timezone, "at": next_hour(clock)}  # of the other ways to repeat
    form = ChangeForm(_sent(request), clock=clock, initial=start | ChangeForm.stored(job, clock))
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
    clock, seen = _clock(request, session), given_revision(request)
    start = {"timezone": job.timezone, "at": next_hour(clock)}
    form = RoutineForm(_sent(request), clock=clock, initial=start | RoutineForm.stored(job, clock))
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
    clock = _clock(request, session)
    form = LaterForm(_sent(request), clock=clock, initial={"send_at": next_hour(clock)})

    def store() -> object:
        text = form.cleaned_data["message_text"].replace("\r\n", "\n")
        return schedule_in_thread(session_id, send_at=form.instant("send_at"), message_text=text)

    return _answer(request, session, form, store, "later.html")


@person_page("POST")
def coming(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """The schedule in words and the next times, while one types. Nothing is stored."""
    session = session_of(person(request), session_id)
    form = ScheduleForm(request.POST)
    found, error, zone, now = None, "", session.agent.timezone, datetime.now(UTC)
    if form.is_valid():
        given = form.cleaned_data["schedule"]
        zone = _clock(request, session) if given["kind"] == ScheduleKind.AT else zone
        try:
            schedule = parse_api_schedule(given, zone, now)
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
    form: ClockForm,
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
        "clock_note": f"The clock of {form.clock}.",
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


def _clock(request: HttpRequest, session: Session) -> str:
    """The zone that typed instants are read in: the person's, or the agent's while theirs is not known."""
    named = request.POST.get("clock", "")  # by the label of the form that was sent
    return named if named in known_zones() else str(clock_of(request) or zone_or_utc(session.agent.timezone))
