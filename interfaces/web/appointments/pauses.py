"""Forms that change coming runs for a time: pause one automation or all, and move a single run."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from automations import selectors
from automations.appointments.jobs import Kind
from automations.appointments.pause_all import change_all, pause_all
from automations.jobs.edit import update_job
from automations.jobs.move import move_slot
from automations.schedules.plan import schedule_of
from automations.selectors import coming_pause, paused_until
from interfaces.http.headers import is_fragment
from interfaces.web.appointments.forms import MoveForm, PauseAllForm, PauseForm
from interfaces.web.appointments.moments import local_time, next_hour
from interfaces.web.appointments.panel import (
    answer_form,
    changed,
    coming_times,
    form_clock,
    instant_of,
    job_of,
    sent,
    session_with,
    show_part,
    stored,
)
from interfaces.web.appointments.toasts import Done, moved, several, standing, switched
from interfaces.web.appointments.upcoming import zone_of
from interfaces.web.pages import clock_of, fragment, leave_to, page, person, person_page
from sessions_app.reads.selectors import session as session_of

DAY = timedelta(days=1)
UNDO = "pause_all"  # in the browser's session: how what was paused at once stood before


@person_page("GET", "HEAD", "POST")
def pause(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Pause an automation for a time. `?preview`: the times that remain, while one types; nothing is stored."""
    session = session_with(request, session_id, Kind.AUTOMATION, job_id)
    job = job_of(selectors.automation_to_change(person(request), job_id).id)
    clock, known, until = form_clock(request, session), coming_pause(job), paused_until(job)
    end = known.end if known else until
    shown = local_time(end, clock) if end else next_hour(clock).replace(hour=0) + DAY
    begin = local_time(known.begin, clock) if known and known.begin else None
    form = PauseForm(sent(request), clock=clock, initial={"paused_from": begin, "paused_until": shown})
    if "preview" in request.GET:
        given = form.changes() if form.is_valid() else {}
        begins, ends = (instant_of(given.get(name) or "") for name in ("paused_from", "paused_until"))
        return coming_times(request, schedule_of(job), job.agent.timezone, pause=(begins, ends))

    def store() -> Done:
        found = update_job(job.pk, {"enabled": True, **form.changes()})
        return switched(session.pk, Kind.AUTOMATION, found, standing(job))

    return answer_form(request, session, form, store, "pause.html", job)


@person_page("GET", "HEAD", "POST")
def pause_everything(request: HttpRequest, session_id: uuid.UUID | None = None) -> HttpResponse:
    """Pause all automations and routines, or those of a conversation, at once or from a time on."""
    user = person(request)
    session = session_of(user, session_id) if session_id else None
    clock = form_clock(request, session) if session else str(clock_of(request) or zone_of(user))
    form = PauseAllForm(sent(request), clock=clock)

    def store() -> Done:
        times = form.changes()
        found = pause_all(
            user, clock, session_id=session_id, begin=times["paused_from"], until=times["paused_until"]
        )
        request.session[UNDO] = {job.pk: (job.revision, found.before[job.pk]) for job in found.done}
        return several(found, clock, reverse("undo-pause") if found.done else "")

    if form.is_valid() and (done := stored(form, store)):
        if session:
            return changed(request, session, done)
        done.say(request)
        return leave_to(request, reverse("upcoming"))
    about: dict[str, Any] = {
        "form": form,
        "clock_note": f"The clock of {clock}.",
        "status": 422 if form.is_bound else 200,
        "place": reverse("pause-all", args=[session_id]) if session_id else reverse("pause-everything"),
    }
    if session:
        return show_part(request, session, "pause_all.html", **about)
    return page(request, "appointments/pause_everything.html", **about)


@person_page("POST")
def undo_pause(request: HttpRequest) -> HttpResponse:
    """Bring what was paused at once last back to how it stood; what was changed since stays."""
    before = request.session.pop(UNDO, {})
    found = change_all(
        {key: back for key, (_, back) in before.items()}, {key: number for key, (number, _) in before.items()}
    )
    several(found, str(clock_of(request) or zone_of(person(request))), "").say(request)
    if not is_fragment(request) or "/upcoming/" in request.headers.get("HX-Current-URL", ""):
        return leave_to(request, reverse("upcoming"))
    answer = fragment(request, "parts/toast_beside.html")
    answer["HX-Trigger"] = "appointments-due"
    return answer


@person_page("GET", "HEAD", "POST")
def move(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Move the run of `?slot=<ISO time>`: a form asks to when, unless `?to` says it, as an undo does."""
    session = session_with(request, session_id, Kind.AUTOMATION, job_id)
    job = job_of(selectors.automation_to_change(person(request), job_id).id)
    slot, back = instant_of(request.GET.get("slot", "")), instant_of(request.GET.get("to", ""))
    if slot is None:
        raise Http404
    if request.method == "POST" and back:
        found = move_slot(job_id, slot=slot.isoformat(), to=back.isoformat())
        return changed(request, session, moved(session.pk, found, slot, back))
    clock = form_clock(request, session)
    form = MoveForm(sent(request), clock=clock, initial={"to": local_time(slot, clock) + DAY})

    def store() -> Done:
        found = move_slot(job_id, slot=slot.isoformat(), to=form.instant("to") or "")
        to = instant_of(form.instant("to") or "")
        return moved(session.pk, found, slot, to or slot)

    week = request.POST.get("week", request.GET.get("week"))
    return answer_form(request, session, form, store, "move.html", job, slot=slot, week=week)
