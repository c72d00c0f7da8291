"""The appointments of a conversation: the list, why each ran or did not, and what people change there."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from automations import selectors
from automations.appointments.jobs import Kind, appointment_kind
from automations.appointments.panel import appointments_of, is_of_session, why
from automations.jobs.edit import MOST_SKIPPED, delete_job, skip_slots, update_job
from automations.jobs.failing import try_again
from automations.models import CronJob, RunRecord
from automations.routines import reads as routine_reads
from automations.routines.edit import remove_routine, update_routine
from automations.runs.describe import slot_of
from automations.scheduled_messages import cancel_message
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import usage_of_runs
from interfaces.http.headers import is_fragment
from interfaces.web.appointments.forms import own_settings
from interfaces.web.conversation import can_write
from interfaces.web.pages import fragment, page, person, person_page, title_of, whole_number
from sessions_app.models import Session
from sessions_app.reads.selectors import session as session_of
from sessions_app.spending.caps import budget_of, caps_in_words

# the section of an agent's page where a person cures what such a failure names
CURED_IN = {
    "model_auth": "connections",
    "model_quota": "model",
    "model_not_found": "model",
    "model_not_configured": "model",
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
    about: dict[str, Any] = {"explanation": found, "key": key, "most_skipped": MOST_SKIPPED}
    about |= {"can_skip": kind == Kind.AUTOMATION and bool(found.next), "can_retry": kind in _RETRIED}
    if kind in _RETRIED:
        job = CronJob.objects.select_related("agent", "clock").get(pk=key)
        budget = budget_of("automation", key, job.limits, zone=job.agent.timezone)
        about |= {"settings": own_settings(job), "caps": caps_in_words(budget).values()}
    return show_part(request, session, "why.html", used=usage_of_runs(key), **about)


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
        "cured_in": CURED_IN.get(found.reason or "", ""),
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
