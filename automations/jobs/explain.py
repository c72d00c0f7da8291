"""Explain an automation: why its last slots did or did not run, its current state, its next runs. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise
from statistics import median
from typing import Any, Self

from django.contrib.auth.models import AbstractBaseUser

from agent_core.exceptions import UNUSABLE_CODES
from automations.exceptions import JobNotFound
from automations.jobs.facts import JobFacts, read_facts
from automations.models import CronJob, Overlap, RunRecord, RunState, ScheduleKind
from automations.runs.describe import Waiting, describe_run, span, when
from automations.runs.skips import GapReason
from automations.schedules.describe import changes_ahead, describe_job
from automations.schedules.plan import plan_of, schedule_of
from automations.schedules.schedule import ScheduleError
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import automations, paused_until, state_at_end, state_of
from sessions_app.channels.base import why_unserved
from sessions_app.models import Session, SessionState

NEXT = 5  # runs


@dataclass(frozen=True, kw_only=True)
class ExplainedRun:
    """A run, with `text` as one sentence about it."""

    run_id: str
    scheduled_for: datetime
    state: str
    reason: str
    slots_from: datetime | None
    slots_to: datetime | None
    count: int | None
    attempt: int
    text: str

    @classmethod
    def of(cls, run: RunRecord, text: str, zone: tzinfo) -> Self:
        """This run, with its sentence and its instants in the zone."""
        return cls(
            run_id=run.run_id,
            scheduled_for=run.scheduled_for.astimezone(zone),
            state=run.state,
            reason=run.reason,
            slots_from=run.slots_from and run.slots_from.astimezone(zone),
            slots_to=run.slots_to and run.slots_to.astimezone(zone),
            count=run.slots_count,
            attempt=run.attempt,
            text=text,
        )


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The explanation of one automation. Instants are in the schedule's zone."""

    name: str
    words: str
    timezone: str
    state: str
    now: str
    next: tuple[datetime, ...]
    last: tuple[ExplainedRun, ...]
    warnings: tuple[str, ...]


def explain(user: AbstractBaseUser, job_id: str) -> Explanation:
    """Explain one of the user's automations. JobNotFound."""
    job = automations(user).filter(pk=job_id).first()
    if job is None:
        raise JobNotFound
    [facts] = read_facts([job])
    return explain_facts(facts)


def explain_facts(facts: JobFacts) -> Explanation:
    """Explain a job from what was read of it."""
    job, zone = facts.job, zone_or_utc(facts.job.timezone)
    coming = coming_firings(job, facts.now)
    return Explanation(
        name=job.name,
        words=describe_job(job, zone.key),
        timezone=job.timezone,
        state=state_of(job),
        now=now_of(facts, zone),
        next=tuple(firing.astimezone(zone) for firing in coming),
        last=tuple(
            ExplainedRun.of(run, text, zone) for run, text in described_runs(facts.runs, zone, facts.waiting)
        ),
        warnings=tuple(warnings_of(facts, coming)),
    )


def described_runs(
    runs: Sequence[RunRecord], zone: tzinfo, waiting: Waiting
) -> Iterator[tuple[RunRecord, str]]:
    """Each of a job's runs with its sentence. `runs`: newest first, so that a gap can name the slot run instead."""
    following: list[RunRecord | None] = [None, *runs]
    for run, instead in zip(runs, following, strict=False):
        yield run, describe_run(run, zone, waiting=waiting, instead=instead)


def coming_firings(job: Any, now: datetime) -> list[datetime]:
    """The next firings after now, with jitter, within the end date and the number of runs."""
    firing = job.clock.next_run_at
    if firing is None or not job.enabled or takes_no_runs(job):
        return []
    try:
        plan = plan_of(job, job.clock.runs_started)
        slot, runs = firing - plan.jitter, 0
        if firing <= now:  # all due slots together become one run
            slot = plan.slots.last(slot, now - plan.jitter) or slot
            runs, firing = 1, plan.firing_of(plan.slots.next(slot), runs=1)
        found: list[datetime] = []
        while firing is not None and len(found) < NEXT:
            found.append(firing)
            runs += 1
            firing = plan.firing_of(plan.slots.next(firing - plan.jitter), runs=runs)
    except ScheduleError:
        return []
    return found


def now_of(facts: JobFacts, zone: tzinfo) -> str:
    """The current state in one sentence."""
    job, now = facts.job, facts.now
    if job.fault:
        return fault_in_words(job, now)
    if facts.open_run is not None:
        return describe_run(facts.open_run, zone, waiting=facts.waiting)
    if not job.enabled:
        return f"Paused since {when(job.clock.planned_from, zone)}."
    if until := paused_until(job):
        return f"Paused until {when(until, zone)}."
    if closed := takes_no_runs(job):
        return closed
    firing = job.clock.next_run_at
    if firing is None:
        return f"{state_at_end(job, job.last_status).capitalize()}: {_done(job, zone)}."
    if firing <= now:
        why = facts.held_by or f"beat has not fired it yet ({span(now - firing)} late)"
        return f"Due since {when(firing, zone)}: {why}."
    return f"Next run: {when(firing, zone)}."


def takes_no_runs(job: Any) -> str:
    """Why none of its slots are run, whatever its schedule is; empty: they are."""
    if not _is_open(job):
        return f"Not run: the conversation is {job.session.state}."
    return "" if job.owner_is_active else "Not run: the owner's account is inactive."


def _is_open(job: Any) -> bool:
    """Whether its session takes runs; a job that is not bound has none."""
    return job.session is None or job.session.state == SessionState.OPEN


def fault_in_words(job: CronJob, now: datetime) -> str:
    """Why the job was disabled: an error in the schedule, which a person may read; any other is for operators."""
    try:
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


def warnings_of(facts: JobFacts, coming: list[datetime]) -> list[str]:
    """Sentences about what will go wrong. `coming`: the next firings."""
    job = facts.job
    if job.fault or not job.enabled:
        return []
    zone = zone_or_utc(job.timezone)
    return [
        *undeliverable(job.session),
        *(facts.model_warnings or _model_failed(facts)),
        *_ending(job, coming, zone),
        *_changes(job, coming, facts.now),
        *_dense(job, facts.runs, coming),
    ]


def _model_failed(facts: JobFacts) -> list[str]:
    """A model that could not be called in the last run; of one that needs no connection nothing else is known."""
    done = (run for run in facts.runs if run.state in (RunState.SUCCEEDED, RunState.FAILED))
    last = next(done, None)
    if last is None or last.state != RunState.FAILED or last.reason not in UNUSABLE_CODES:
        return []
    return [f"The model could not be called in the last run: {last.error.rstrip('.')}."]


def undeliverable(session: Session | None) -> list[str]:
    """Answers that are stored but not sent, because nothing serves their channel or address."""
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
    """Slots that are closer together than a run takes."""
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
