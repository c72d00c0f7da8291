"""The appointments of a conversation: the list, why each ran or did not, and what people change there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from automations import selectors
from automations.appointments.jobs import Kind, appointment_kind
from automations.appointments.panel import appointments_of, why
from automations.jobs.edit import delete_job, update_job
from automations.jobs.skip import skip_slots
from automations.models import CronJob, RunRecord
from automations.routines import reads as routine_reads
from automations.routines.edit import remove_routine, update_routine
from automations.runs.describe import describe_run
from automations.scheduled_messages import cancel_message
from automations.schedules.zone_files import zone_or_utc
from sessions_app.models import Session, SessionState, SessionType
from sessions_app.selectors import session as session_of
from sessions_app.web.chat import title_of
from sessions_app.web.fragments import is_fragment
from sessions_app.web.pages import fragment, page, person, person_page


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
    is_open = session.state == SessionState.OPEN and session.type in {SessionType.PRIMARY, SessionType.SUB}
    found = appointments_of(person(request), session.pk)
    return show_part(
        request, session, "panel.html", appointments=found, can_add=is_open, now=datetime.now(UTC)
    )


@person_page("GET", "HEAD")
def panel(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """The session's automations, routines, heartbeat and scheduled messages, failing ones first."""
    return panel_of(request, session_of(person(request), session_id))


@person_page("GET", "HEAD")
def explained(request: HttpRequest, session_id: uuid.UUID, kind: str, key: str) -> HttpResponse:
    """Why the last slots did or did not run, and what comes next."""
    user = person(request)
    session = session_of(user, session_id)
    return show_part(request, session, "why.html", explanation=why(user, kind, key), kind=kind, key=key)


@person_page("GET", "HEAD")
def run_page(request: HttpRequest, session_id: uuid.UUID, run_id: str) -> HttpResponse:
    """One slot: what happened, when, and the way to its place in the conversation."""
    user = person(request)
    session = session_of(user, session_id)
    theirs = Q(job__agent__owner=user.pk) | Q(scheduled_message__session__owner=user.pk)
    found = RunRecord.objects.filter(theirs, pk=run_id).select_related("job").first()
    if found is None:
        raise Http404
    zone = zone_or_utc(found.job.timezone if found.job else session.agent.timezone)
    about: dict[str, Any] = {"run": found, "text": describe_run(found, zone), "zone": str(zone)}
    about["kind"] = appointment_kind(found.job).value if found.job else Kind.MESSAGE.value
    return show_part(request, session, "run.html", **about, key=found.job_id or found.scheduled_message_id)


@dataclass(frozen=True, kw_only=True)
class Verbs:
    """What people do with a kind of appointment. `find` raises unless it is theirs, and may be changed."""

    find: Callable[[Any, str], Any]
    update: Callable[[str, dict[str, Any]], Any]
    delete: Callable[[str], None]


VERBS = {
    "automation": Verbs(find=selectors.automation_to_change, update=update_job, delete=delete_job),
    "routine": Verbs(
        find=routine_reads.routine, update=update_routine, delete=partial(remove_routine, hard=True)
    ),
}


def _found(request: HttpRequest, kind: str, key: str) -> tuple[Verbs, Any]:
    if kind not in VERBS:
        raise Http404
    return VERBS[kind], VERBS[kind].find(person(request), key)


@person_page("POST")
def switch(request: HttpRequest, session_id: uuid.UUID, kind: str, key: str) -> HttpResponse:
    """Pause or resume."""
    session = session_of(person(request), session_id)
    verbs, _job = _found(request, kind, key)
    verbs.update(key, {"enabled": request.POST.get("to") == "on"})
    return changed(request, session)


@person_page("POST")
def skip_next(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Do not run the next slot."""
    session = session_of(person(request), session_id)
    job = selectors.automation_to_change(person(request), job_id)
    skip_slots(job.id, slots=1)
    return changed(request, session)


@person_page("GET", "HEAD", "POST")
def delete_appointment(request: HttpRequest, session_id: uuid.UUID, kind: str, key: str) -> HttpResponse:
    """Ask, then delete an automation or a routine with its runs."""
    session = session_of(person(request), session_id)
    verbs, job = _found(request, kind, key)
    if request.method == "POST":
        verbs.delete(key)
        return changed(request, session)
    name = CronJob.objects.values_list("name", flat=True).get(pk=job.id)
    runs = RunRecord.objects.filter(job_id=key).count()
    return show_part(request, session, "deleting.html", name=name, kind=kind, key=key, runs=runs)


@person_page("POST")
def withdraw(request: HttpRequest, session_id: uuid.UUID, message_id: str) -> HttpResponse:
    """Cancel a scheduled message."""
    session = session_of(person(request), session_id)
    cancel_message(selectors.scheduled_message(person(request), message_id).pk)
    return changed(request, session)
