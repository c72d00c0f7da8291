"""The appointments of a conversation: the list, why each ran or did not, and the forms that make and change them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import replace
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
from automations.jobs.causes import code_of_run
from automations.jobs.edit import NewJob, bind_job, delete_job, parse_api_schedule, update_job
from automations.jobs.failing import try_again
from automations.jobs.skip import MOST_SKIPPED, skip_slots, unskip
from automations.models import CronJob, RunRecord, RunState, ScheduleKind
from automations.routines import reads as routine_reads
from automations.routines.edit import remove_routine, update_routine
from automations.runs.describe import Slot, slot_of
from automations.runs.skips import TICK, GapReason
from automations.scheduled_messages import cancel_message, schedule_in_thread
from automations.schedules.describe import preview
from automations.schedules.excepted_days import holiday_countries
from automations.schedules.schedule import Schedule
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import paused_until, usage_of_runs
from interfaces.http.headers import is_fragment
from interfaces.web.appointments.forms import (
    AutomationForm,
    ChangeForm,
    LaterForm,
    RoutineForm,
    beside_field,
    in_words,
    own_settings,
)
from interfaces.web.appointments.moments import ClockForm, next_hour
from interfaces.web.appointments.schedule_form import ScheduleForm
from interfaces.web.appointments.toasts import OFF, ON, Done, done, planned, skipped, standing, switched
from interfaces.web.conversation import can_write
from interfaces.web.pages import (
    back_to_upcoming,
    clock_of,
    fragment,
    given_revision,
    leave_to,
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

_RETRIED = (Kind.AUTOMATION, Kind.ROUTINE)


def show_part(
    request: HttpRequest, session: Session, part: str, status: int = 200, **context: Any
) -> HttpResponse:
    """A part of the panel, or a page with that part for a browser without scripts."""
    shown = context | {"session": session, "title": title_of(session), "part": f"web/appointments/{part}"}
    if is_fragment(request):
        return fragment(request, f"appointments/{part}", status=status, is_fragment=True, **shown)
    return page(request, "appointments/page.html", status=status, **shown)


def changed(request: HttpRequest, session: Session, done: Done, said: str = "") -> HttpResponse:
    """What was done, with the list after it; for a script elsewhere than in the panel: which then loads it again.

    A form of the page of all conversations gets `said` in its place, or that page.
    """
    answer = back_to_upcoming(request, said)
    if answer is None or answer.status_code != 200:
        done.say(request)
    if answer is not None:
        return answer
    if not is_fragment(request):
        card = f"#appointment-{done.card}" if done.card else ""
        return leave_to(request, reverse("appointments", args=[session.pk]) + card)
    if request.headers.get("HX-Target") == "panel-body":
        return panel_of(request, session)
    answer = fragment(request, "parts/toast_beside.html")
    answer["HX-Trigger"] = "appointments-due"
    return answer


def panel_of(request: HttpRequest, session: Session) -> HttpResponse:
    """The list of the session's appointments."""
    cards = appointments_of(person(request), session.pk)
    return show_part(request, session, "panel.html", cards=cards, can_add=can_write(session))


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
    now = datetime.now(UTC)
    left_out = [slot for slot in found.last if _is_left_out(slot, now)]
    about |= {
        "left_out": left_out,
        "can_unskip": any(slot.reason == GapReason.SKIPPED_BY_USER for slot in left_out),
        "last": [slot for slot in found.last if slot not in left_out],
        "kind": kind,
    }
    about |= {
        "can_skip": kind == Kind.AUTOMATION and bool(found.next),
        "can_retry": kind in _RETRIED and not found.is_stopped,
    }
    if kind in _RETRIED:
        job = CronJob.objects.select_related("agent", "clock").get(pk=key)
        budget = budget_of("automation", key, job.limits, zone=job.agent.timezone)
        caps = caps_in_words(budget, is_partial=used.cost.is_partial).values()
        about |= {"settings": own_settings(job), "caps": caps}
    return show_part(request, session, "why.html", used=used, **about)


def instant_of(text: str) -> datetime | None:
    """The instant of an ISO time with an offset; None if it is none."""
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _is_left_out(slot: Slot, now: datetime) -> bool:
    """Whether a person has skipped or moved the slot, or several of which at least one is still to come."""
    by_person = slot.reason in (GapReason.SKIPPED_BY_USER, GapReason.MOVED)
    return by_person and max(slot.until or slot.at, slot.moved_to or slot.at) > now


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
        "code": code_of_run(found.job, found),
        "is_stopped": found.state == RunState.FAILED and why(user, kind, key).is_stopped,
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
    """Pause (`to=off`), for a time (`to=<begin>/<end>` or its end alone), or resume (`to=on`). A toast takes it back:
    its address has `to`, and the `revision` as which the change was stored. RevisionConflict.
    """
    session = session_with(request, session_id, kind, key)
    _check_ownership(request, kind, key)
    to = request.POST.get("to") or request.GET.get("to") or OFF
    begin, _, end = ("" if to == ON else to).rpartition("/")
    pause = {} if to == OFF else {"paused_from": begin or None, "paused_until": end or None}
    seen = whole_number(request.GET.get("revision", ""))
    before = standing(job_of(key))
    update = update_routine if kind == Kind.ROUTINE else update_job
    job = update(key, {"enabled": to != OFF, **pause}, revision=seen)
    said = "Resumed." if to == ON else ""
    return changed(request, session, switched(session.pk, kind, job, before), said)


@person_page("POST")
def skip_next(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Do not run the next slot, or so many as `slots` says; if `at` (epoch seconds) is given, that one only. BadJob,
    NothingToSkip.
    """
    session = session_with(request, session_id, Kind.AUTOMATION, job_id)
    job, given = selectors.automation_to_change(person(request), job_id), request.POST.get("at")
    if given is None:
        gap = skip_slots(job_id, slots=whole_number(request.POST.get("slots", "1")) or 0)
    elif job.next_run_at and given == str(int(job.next_run_at.timestamp())):
        gap = skip_slots(job_id, slots=1, revision=job.revision)
    else:  # that one was skipped or has begun
        return back_to_upcoming(request) or panel_of(request, session)
    return changed(request, session, skipped(session.pk, job_of(job_id), gap))


@person_page("POST")
def take_skip_back(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Run the skipped slots that are to come after all, or those from `since` on. NothingToSkip."""
    session = session_with(request, session_id, Kind.AUTOMATION, job_id)
    selectors.automation_to_change(person(request), job_id)
    job = unskip(job_id, since=instant_of(request.GET.get("since", "")))
    return changed(request, session, planned(job, "runs as planned again."))


@person_page("POST")
def retry_run(request: HttpRequest, session_id: uuid.UUID, run_id: str) -> HttpResponse:
    """Try a failed slot again. RunNotFailed, JobPaused, SessionClosed."""
    found = selectors.run_record(person(request), run_id)
    kind = appointment_kind(found.job).value if found.job else Kind.MESSAGE.value
    session = session_with(request, session_id, kind, str(found.job_id or found.scheduled_message_id))
    run = try_again(found.pk)
    return changed(request, session, done(run.of_job, "gets another attempt."), "It is tried again.")


@person_page("GET", "HEAD", "POST")
def delete_appointment(request: HttpRequest, session_id: uuid.UUID, kind: str, key: str) -> HttpResponse:
    """Ask, then delete an automation or a routine with its runs."""
    session = session_with(request, session_id, kind, key)
    _check_ownership(request, kind, key)
    job = job_of(key)
    if request.method == "POST":
        if kind == Kind.ROUTINE:
            remove_routine(key, hard=True)
        else:
            delete_job(key)
        return changed(request, session, Done(text=f"“{job.name}” is deleted.", zone=job.timezone))
    runs = RunRecord.objects.filter(job_id=key).count()
    return show_part(request, session, "deleting.html", name=job.name, kind=kind, key=key, runs=runs)


@person_page("POST")
def withdraw(request: HttpRequest, session_id: uuid.UUID, message_id: str) -> HttpResponse:
    """Cancel a scheduled message."""
    session = session_with(request, session_id, Kind.MESSAGE, message_id)
    cancel_message(selectors.scheduled_message(person(request), message_id).pk)
    text = "The message is not sent."
    return changed(request, session, Done(text=text, zone=session.agent.timezone, card=message_id))


CONFLICT = "It was changed meanwhile. Save again to replace that by what stands here, or cancel to see it."
# as the API names fields of an object
_PART = re.compile(r"(?P<whole>\w+)\.(?P<part>(?P<period>\w+)(\.(?P<amount>\w+))?):? ")
FIELDS = {"url": "gate", "pointer": "gate_pointer", "cron": "expr", "except": "except_on"}
COMING = 5  # times that are shown while one types


@person_page("GET", "HEAD", "POST")
def new(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Make an automation."""
    session = session_of(person(request), session_id)
    clock = form_clock(request, session)
    start = {"at": next_hour(clock), "message": request.GET.get("message", "")[:1000]}
    form = AutomationForm(sent(request), clock=clock, initial=start | {"timezone": session.agent.timezone})
    is_meant = request.POST.get("allow_duplicate") == "yes"

    def store() -> Done:
        job = bind_job(NewJob(session_id=session_id, allow_duplicate=is_meant, **form.values()))
        return planned(job, "is planned.")

    return answer_form(request, session, form, store, "form.html")


@person_page("GET", "HEAD", "POST")
def change(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Change an automation. Only the fields that differ are replaced."""
    session = session_with(request, session_id, Kind.AUTOMATION, job_id)
    job = job_of(selectors.automation_to_change(person(request), job_id).id)
    clock, seen = form_clock(request, session), given_revision(request)
    start = {"timezone": job.agent.timezone, "at": next_hour(clock)}  # of the other ways to repeat
    form = ChangeForm(sent(request), clock=clock, initial=start | ChangeForm.stored(job, clock))
    return answer_form(
        request,
        session,
        form,
        lambda: planned(update_job(job.pk, form.changes(), revision=seen), "is changed."),
        "form.html",
        job,
    )


@person_page("GET", "HEAD", "POST")
def change_routine(request: HttpRequest, session_id: uuid.UUID, job_id: str) -> HttpResponse:
    """Change a routine. Only the fields that differ are replaced."""
    session = session_with(request, session_id, Kind.ROUTINE, job_id)
    job = job_of(routine_reads.routine(person(request), job_id).id)
    clock, seen = form_clock(request, session), given_revision(request)
    start = {"timezone": job.timezone, "at": next_hour(clock)}
    form = RoutineForm(sent(request), clock=clock, initial=start | RoutineForm.stored(job, clock))
    return answer_form(
        request,
        session,
        form,
        lambda: planned(update_routine(job.pk, form.changes(), revision=seen), "is changed."),
        "routine.html",
        job,
    )


@person_page("GET", "HEAD", "POST")
def later(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Schedule a fixed text."""
    session = session_of(person(request), session_id)
    clock = form_clock(request, session)
    form = LaterForm(sent(request), clock=clock, initial={"send_at": next_hour(clock)})

    def store() -> Done:
        text = form.cleaned_data["message_text"].replace("\r\n", "\n")
        at = form.cleaned_data["send_at"]
        made = schedule_in_thread(session_id, send_at=form.instant("send_at"), message_text=text)
        return Done(text=f"The message is sent at {at:%Y-%m-%d %H:%M}.", zone=clock, card=made.message.pk)

    return answer_form(request, session, form, store, "later.html")


@person_page("POST")
def coming(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """The schedule in words and the next times, while one types. Nothing is stored."""
    session = session_of(person(request), session_id)
    form, zone = ScheduleForm(request.POST), session.agent.timezone
    if not form.is_valid():
        error = " ".join(str(text) for texts in form.errors.values() for text in texts)
        return coming_times(request, None, zone, error=error)
    given = form.cleaned_data["schedule"]
    zone = form_clock(request, session) if given["kind"] == ScheduleKind.AT else zone
    try:
        schedule = parse_api_schedule(given, zone, datetime.now(UTC))
    except BadJob as refused:
        return coming_times(request, None, zone, error=str(refused))
    return coming_times(
        request, schedule, zone, pause=(None, instant_of(request.POST.get("paused_until", "")))
    )


def coming_times(
    request: HttpRequest,
    schedule: Schedule | None,
    zone: str,
    *,
    pause: tuple[datetime | None, datetime | None] = (None, None),
    error: str = "",
) -> HttpResponse:
    """The schedule in words and its next times, without those of a pause: from an instant, or now, to another."""
    now = datetime.now(UTC)
    begin = max(pause[0] or now, now)
    end = max(pause[1] or now, begin)
    if schedule is None:
        return fragment(request, "appointments/coming.html", preview=None, error=error, zone=zone)
    found = preview(schedule, now, COMING, zone=zone)
    left_out: int | str | None = None
    if end > begin:
        before = [at for at in found.next if at < begin]
        after = preview(schedule, end - TICK, COMING, zone=zone)
        warnings = dict.fromkeys((*(found.warnings if before else ()), *after.warnings))
        found = replace(found, next=(*before, *after.next)[:COMING], warnings=tuple(warnings))
        count = schedule.count(begin - TICK, end - TICK)
        left_out = "More than 1,000" if count is None else count
    return fragment(request, "appointments/coming.html", preview=found, left_out=left_out, zone=zone)


def job_of(job_id: str) -> CronJob:
    """A job with its agent and its clock."""
    return CronJob.objects.select_related("agent", "clock").get(pk=job_id)


def sent(request: HttpRequest) -> QueryDict | None:
    """Return the fields that the browser sent, or None if the form is shown for the first time."""
    return request.POST if request.method == "POST" else None


def answer_form(
    request: HttpRequest,
    session: Session,
    form: ClockForm,
    store: Callable[[], Done],
    part: str,
    job: CronJob | None = None,
    **more: Any,
) -> HttpResponse:
    """Store what the form has. Unless it is stored, the form is shown, and says why not."""
    if form.is_valid() and (done := stored(form, store)):
        return changed(request, session, done)
    context: dict[str, Any] = {
        "form": form,
        "job": job,
        "clock_note": f"The clock of {form.clock}.",
        "zones": sorted(known_zones()),
        "countries": holiday_countries().items(),
        "is_duplicate": form.has_error(NON_FIELD_ERRORS, DuplicateJob.code),
        "paused_until": paused_until(job) if job else None,
        **more,
    }
    if job:
        # what the person has seen: the stored values, also when told that these were changed meanwhile
        is_told = form.has_error(NON_FIELD_ERRORS, RevisionConflict.code)
        context["revision"] = given_revision(request) if form.is_bound and not is_told else job.revision
    return show_part(request, session, part, status=422 if form.is_bound else 200, **context)


def stored(form: forms.Form, store: Callable[[], Done]) -> Done | None:
    """Store the form. Returns what was done; None: the form says why not."""
    try:
        return store()
    except RevisionConflict as error:
        form.add_error(None, ValidationError(CONFLICT, code=error.code))
    except SessionsError as error:
        name, text = error.code.removeprefix("bad_"), str(error)
        field = FIELDS.get(name, name)
        if (found := _PART.match(text)) and found["whole"] == name:
            field = FIELDS.get(found["part"], f"{found['amount']}_{found['period']}")
        if field in form.fields:
            form.add_error(field, ValidationError(beside_field(text, name), code=error.code))
        else:
            form.add_error(None, ValidationError(in_words(text), code=error.code))
    return None


def form_clock(request: HttpRequest, session: Session) -> str:
    """The zone that typed instants are read in: the person's, or the agent's while theirs is not known."""
    named = request.POST.get("clock", "")  # by the label of the form that was sent
    return named if named in known_zones() else str(clock_of(request) or zone_or_utc(session.agent.timezone))
