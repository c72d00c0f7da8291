"""Explain an automation: why its last slots did or did not run, its current state, its next runs. Reads only.

The number of statements does not depend on the number of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise
from statistics import median
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import (
    BooleanField,
    Case,
    Count,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    Subquery,
    Value,
    When,
)

from automations.exceptions import JobNotFound, ScheduleError
from automations.jobs.causes import (
    JobFacts,
    before,
    codes,
    holding,
    problems,
    warnings_of_models,
)
from automations.jobs.clock import current_plan, database_now, moved_slots
from automations.jobs.stops import charged_of, model_warnings, stops_of
from automations.jobs.system import HEARTBEAT
from automations.models import CronJob, Overlap, RunRecord, RunState, ScheduleKind
from automations.models.health import SLOW_INTERVAL, health_of
from automations.models.run import OPEN_RUNS
from automations.runs.describe import (
    ENDS_SLOWING,
    QueueWait,
    Slot,
    describe_run,
    slot_of,
    span,
    when,
)
from automations.runs.skips import GapReason
from automations.schedules.describe import changes_ahead, describe_job
from automations.schedules.plan import jitter_of, plan_of, schedule_of
from automations.schedules.zone_files import fingerprint, unknown_zone, zone_or_utc
from automations.selectors import automations, coming_pause, held_until, paused_until, with_runs
from sessions_app.channels.base import why_unserved
from sessions_app.connections.usable import CURES
from sessions_app.limits import running_turns
from sessions_app.models import Session, SessionState, Turn, TurnKind, TurnState

NEXT = 5  # runs
LAST = 20  # runs of a job
_TICK = timedelta(milliseconds=1)
RUN_COLUMNS = (  # of RunRecord: what a sentence and a slot are made of
    *("run_id", "job_id", "session_id", "scheduled_for", "state", "reason", "slots_from", "slots_to"),
    *("slots_count", "attempt", "not_before", "started_at", "lag_ms", "duration_ms", "turn_id", "error"),
    *("provider_message", "response_summary", "attention", "finished_at", "moved_to", "cap"),
)
_BUSY_WITH = {
    TurnKind.MESSAGE: "a person's message",
    TurnKind.HEARTBEAT: "a heartbeat",
    TurnKind.JOB: "a background job",
    TurnKind.SCHEDULED_MESSAGE: "a scheduled message",
    TurnKind.LEGACY: "a legacy job",
    TurnKind.SYSTEM: "a system job",
}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The explanation of a job. Instants are in the schedule's zone. `last`: newest first, at most 20.

    `before`: causes that stopped it until the model failed in another way, or a cap stopped it. `codes`: what stops it,
    the newest first. `is_stopped`: by a cap.
    """

    name: str
    words: str
    timezone: str
    state: str
    now: str
    next: tuple[datetime, ...]
    last: tuple[Slot, ...]
    warnings: tuple[str, ...]
    before: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    is_stopped: bool = False


def explain(user: AbstractBaseUser, job_id: str, *, to_model: bool = False) -> Explanation:
    """Explain one of the user's automations. `to_model`: without the words of providers and gates (rule 3.6).
    JobNotFound.
    """
    job = automations(user).filter(pk=job_id).first()
    if job is None:
        raise JobNotFound
    [facts] = read_facts([job])
    if to_model:
        runs = [run._replace(provider_message="", response_summary="") for run in facts.runs]
        facts = replace(facts, runs=runs)
    return explain_facts(facts)


def next_run(job_id: str) -> datetime | None:
    """When any job runs next, as `explain` says; None: it does not, as far as is known."""
    [facts] = read_facts(list(with_runs(CronJob.objects.filter(pk=job_id))))
    return next(iter(_coming_firings(facts)), None)


def explain_facts(facts: JobFacts) -> Explanation:
    """Explain a job from what was read of it."""
    job, zone = facts.job, zone_or_utc(facts.job.timezone)
    coming = _coming_firings(facts)
    following = [None, *facts.runs]  # a gap names the run of the next slot
    came = {run.moved_to: run.scheduled_for for run in facts.runs if run.moved_to}
    return Explanation(
        name=job.name,
        words=describe_job(job, zone.key),
        timezone=job.timezone,
        state=job.state,
        now=" ".join((*(each["text"] for each in holding(facts)), _now(facts, zone))),
        next=tuple(firing.astimezone(zone) for firing in coming),
        last=tuple(
            slot_of(run, zone, waiting=facts.waiting, instead=instead, came_from=came.get(run.scheduled_for))
            for run, instead in zip(facts.runs, following, strict=False)
        ),
        warnings=tuple(_warnings(facts, coming)),
        before=tuple(dict.fromkeys(before(facts, zone))),
        codes=tuple(codes(facts)),
        is_stopped=facts.stop is not None,
    )


def read_facts(jobs: Sequence[Any]) -> list[JobFacts]:
    """The facts of these rows of `selectors.with_runs`, in their order."""
    now, waiting = database_now(), _waiting(jobs)
    warnings = model_warnings(jobs)
    budgets = charged_of(jobs, warnings)
    stops = stops_of(jobs, warnings, budgets)
    of_job = RunRecord.objects.filter(job=OuterRef("pk"))
    running_first = Case(When(state=RunState.RUNNING, then=Value(0)), default=Value(1))
    ids = CronJob.objects.filter(pk__in=[job.pk for job in jobs]).annotate(
        last=ArraySubquery(of_job.order_by("-scheduled_for").values("pk")[:LAST]),
        open_run=Subquery(
            of_job.filter(state__in=OPEN_RUNS).order_by(running_first, "scheduled_for").values("pk")[:1]
        ),
    )
    found = {pk: (last, open_run) for pk, last, open_run in ids.values_list("pk", "last", "open_run")}
    wanted = {pk for last, open_run in found.values() for pk in (*last, open_run)}
    rows = RunRecord.objects.filter(pk__in=wanted).values_list(*RUN_COLUMNS, named=True)
    runs = {run.run_id: run for run in rows}
    facts = []
    for job, of_models, charged_to in zip(jobs, warnings, budgets, strict=True):
        last, open_run = found.get(job.pk, ((), None))
        facts.append(
            JobFacts(
                job=job,
                now=now,
                runs=[runs[pk] for pk in last if pk in runs],
                open_run=runs.get(open_run),
                waiting=replace(
                    waiting.get(job.pk, QueueWait()),
                    next_slot=None if job.pk in stops else job.clock.next_run_at,
                ),
                of_models=of_models,
                stop=stops.get(job.pk),
                budgets=charged_to,
            )
        )
    return facts


def _waiting(jobs: Iterable[Any]) -> dict[str, QueueWait]:
    """The reason why the first queued turn of each job waits, by the job's id."""
    pending = {job.pk: job for job in jobs if job.pending}
    if not pending:
        return {}
    queue = Turn.objects.filter(session=OuterRef("session"), state=TurnState.QUEUED, host__isnull=True)
    earlier = Q(due_at__lt=OuterRef("due_at")) | Q(due_at=OuterRef("due_at"), id__lt=OuterRef("pk"))
    ahead = queue.filter(~Q(lane=OuterRef("lane")) | earlier).order_by().values("session")
    own = Turn.objects.filter(runs__job__in=pending, runs__state=RunState.QUEUED, state=TurnState.QUEUED)
    of_jobs = own.annotate(
        waiting_job=F("runs__job_id"),
        ahead=Subquery(ahead.annotate(number=Count("pk")).values("number")),
        behind_others=ExpressionWrapper(running_turns.waits_for_own_turns(), BooleanField()),
    )
    turns: list[Any] = list(of_jobs.order_by("waiting_job", "due_at", "id").distinct("waiting_job"))
    sessions = {turn.session_id for turn in turns}
    running = Turn.objects.filter(session__in=sessions, state=TurnState.RUNNING)
    busy = {turn.session_id: turn for turn in running.only("session_id", "kind", "metadata", "started_at")}
    found = {turn.waiting_job: _waits(turn, busy.get(turn.session_id)) for turn in turns}
    idle = [job.pk for job in pending.values() if not job.owner_is_active]
    return found | dict.fromkeys(idle, QueueWait(owner_inactive=True))


def _waits(turn: Any, running: Turn | None) -> QueueWait:
    if running is None:
        ahead = turn.ahead or 0
        return QueueWait(ahead=ahead, queued_at=turn.queued_at, behind_others=turn.behind_others)
    name = running.input.automation_name
    is_automation = running.kind == TurnKind.AUTOMATION
    what = f"the automation {name!r}" if is_automation else _BUSY_WITH[TurnKind(running.kind)]
    return QueueWait(busy_with=what, busy_since=running.started_at)


def _coming_firings(facts: JobFacts) -> list[datetime]:
    """The next firings that will run, with jitter, within the end date and the number of runs. Of a job that is slowed
    down, as long as that lasts.
    """
    job, now, firing = facts.job, facts.now, facts.job.clock.next_run_at
    if firing is None or not job.enabled or takes_no_runs(job):
        return []
    if facts.stop and facts.stop.until is None:
        return []
    try:
        plan = current_plan(job, job.clock)
        slot, runs = firing - plan.jitter, 0
        held, apart = _held_until(facts), SLOW_INTERVAL if health_of(job).is_slowed else timedelta(0)
        if held is not None and slot < held:  # the slots before are skipped
            firing = plan.firing_of(plan.slots.next(held - _TICK))
        elif firing <= now:  # all due slots together become one run
            slot = plan.slots.last(slot, now - plan.jitter) or slot
            runs, firing = 1, plan.firing_of(plan.slots.next(slot), runs=1)
        found: list[datetime] = []
        while firing is not None and len(found) < NEXT:
            found.append(firing)
            runs += 1
            after = firing - plan.jitter + apart
            firing = plan.firing_of(plan.slots.next(after - _TICK if apart else after), runs=runs)
    except ScheduleError:
        return []
    return found


def _held_until(facts: JobFacts) -> datetime | None:
    """Until when no slot runs: the job is slowed down, or a cap stops it."""
    return max(filter(None, (held_until(facts.job), facts.stop.until if facts.stop else None)), default=None)


def _now(facts: JobFacts, zone: tzinfo) -> str:
    """The current state in one sentence."""
    job, now = facts.job, facts.now
    if job.fault:
        return fault_in_words(job, now)
    if facts.open_run is not None and not (facts.stop and facts.open_run.not_before):
        return describe_run(facts.open_run, zone, waiting=facts.waiting)
    if not job.enabled:
        since = f"Paused since {when(job.clock.planned_from, zone)}{why_paused(job, facts.runs)}."
        return "Off: it is switched on on the page of its agent." if is_off(job) else since
    if until := paused_until(job):
        return f"Paused until {when(until, zone)}."
    if closed := takes_no_runs(job):
        return closed
    firing = job.clock.next_run_at
    if firing is None:
        return f"{job.state.capitalize()}: {_done(job, zone)}."
    if firing > now:
        return _coming(facts, firing, zone)
    why = facts.held_by or f"beat has not fired it yet ({span(now - firing)} late)"
    return f"Due since {when(firing, zone)}: {why}."


def _coming(facts: JobFacts, firing: datetime, zone: tzinfo) -> str:
    held, stop = _held_until(facts), facts.stop
    if stop and stop.until in (None, held):
        return stop.in_words(zone)
    if held is None or firing >= held:
        came_from = _came_from(facts.job, firing, zone)
        return f"Next run: {when(firing, zone)}{came_from}." + _pauses(facts.job, zone)
    return f"Slowed down: the next run is the first slot from {when(held, zone)} on."


def _came_from(job: Any, firing: datetime, zone: tzinfo) -> str:
    """From where a person has moved this run; empty: it was not moved."""
    came = {to: slot for slot, to in moved_slots(job.clock).items()}
    slot = came.get(firing - jitter_of(job))
    return f", moved from {when(slot, zone)}" if slot else ""


def _pauses(job: Any, zone: tzinfo) -> str:
    """The pause to come, as a sentence; empty: there is none."""
    pause = coming_pause(job)
    return (
        f" Paused from {when(pause.begin, zone)} until {when(pause.end, zone)}."
        if pause and pause.begin
        else ""
    )


def is_off(job: Any) -> bool:
    """Whether the job is a heartbeat that no person has switched on, or one has switched off."""
    return not job.enabled and job.system_event == HEARTBEAT and not health_of(job).paused_reason


def why_paused(job: Any, runs: Iterable[Any] = ()) -> str:
    """Why the server has paused the job, as the end of a sentence; empty if it has not. `runs`: the last ones."""
    health = health_of(job)
    if not health.paused_reason:
        return ""
    last = next((run for run in runs if run.state == RunState.FAILED), None)
    cure = CURES.get(last.reason, "") if last else ""
    why = f": {health.failed_text}. {cure or 'Find out why'}"
    return f"{why.rstrip('.')}, then resume it"


def takes_no_runs(job: Any) -> str:
    """Why none of its slots are run, whatever its schedule is; empty: they are."""
    if not _is_open(job):
        return f"Not run: the conversation is {job.session.state}."
    return "" if job.owner_is_active else "Not run: the owner's account is inactive."


def _is_open(job: Any) -> bool:
    """Whether the job's session accepts runs. A job without a session counts as open."""
    return job.session is None or job.session.state == SessionState.OPEN


def fault_in_words(job: CronJob, now: datetime) -> str:
    """Why the job was disabled: an error in the schedule, which a person may read; any other is for operators."""
    try:
        if fingerprint(job.timezone) is None:  # this process may have read its data before they were lost
            raise unknown_zone(job.timezone)
        plan_of(job, 0).next_firing(now)
    except ScheduleError as error:
        return f"Disabled after an error: {error} Give it a valid schedule."
    why = "it could not be fired. Enable it again to retry; operators find the cause in the admin."
    return f"Disabled after an error: {why}"


def _done(job: Any, zone: tzinfo) -> str:
    if job.schedule_kind == ScheduleKind.AT and job.at:
        return f"its only run was at {when(job.at, zone)}"
    if job.max_runs is not None and job.clock.runs_started >= job.max_runs:
        return f"all of its {job.max_runs} runs have started"
    if job.ends_at is not None:
        return f"no runs after its end date {when(job.ends_at, zone)}"
    return "its schedule has no more runs"


def _warnings(facts: JobFacts, coming: list[datetime]) -> list[str]:
    """Sentences about what will go wrong. `coming`: the next firings."""
    job = facts.job
    if job.fault or not job.enabled:
        return []
    zone, known = zone_or_utc(job.timezone), [each["text"] for each in problems(facts)]
    found = [
        *undeliverable(job.session),
        *_failing(job),
        *gate_failed(facts.ended),
        *warnings_of_models(facts),
        *(facts.of_models.caps if _tells_most(facts) else ()),
        *_ending(job, coming, zone),
        *_changes(job, coming, facts.now),
        *_dense(job, facts.runs, coming),
    ]
    return [each for each in found if each not in known]


def _tells_most(facts: JobFacts) -> bool:
    """Whether no run has said more of a cap than what is known before the first one."""
    stop = facts.stop
    return stop is None or stop.until is not None or stop.text in facts.of_models.caps


def gate_failed(runs: Iterable[Any]) -> list[str]:
    """A warning if the check before the last run failed. `runs`: newest first."""
    last = next((run for run in runs if run.state not in OPEN_RUNS), None)
    return [last.error] if last is not None and last.state == RunState.SUCCEEDED and last.error else []


def _failing(job: Any) -> list[str]:
    """A warning if the job is slowed down."""
    health = health_of(job)
    if not health.is_slowed:
        return []
    slowed = "it runs at most once an hour until one succeeds, and is paused if that goes on"
    return [f"{health.failed_text}: {slowed}. {ENDS_SLOWING}"]


def undeliverable(session: Session | None) -> list[str]:
    """A warning if answers are stored but not sent, because nothing serves their channel or address."""
    if session is None:
        return []
    route = session.standing_route
    reason = why_unserved(route, session.agent_id)
    return [f"Answers cannot be delivered by {route['channel']!r}: {reason}."] if reason else []


def _ending(job: Any, coming: list[datetime], zone: tzinfo) -> list[str]:
    if job.schedule_kind == ScheduleKind.AT or not _is_open(job):
        return []
    if not coming:
        return ["This schedule has no more runs."] if job.clock.next_run_at is None else []
    return [f"Last run: {when(coming[-1], zone)}."] if len(coming) < NEXT else []


def _changes(job: Any, coming: list[datetime], now: datetime) -> list[str]:
    if not coming:
        return []
    return changes_ahead(schedule_of(job), zone=zone_or_utc(job.timezone).key, after=now, shown_to=coming[-1])


def _dense(job: Any, runs: Sequence[RunRecord], coming: list[datetime]) -> list[str]:
    """A warning if slots are closer together than a run takes."""
    took = [run.duration_ms for run in runs if run.duration_ms is not None]
    apart = min((later - earlier for earlier, later in pairwise(coming)), default=None)
    if took and apart is not None and median(took) > apart.total_seconds() * 1000:
        lost = "are skipped" if job.overlap == Overlap.SKIP else "wait or are skipped"
        usual = span(timedelta(milliseconds=median(took)))
        return [
            f"Slots are {span(apart)} apart and a run takes about {usual}: slots {lost} while a run is open."
        ]
    skipped = [run.slots_count for run in runs if run.reason in (GapReason.OVERLAP, GapReason.QUEUE_FULL)]
    if not skipped:
        return []
    count = "more than 1,000" if None in skipped else str(sum(each or 0 for each in skipped))
    return [f"Of the last slots {count} were skipped, because the previous run had not ended."]
