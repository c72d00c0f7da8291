"""What needs a person, in all conversations. Reads only, each limited to the user who asks."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import F, OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce

from agent_core.exceptions import PASSING_CODES, ModelUnavailable
from agent_core.execution import WAITING
from automations.appointments.jobs import MOST_JOBS, about_job, can_retry, has_failed, job_rows
from automations.appointments.messages import RECENT, About, about_message, message_now, with_run
from automations.jobs.causes import (
    code_of_run,
    cure_of,
    failed_before,
    failed_otherwise,
    is_mended,
    is_past,
    with_owner,
)
from automations.jobs.clock import database_now
from automations.jobs.explain import fault_in_words, gate_failed, undeliverable, why_paused
from automations.jobs.stops import Stop, charged_of, is_lifted, known_problems, model_warnings, stops_of
from automations.models import CronJob, MessageStatus, RunRecord, RunState, ScheduledMessage
from automations.models.health import FAILING_AFTER, health_of
from automations.runs.describe import ENDS_SLOWING, QueueWait, describe_run, when, why_failed
from automations.runs.skips import GapReason
from automations.runs.told import ONE_CAUSE, cause_of, cause_of_run
from automations.selectors import MODEL_CODES, held_until
from sessions_app.connections.usable import CURES, ModelWarnings, models_of
from sessions_app.models import ConsentQuestion, ConsentState, Delivery, ExecutionState, Session
from sessions_app.models.delivery import DeliveryState
from sessions_app.single_line import one_line

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
MOST = 20  # notices of each kind
SEARCHED = 200  # the latest conversations whose questions and deliveries are read
ENDED_FOR = timedelta(days=7)  # how long the failure of a job that runs no more is reported
LONGEST_TEXT = 1_000  # characters of a question
_ORDER = ("question", "disabled", "preflight", "stopped", "failing", "undeliverable")


@dataclass(frozen=True, kw_only=True)
class Notice(About):
    """Something that needs a person. `what`: question, disabled, preflight, stopped (by a cap), failing or
    undeliverable.

    `kind`, `id`, `name`: the appointment; empty for deliveries, and for a question but the name of the automation that
    asks it. `at`: since when, if known.
    `question`: the id of one for consent to `calls`, which can be answered until `expires_at`; None: at any time.
    `execution`: of the plan that asks `question_id`, and its `status`. `run_id`: a failed run that can be tried again.
    `code`: what it is about. `cause`: what concerns others, too, which are in `also`; of a cap `cap` says whose it is,
    and `needs` how many tokens a call may need. `before`: how it failed before a cap stopped it. `connection`: the name
    of that which causes it, and `why` it failed. `next_try`: when Rondo tries again. `can_resume`: a person can end its
    slowing or pause. `check_failed`: the check before it, which its form changes.
    """

    what: str
    text: str
    at: datetime | None
    question: str = ""
    calls: Sequence[Mapping[str, Any]] = ()
    expires_at: datetime | None = None
    execution: str = ""
    question_id: str = ""
    status: str = ""
    run_id: str = ""
    code: str = ""
    cause: str = ""
    also: tuple[Notice, ...] = ()
    cap: str = ""
    needs: int = 0
    before: tuple[str, ...] = ()
    connection: str = ""
    why: str = ""
    next_try: datetime | None = None
    can_resume: bool = False
    check_failed: bool = False


def attention(user: AbstractBaseUser, zone: tzinfo = UTC) -> list[Notice]:
    """Return the notices for the user: questions first, then appointments that are disabled, cannot run or fail, then
    undelivered answers. Their sentences are on the clock of this zone.

    At most 20 of each. The number of statements does not depend on how many there are.
    """
    now = database_now()
    latest = _latest(user)
    found = [
        *_of_each_cause(_of_jobs(user, now, zone), zone),
        *_of_messages(user, now, zone),
        *_questions(latest),
        *_undelivered(latest),
    ]
    by_what = {what: [each for each in found if each.what == what] for what in _ORDER}
    return [notice for what in _ORDER for notice in by_what[what][:MOST]]


def _of_each_cause(notices: Iterable[Notice], zone: tzinfo) -> Iterator[Notice]:
    """One notice of a cause that concerns several appointments, which names them: the newest one holds, of a cap the
    one that needs the most.
    """
    found: dict[Any, list[Notice]] = {}
    for each in notices:
        found.setdefault(each.cause or id(each), []).append(each)
    for group in found.values():
        group.sort(key=lambda each: (each.needs, each.at or _LONG_AGO, each.run_id > ""), reverse=True)
        newest, *also = group
        coming = min((each.next_try for each in group if each.next_try), default=None)
        again = f" Rondo tries again by itself: next at {when(coming, zone)}." if coming else ""
        is_away = newest.code.partition(":")[0] in PASSING_CODES
        text = newest.text if not (also and is_away) else f"{newest.why}{again}"
        yield replace(newest, also=tuple(also), text=text, connection=newest.connection if also else "")


def _of_jobs(user: AbstractBaseUser, now: datetime, zone: tzinfo) -> Iterator[Notice]:
    troubled = Q(enabled=True) | ~Q(fault="") | Q(health__paused_reason__gt="")
    jobs: list[Any] = list(job_rows(user).filter(troubled)[:MOST_JOBS])
    ended = [job.ended_run for job in jobs if has_failed(job)]
    runs = RunRecord.objects.defer("snapshot", "rendered_prompt", "prompt_variables").in_bulk(ended)
    newest, repeated = _newest_runs(jobs), _waiting_for_a_repetition(jobs)
    warnings = model_warnings(jobs)
    charged_to = charged_of(jobs, warnings)
    stops = stops_of(jobs, warnings, charged_to)
    for job, known, budgets in zip(jobs, warnings, charged_to, strict=True):
        if job.fault:
            yield Notice(what="disabled", text=fault_in_words(job, now), at=job.updated_at, **about_job(job))
            continue
        if why := why_paused(job):
            more: dict[str, Any] = {"can_resume": True, **about_job(job)}
            yield Notice(what="disabled", text=f"Paused{why}.", at=job.updated_at, **more)
            continue
        lately, stop = newest.get(job.pk, ()), stops.get(job.pk)
        run = repeated.get(job.pk) or (runs.get(job.ended_run) if has_failed(job) else None)
        is_over = run is not None and is_lifted(run, budgets)
        failing = [] if is_over else [*_failing(job, run, known, now, zone, stop)]
        yield from _stopped(job, stop, lately, failing, zone) if stop else failing
        yield from _blind(job, lately)
        problems = [each for each in known_problems(job, stop) if not is_past(job, each, known)]
        yield from _found_before(job, problems, known, is_failing=bool(failing))
        if job.clock.next_run_at is not None and not problems:
            for text in undeliverable(job.session):
                yield Notice(what="undeliverable", text=text, at=None, code="bad_channel", **about_job(job))


def _found_before(
    job: Any, problems: Iterable[dict[str, str]], known: ModelWarnings, *, is_failing: bool
) -> Iterator[Notice]:
    """What preflight found. Of its models a failed run is newer, and says why."""
    models = dict(zip(MODEL_CODES, models_of(job.agent, job.model, job.fallback_model), strict=True))
    for each in problems:
        if is_failing and each["code"] in MODEL_CODES:
            continue
        text, cause = each["text"], cause_of(models.get(each["code"], ""), each["code"], each["text"])
        is_of_all = each["code"] == MODEL_CODES[0] and any(CURES[why] in text for why in ONE_CAUSE)
        connection = known.connection if is_of_all else ""
        code = with_owner(job, each["code"])
        more: dict[str, Any] = {"code": code, "cause": connection or cause, "connection": connection}
        since = datetime.fromisoformat(each["since"])
        yield Notice(what="preflight", text=text, at=since, **more, **about_job(job))


def _newest_runs(jobs: list[Any]) -> dict[str, list[RunRecord]]:
    """The newest ended runs of each job, newest first."""
    own = RunRecord.objects.filter(job=OuterRef("pk"), finished_at__isnull=False, moved_to=None).order_by(
        "-scheduled_for"
    )
    ids = CronJob.objects.filter(pk__in=[job.pk for job in jobs]).annotate(
        newest=ArraySubquery(own.values("pk")[:FAILING_AFTER])
    )
    found = dict(ids.values_list("pk", "newest"))
    wanted = [pk for each in found.values() for pk in each]
    runs = RunRecord.objects.only("state", "reason", "error", "finished_at").in_bulk(wanted)
    return {job: [runs[pk] for pk in each if pk in runs] for job, each in found.items()}


def _waiting_for_a_repetition(jobs: list[Any]) -> dict[str, RunRecord]:
    """The failed runs that wait for their next attempt, by job: newer than the last one that ended."""
    pending = [job.pk for job in jobs if job.pending]
    rows = RunRecord.objects.filter(job__in=pending, state=RunState.QUEUED, not_before__isnull=False)
    return {str(run.job_id): run for run in rows.defer("snapshot", "rendered_prompt", "prompt_variables")}


def _stopped(
    job: Any, stop: Stop, runs: Sequence[RunRecord], failing: Sequence[Notice], zone: tzinfo
) -> Iterator[Notice]:
    """A cap stops the job. `failing`: how it failed before, of which a failure by the cap says nothing more."""
    past = tuple(each.text for each in failing if not each.code.startswith(GapReason.BUDGET))
    yield Notice(
        what="stopped",
        text=stop.in_words(zone),
        at=runs[0].finished_at if runs else None,
        code=f"{GapReason.BUDGET}:{stop.scope}",
        cap=stop.cap,
        cause=stop.cause,
        needs=stop.needs,
        before=past,
        **about_job(job),
    )


def _blind(job: Any, runs: Sequence[RunRecord]) -> Iterator[Notice]:
    """The check before each of its last runs failed."""
    is_blind = len(runs) == FAILING_AFTER and all(gate_failed([run]) for run in runs)
    if is_blind and job.clock.next_run_at is not None:
        more: dict[str, Any] = {"check_failed": True, **about_job(job)}
        yield Notice(what="failing", text=runs[0].error, at=runs[0].finished_at, **more)


def _failing(
    job: Any, run: RunRecord | None, known: ModelWarnings, now: datetime, zone: tzinfo, stop: Stop | None
) -> Iterator[Notice]:
    """`run`: the last one if it failed; without it the last ones may lack something."""
    health = health_of(job)
    slowed = f"It runs at most once an hour. {ENDS_SLOWING}" if health.is_slowed else ""
    more: dict[str, Any] = {"can_resume": health.is_slowed, **about_job(job)}
    if run is not None and _is_current(job, run, now):
        is_over = is_mended(job, run, known)
        if is_over and job.clock.next_run_at is not None and not slowed:
            return
        again = run.pk if run.state == RunState.FAILED and can_retry(job) else ""
        more |= {"run_id": again, "at": run.finished_at or run.started_at}
        more |= {} if is_over else _cause(job, run, known)
        text = failed_before(run, zone) if is_over else _why_it_fails(job, run, known, zone, stop)
        yield Notice(what="failing", text=f"{text} {slowed}".rstrip(), **more)
    elif run is None and health.failures_in_a_row >= FAILING_AFTER:
        text = f"{health.failed_text}."
        yield Notice(what="failing", text=text, at=health.failing_since, **more)


def _why_it_fails(job: Any, run: RunRecord, known: ModelWarnings, zone: tzinfo, stop: Stop | None) -> str:
    """The newest that is known of it, and the cure."""
    if failed_otherwise(job, run, known) and known.uncallable:
        return known.uncallable[0]
    waiting = QueueWait(next_slot=None if stop else job.clock.next_run_at)
    return f"{describe_run(run, zone, waiting=waiting)} {cure_of(job, run)}".rstrip()


def _cause(job: Any, run: RunRecord, known: ModelWarnings) -> dict[str, Any]:
    """What it has in common with others: the newest failure of a connection is that of all who use it."""
    code, why = run.reason, f"The model could not be called: {why_failed(run)}."
    owned, at = code_of_run(job, run), dict[str, Any]()
    if failed_otherwise(job, run, known) and known.uncallable:
        why, at = known.uncallable[0], {"at": known.failed_since}
        code = next((each for each, cure in CURES.items() if cure in why), ModelUnavailable.code)
        owned = with_owner(job, code)
    cause = cause_of_run(job, code) if cure_of(job, run) or at else ""
    connection = known.connection if code in ONE_CAUSE | PASSING_CODES else ""
    coming = filter(None, (run.not_before if run.state == RunState.QUEUED else None, _next_slot(job)))
    tries = {"next_try": min(coming, default=None)} if code in PASSING_CODES else {}
    return {"code": owned, "cause": connection or cause, "connection": connection, "why": why, **tries, **at}


def _next_slot(job: Any) -> datetime | None:
    """The next slot, not before it may run."""
    coming: datetime | None = job.clock.next_run_at
    return max(coming, held_until(job) or coming) if coming else None


def _is_current(job: Any, run: RunRecord, now: datetime) -> bool:
    """Whether the job will run again, or ended a short time ago."""
    ended = run.finished_at or now
    return job.clock.next_run_at is not None or ended > now - ENDED_FOR


def _of_messages(user: AbstractBaseUser, now: datetime, zone: tzinfo) -> Iterator[Notice]:
    rows = ScheduledMessage.objects.filter(
        session__owner_id=user.pk, status=MessageStatus.FAILED, updated_at__gt=now - RECENT
    )
    for message in with_run(rows).order_by("-updated_at", "pk")[:MOST]:
        yield Notice(
            what="undeliverable",
            text=message_now(message, now, zone),
            at=message.updated_at,
            **about_message(message),
        )


def _latest(user: AbstractBaseUser) -> list[uuid.UUID]:
    rows = Session.objects.filter(owner_id=user.pk).order_by("-updated_at", "-pk")
    return list(rows.values_list("pk", flat=True)[:SEARCHED])


def _questions(sessions: list[uuid.UUID]) -> Iterator[Notice]:
    mine = Q(session__in=sessions)
    shown = {"title": F("session__title"), "agent": F("session__agent__name"), "at": F("asked_at")}
    plans = ExecutionState.objects.filter(mine, status__in=WAITING).annotate(
        text=F("question"), execution=F("pk"), **shown
    )
    chats = ConsentQuestion.objects.filter(mine, execution="", state=ConsentState.OPEN)
    asks = RunRecord.objects.filter(pk=OuterRef("run")).values("job__name")
    named = Coalesce(Subquery(asks), Value(""))
    chats = chats.annotate(question=F("pk"), name=named, **shown)
    fields = ("text", "at", "session_id", "title", "agent")
    of_plan, of_call = ("execution", "question_id", "status"), ("question", "calls", "expires_at", "name")
    for rows, more in ((plans, of_plan), (chats, of_call)):
        for row in rows.order_by("-asked_at").values(*fields, *more)[:MOST]:
            yield Notice(what="question", **row | {"text": one_line(row["text"], LONGEST_TEXT)})


def _undelivered(sessions: list[uuid.UUID]) -> Iterator[Notice]:
    rows = Delivery.objects.filter(session__in=sessions, state=DeliveryState.FAILED)
    rows = rows.select_related("session__agent").order_by("-pk")
    seen = set()
    for each in rows[:MOST]:
        if each.session is None or (each.session_id, each.channel) in seen:
            continue
        seen.add((each.session_id, each.channel))
        yield Notice(
            what="undeliverable",
            text=f"An answer could not be delivered by {each.channel}: {each.last_error.rstrip('.')}.",
            at=each.tried_at,
            session_id=each.session_id,
            title=each.session.title,
            agent=each.session.agent.name,
        )
