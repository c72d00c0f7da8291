"""What the tool `cron` reads: the automations of this conversation or of all, what is due, and why one did not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import OuterRef, QuerySet, Subquery

from agent_core.exceptions import ToolFailed
from agent_core.turn.consent import quoted
from automations.appointments.calendar import Entry, upcoming
from automations.appointments.jobs import MOST_JOBS, Kind, job_rows
from automations.appointments.messages import is_to_come, message_now, name_of, shown_messages
from automations.exceptions import ScheduleError
from automations.jobs.explain import explain, why_paused
from automations.jobs.stops import Stop, known_problems, stops_of
from automations.jobs.validate import choices_of
from automations.models import JobKind, RunRecord, RunState, ScheduledMessage
from automations.models.job import RESERVED_IDS, CronJob
from automations.runs.describe import Slot, SlotState
from automations.schedules.describe import describe_job
from automations.schedules.schedule import read_time
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import automations, coming_pause, held_until, paused_until
from sessions_app.models import ChatType, Session, Turn
from sessions_app.spending.caps import caps_text
from sessions_app.tokens.reach import Limit, put_limit
from sessions_app.turns.tool_calls import ToolContext

ALL = "all"  # the scope of all the owner's conversations
MOST_ENTRIES = 60  # of what is due
MOST_SLOTS = 8  # past ones of an explanation
RANGE = timedelta(days=7)
_OF_LAST_RUN = ("scheduled_for", "attention")


def is_everywhere(arguments: dict[str, Any]) -> bool:
    """Whether the call is about all the owner's conversations."""
    return arguments.get("scope") == ALL


def reached(context: ToolContext, arguments: dict[str, Any]) -> AbstractBaseUser:
    """The owner, limited to the conversation unless the call is about all. ToolFailed if the turn may not reach them.

    What decides is stored: the kind of the turn and of the chat, and who brought its messages. A hook or a limited
    token reaches one conversation, and a scheduled turn may be the work of either.
    """
    user = get_user_model()(pk=context.agent.owner_id)
    if arguments.get("scope") not in (None, "", "conversation", ALL):
        raise ToolFailed("scope must be conversation or all")
    if not is_everywhere(arguments):
        put_limit(user, Limit(session_id=context.session.pk))
        return user
    if not context.interactive:
        raise ToolFailed("a scheduled turn reaches its own conversation only; leave scope out")
    if context.session.chat_type != ChatType.PRIVATE:
        raise ToolFailed("other conversations are not reached from a group; leave scope out")
    said = (context.turn, *Turn.objects.filter(host=context.turn).only("metadata"))
    if context.stranger is not None or any(each.input.posted_by or each.input.limited for each in said):
        raise ToolFailed("only the owner's own message reaches other conversations; leave scope out")
    return user


def text_of(arguments: dict[str, Any], name: str) -> str:
    """An optional text parameter; empty when it was not given."""
    value = arguments.get(name) or ""
    if not isinstance(value, str):
        raise ToolFailed(f"{name} must be text")
    if "\x00" in value:
        raise ToolFailed(f"{name} holds a NUL character")
    return value.strip()


def one_job(context: ToolContext, arguments: dict[str, Any]) -> Any:
    """The automation with the id `job_id`, among those that the call reaches. ToolFailed."""
    job_id = text_of(arguments, "job_id")
    if not job_id:
        raise ToolFailed("job_id is missing: list shows the ids")
    if _is_protected(context, job_id):
        raise ToolFailed(f"{job_id!r} is a system job; it is protected and cannot be changed or removed")
    if (job := automations(reached(context, arguments)).filter(pk=job_id).first()) is None:
        whose = "the owner has" if is_everywhere(arguments) else "this conversation has"
        raise ToolFailed(f"{whose} no automation {job_id!r}; list shows the ids")
    return job


def _is_protected(context: ToolContext, job_id: str) -> bool:
    """Whether the id is reserved or of a system job of this agent. Such ids are no secret."""
    own = CronJob.objects.filter(pk=job_id, agent=context.agent, kind=JobKind.SYSTEM_EVENT)
    return job_id in RESERVED_IDS or own.exists()


def at_text(instant: datetime | None, zone: str) -> str:
    """`Friday, 2027-01-01 09:00`, in the zone and with seconds unless they are 0; `none` for None."""
    if instant is None:
        return "none"
    local = instant.astimezone(zone_or_utc(zone))
    return f"{local:%A, %Y-%m-%d %H:%M:%S}" if local.second else f"{local:%A, %Y-%m-%d %H:%M}"


def list_automations(context: ToolContext, arguments: dict[str, Any] | None = None) -> str:
    """The automations of the conversation, the oldest first, one line each; of all, with other appointments."""
    user, everywhere = reached(context, arguments or {}), is_everywhere(arguments or {})
    jobs = list(_jobs(user))
    stops = stops_of(jobs)
    lines = [
        f"{_line(job, stops.get(job.pk))}{_where(context, job.session) if everywhere else ''}" for job in jobs
    ]
    if everywhere:
        lines += _others(context, user)
    return "\n".join(lines) or ("No appointments." if everywhere else "This conversation has no automations.")


def _jobs(user: AbstractBaseUser) -> QuerySet[Any]:
    """The automations that the user reaches, each with its last slot that ran."""
    runs = RunRecord.objects.filter(job=OuterRef("pk")).exclude(state=RunState.SKIPPED)
    last = {name: Subquery(runs.order_by("-scheduled_for").values(name)[:1]) for name in _OF_LAST_RUN}
    rows: QuerySet[Any] = automations(user).annotate(last_slot=last["scheduled_for"], lacks=last["attention"])
    return rows.order_by("created_at", "id")[:MOST_JOBS]


def _others(context: ToolContext, user: AbstractBaseUser) -> Iterator[str]:
    """The routines and scheduled messages of all conversations, which other tools change."""
    jobs = list(job_rows(user, [Kind.ROUTINE])[:MOST_JOBS])
    stops = stops_of(jobs)
    for job in jobs:
        following = _following(job, stops.get(job.pk))
        yield f"- routine {quoted(job.name)}: {describe_job(job, job.timezone)}; {following} [{job.pk}]"
    texts, now = ScheduledMessage.objects.filter(session__owner_id=user.pk), datetime.now(UTC)
    for text in filter(is_to_come, shown_messages(texts, now)):
        where = _where(context, text.session)
        yield f"- message {quoted(name_of(text))}: {message_now(text, now)} [{text.pk}]{where}"


def _where(context: ToolContext, session: Session) -> str:
    """In which other conversation; empty for this one."""
    return "" if session.pk == context.session.pk else f", in {quoted(session.title or session.key)}"


def _line(job: Any, stop: Stop | None) -> str:
    ran = "not run yet"
    if job.last_status:
        became = f"{job.last_status}, {job.lacks}" if job.lacks else job.last_status
        ran = f"last run {at_text(job.last_slot, job.timezone)} ({became})"
    more = "".join(
        f"; {each}" for each in (*_of_its_own(job), *(each["text"] for each in known_problems(job, stop)))
    )
    words = describe_job(job, job.timezone)
    return f"- {quoted(job.name)}: {words}; {ran}; {_following(job, stop)}{more} [{job.pk}]"


def _of_its_own(job: Any) -> Iterator[str]:
    """What people have set for this automation alone. Of a gate only its kind: its address may hold a secret."""
    for name, value in choices_of(job).items():
        shown = value.get("kind") if isinstance(value, dict) else value
        yield f"{name} {(', '.join(shown) or 'none') if isinstance(shown, list) else shown}"
    if job.limits:
        yield f"limits {caps_text(job.limits)}"


def _following(job: Any, stop: Stop | None) -> str:
    if job.fault:
        return "set aside after a fault"
    if not job.enabled:
        return f"paused{why_paused(job)}"
    if until := paused_until(job):
        return f"paused until {at_text(until, job.timezone)}"
    if job.clock.next_run_at is not None and coming_pause(job):
        return f"next run {at_text(job.clock.next_run_at, job.timezone)}, paused{pause_text([job], job.timezone)}"
    if job.clock.next_run_at is not None:
        held = held_until(job)
        if stop and (stop.until is None or held is None or stop.until >= held):
            before = (
                f"no run before {at_text(stop.until, job.timezone)}"
                if stop.until
                else "no run until it is raised"
            )
            return f"stopped by a cap: {before}"
        if held is None or held <= job.clock.next_run_at:
            return f"next run {at_text(job.clock.next_run_at, job.timezone)}"
        return f"slowed down, its runs keep failing: no run before {at_text(held, job.timezone)}"
    is_open = job.runs_now or job.pending
    return "no further run" if is_open else str(job.state)


def pause_text(jobs: Sequence[CronJob], zone: str) -> str:
    """` from … until …`: the pause of the first of these jobs; empty if it has none."""
    job = next(iter(jobs), None)
    coming, until = (coming_pause(job), paused_until(job)) if job else (None, None)
    if coming:
        return f" from {at_text(coming.begin, zone)} until {at_text(coming.end, zone)}"
    return f" until {at_text(until, zone)}" if until else ""


def list_upcoming(context: ToolContext, arguments: dict[str, Any]) -> str:
    """What is due in a range of time, by time: of the conversation or of all, without heartbeats."""
    user, now = reached(context, arguments), datetime.now(UTC)
    since = _instant(context, arguments, "since", now) or now
    until = _instant(context, arguments, "until", now) or since + RANGE
    found = upcoming(user, since, until, zone=context.agent.zone)
    entries = [each for each in found if each.kind != Kind.HEARTBEAT]
    lines = [_entry(context, each) for each in entries[:MOST_ENTRIES]]
    if len(entries) > MOST_ENTRIES:
        lines.append(f"And {len(entries) - MOST_ENTRIES} more: ask for a shorter range.")
    zone = context.agent.timezone
    shown = f"From {at_text(since, zone)} to {at_text(until, zone)} ({zone})"
    return "\n".join([f"{shown}:", *lines]) if lines else f"{shown}: nothing."


def _instant(context: ToolContext, arguments: dict[str, Any], name: str, now: datetime) -> datetime | None:
    """A time of the range, in the agent's zone unless it has an offset; None: not given, or past."""
    if arguments.get(name) in (None, ""):
        return None
    try:
        return read_time(arguments[name], context.agent.timezone, now, name=name)[0]
    except ScheduleError as error:
        if error.code == "past_at" and name == "since":
            return None
        raise ToolFailed(str(error)) from error


def _entry(context: ToolContext, entry: Entry) -> str:
    """One line. The entry's own text is not for a model: it may have a provider's words (rule 3.6)."""
    kind = "" if entry.kind == Kind.AUTOMATION else f"{entry.kind} "
    became = "" if entry.state == SlotState.NEXT else f", {entry.state}"
    several = (
        f", {'many' if entry.count is None else entry.count} times until {entry.until:%H:%M}"
        if entry.until
        else ""
    )
    where = f", in {quoted(entry.title)}" if entry.title and entry.session_id != context.session.pk else ""
    return f"- {entry.at:%A, %Y-%m-%d %H:%M} {kind}{quoted(entry.name)}{several}{became}{where} [{entry.id}]"


def explain_automation(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Why an automation ran or did not, and what comes next. Without the words of providers and gates."""
    job = one_job(context, arguments)
    found = explain(reached(context, arguments), job.pk, to_model=True)
    lines = [f"{quoted(found.name)}: {found.words}. {found.now}"]
    lines += [_slot(each) for each in found.last[:MOST_SLOTS]]
    if found.next:
        lines.append(f"Next: {'; '.join(at_text(each, job.timezone) for each in found.next)}.")
    return "\n".join([*lines, *found.warnings])


def _slot(slot: Slot) -> str:
    ends = f" to {slot.until:%A, %Y-%m-%d %H:%M}" if slot.until else ""
    return f"- {slot.at:%A, %Y-%m-%d %H:%M}{ends}: {slot.text}"
