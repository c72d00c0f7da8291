"""The appointments of a conversation, why each is as it is, and what needs attention.

Reads only, each limited to the user who asks.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import F, OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce

from agent_core.execution import WAITING
from automations.appointments.jobs import (
    MOST_JOBS,
    Kind,
    about_job,
    appointment_kind,
    appointment_state,
    can_retry,
    has_failed,
    is_failing,
    job_facts,
    job_rows,
    jobs_of_sessions,
    lives_in_sessions,
)
from automations.appointments.messages import (
    RECENT,
    About,
    about_message,
    is_to_come,
    message_now,
    name_of,
    shown_messages,
    slots_of,
    with_run,
    zone_name,
)
from automations.exceptions import JobNotFound, MessageNotFound, RoutineNotFound
from automations.jobs.causes import JobFacts, code_of_run, cure_of, last_not_skipped, with_owner
from automations.jobs.clock import database_now
from automations.jobs.explain import (
    Explanation,
    explain_facts,
    fault_in_words,
    gate_failed,
    undeliverable,
    why_paused,
)
from automations.jobs.stops import Stop, charged_of, is_lifted, known_problems, model_warnings, stops_of
from automations.models import CronJob, MessageStatus, RunRecord, RunState, ScheduledMessage
from automations.models.health import FAILING_AFTER, health_of
from automations.runs.describe import (
    ENDS_SLOWING,
    QueueWait,
    Slot,
    SlotState,
    describe_run,
)
from automations.runs.skips import GapReason
from automations.runs.told import cause_of, cause_of_run
from automations.schedules.schedule import AtSchedule
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import MODEL_CODES, coming_pause, paused_until
from sessions_app.connections.usable import CURES, models_of
from sessions_app.models import ConsentQuestion, ConsentState, Delivery, ExecutionState, Session
from sessions_app.models.delivery import DeliveryState
from sessions_app.reads.selectors import shown_id
from sessions_app.single_line import one_line
from sessions_app.tokens.reach import in_sessions

NEXT = 3  # coming slots of an appointment
MOST_MADE = 100  # appointments of each kind that turns made
_STATES = {MessageStatus.PENDING: "scheduled", MessageStatus.SENT: "done"}
_FAR = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Appointment(Explanation):
    """An automation, routine, heartbeat or scheduled message of a conversation.

    Instants are in `zone`. `state`: scheduled, running, paused, off, done, failed or cancelled. `session_id`: the
    conversation that shows it. `editable`: whether it has a form; a heartbeat is changed on its agent's page, and a
    message can only be cancelled. `last`: its last slots, oldest first (in an Explanation the newest is first).
    `next`: its coming slots, at most 3. `is_slowed`: to one run an hour. `will_pause`: later.
    `trouble_text`: what `trouble` says that `now` does not; then `warnings` do not say it either.
    """

    kind: str
    id: str
    zone: str
    is_failing: bool
    is_slowed: bool = False
    trouble_text: str = ""
    session_id: uuid.UUID | None
    enabled: bool
    paused_until: datetime | None
    will_pause: bool = False
    editable: bool

    @property
    def is_on(self) -> bool:
        """Whether the appointment is not paused, neither for good nor until a time."""
        return self.enabled and self.paused_until is None

    @property
    def can_switch(self) -> bool:
        """Whether it can be paused or resumed: it is neither done, nor changed elsewhere."""
        return self.editable and not (self.enabled and self.state in ("done", "failed"))

    @property
    def trouble(self) -> Slot | None:
        """The last slot that was not skipped, if it failed or needs attention."""
        last = next((each for each in reversed(self.last) if each.run_state != RunState.SKIPPED), None)
        return last if last and last.state in (SlotState.FAILED, SlotState.ATTENTION) else None


def appointments_of(user: AbstractBaseUser, session_id: uuid.UUID) -> list[Appointment]:
    """The appointments of a session, and of the primary one that a unified thread shows: failing ones first, then by
    their next slot. NotFound.

    The number of statements does not depend on the number of appointments.
    """
    sessions = {session_id, shown_id(user, session_id)}
    found = [_of_job(each) for each in job_facts(jobs_of_sessions(user, sessions))]
    now = database_now()
    texts = ScheduledMessage.objects.filter(session__owner_id=user.pk, session_id__in=sessions)
    found += [_of_message(each, now) for each in shown_messages(texts, now)]
    return sorted(found, key=lambda each: (not each.is_failing, each.next[0] if each.next else _FAR, each.id))


def appointments_made(user: AbstractBaseUser, turns: Collection[int]) -> dict[int, list[Appointment]]:
    """By turn: the user's appointments that it made and that still exist, the oldest first.

    These are stored facts: what a turn promises in words is no appointment (rule 11.8).
    """
    found: dict[int, list[Appointment]] = {}
    jobs = list(job_rows(user).filter(created_by_turn__in=turns).order_by("created_at", "pk")[:MOST_MADE])
    for facts in job_facts(jobs) if jobs else ():
        found.setdefault(facts.job.created_by_turn_id, []).append(_of_job(facts))
    rows = ScheduledMessage.objects.filter(session__owner_id=user.pk, created_by_turn__in=turns)
    rows = rows.exclude(status=MessageStatus.CANCELLED).order_by("created_at", "pk")
    texts = list(with_run(rows)[:MOST_MADE])
    if texts:
        now = database_now()
        for message in texts:
            found.setdefault(message.created_by_turn_id or 0, []).append(_of_message(message, now))
    return found


def is_of_session(user: AbstractBaseUser, session_id: uuid.UUID, kind: str, appointment_id: str) -> bool:
    """Whether the session, or the primary session that it shows, has this appointment. NotFound for the session."""
    sessions = {session_id, shown_id(user, session_id)}
    if kind == Kind.MESSAGE:
        return ScheduledMessage.objects.filter(pk=appointment_id, session_id__in=sessions).exists()
    return lives_in_sessions(user, appointment_id, sessions)


def why(user: AbstractBaseUser, kind: str, appointment_id: str) -> Explanation:
    """Explain an appointment of the user. JobNotFound, RoutineNotFound, MessageNotFound."""
    if kind == Kind.MESSAGE:
        rows = ScheduledMessage.objects.filter(
            in_sessions(user), session__owner_id=user.pk, pk=appointment_id
        )
        message = with_run(rows).first()
        if message is None:
            raise MessageNotFound
        return _of_message(message, database_now())
    missing = RoutineNotFound if kind == Kind.ROUTINE else JobNotFound
    if kind not in set(Kind):
        raise missing
    job = job_rows(user, [Kind(kind)]).filter(pk=appointment_id).first()
    if job is None:
        raise missing
    [facts] = job_facts([job])
    return explain_facts(facts)


def _of_job(facts: JobFacts) -> Appointment:
    job, until = facts.job, paused_until(facts.job)
    zone, kind = zone_or_utc(job.timezone), appointment_kind(job)
    found = vars(explain_facts(facts))
    shown = {"state": appointment_state(job), "last": found["last"][::-1], "next": found["next"][:NEXT]}
    appointment = Appointment(
        **found | shown,
        kind=kind.value,
        id=job.pk,
        zone=zone.key,
        is_failing=(is_failing(job) and not (job.enabled and _is_past(facts)))
        or bool(known_problems(job, facts.stop)),
        is_slowed=job.enabled and until is None and health_of(job).is_slowed,
        session_id=job.lives_in,
        enabled=job.enabled,
        paused_until=until and until.astimezone(zone),
        will_pause=coming_pause(job) is not None,
        editable=kind is not Kind.HEARTBEAT,
    )
    return _each_cause_once(appointment, facts)


def _each_cause_once(shown: Appointment, facts: JobFacts) -> Appointment:
    """The last trouble with its cure, unless a newer failure or what is known of the model says it."""
    slot, run = shown.trouble, facts.open_run
    if slot is None or (run is not None and run.not_before) or _is_past(facts):
        return shown
    cure = CURES.get(slot.reason, "")
    if not cure:
        return replace(shown, trouble_text=slot.text)
    if cure in shown.now:
        return shown
    others = tuple(each for each in shown.warnings if cure not in each)
    said = slot.text if others == shown.warnings else f"{slot.text} {cure}"
    return replace(shown, trouble_text=said, warnings=others)


def _is_past(facts: JobFacts) -> bool:
    """Whether its last failure stands in `before`: a cap stops it since, or stands no more that failed it."""
    last = last_not_skipped(facts)
    has_failed_last = last is not None and last.state == RunState.FAILED
    return has_failed_last and (facts.stop is not None or is_lifted(last, facts.budgets))


def _of_message(message: ScheduledMessage, now: datetime) -> Appointment:
    name, coming = zone_name(message), is_to_come(message)
    return Appointment(
        kind=Kind.MESSAGE.value,
        id=message.pk,
        name=name_of(message),
        words=AtSchedule(at=message.send_at).in_words(name),
        timezone=name,
        zone=name,
        state=_STATES.get(MessageStatus(message.status), message.status),
        is_failing=message.status == MessageStatus.FAILED,
        session_id=message.session_id,
        enabled=coming,
        paused_until=None,
        editable=False,
        last=slots_of(message, now),
        next=(message.send_at.astimezone(zone_or_utc(name)),) if coming and message.send_at > now else (),
        now=message_now(message, now),
        warnings=tuple(undeliverable(message.session)) if coming else (),
    )


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
    `code`: what it is about. `cause`: what stops others, too, which are in `also`; then `cap` says whose cap it is, and
    `needs` how many tokens a call may need. `before`: how it failed before a cap stopped it.
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


def attention(user: AbstractBaseUser, zone: tzinfo = UTC) -> list[Notice]:
    """Return the notices for the user: questions first, then appointments that are disabled, cannot run or fail, then
    undelivered answers. Their sentences are on the clock of this zone.

    At most 20 of each. The number of statements does not depend on how many there are.
    """
    now = database_now()
    latest = _latest(user)
    found = [
        *_of_each_cause(_of_jobs(user, now, zone)),
        *_of_messages(user, now, zone),
        *_questions(latest),
        *_undelivered(latest),
    ]
    by_what = {what: [each for each in found if each.what == what] for what in _ORDER}
    return [notice for what in _ORDER for notice in by_what[what][:MOST]]


def _of_each_cause(notices: Iterable[Notice]) -> Iterator[Notice]:
    """One notice of a cause that stops several appointments, which names them."""
    found: dict[Any, list[Notice]] = {}
    for each in notices:
        found.setdefault(each.cause or id(each), []).append(each)
    for group in found.values():
        first, *others = sorted(group, key=lambda each: -each.needs)
        yield replace(first, also=tuple(others))


def _of_jobs(user: AbstractBaseUser, now: datetime, zone: tzinfo) -> Iterator[Notice]:
    troubled = Q(enabled=True) | ~Q(fault="") | Q(health__paused_reason__gt="")
    jobs: list[Any] = list(job_rows(user).filter(troubled)[:MOST_JOBS])
    ended = [job.ended_run for job in jobs if has_failed(job)]
    runs = RunRecord.objects.defer("snapshot", "rendered_prompt", "prompt_variables").in_bulk(ended)
    newest, repeated = _newest_runs(jobs), _waiting_for_a_repetition(jobs)
    warnings = model_warnings(jobs)
    charged_to = charged_of(jobs, warnings)
    stops = stops_of(jobs, warnings, charged_to)
    budgets = dict(zip((job.pk for job in jobs), charged_to, strict=True))
    for job in jobs:
        if job.fault:
            yield Notice(what="disabled", text=fault_in_words(job, now), at=job.updated_at, **about_job(job))
            continue
        if why := why_paused(job):
            yield Notice(what="disabled", text=f"Paused{why}.", at=job.updated_at, **about_job(job))
            continue
        lately, stop = newest.get(job.pk, ()), stops.get(job.pk)
        known = known_problems(job, stop)
        run = repeated.get(job.pk) or (runs.get(job.ended_run) if has_failed(job) else None)
        is_past = run is not None and is_lifted(run, budgets[job.pk])
        failing = [] if is_past else [*_failing(job, run, now, zone, stop)]
        yield from _stopped(job, stop, lately, failing, zone) if stop else failing
        yield from _blind(job, lately)
        yield from _found_before(job, known, is_newer=bool(failing))
        if job.clock.next_run_at is not None and not known:
            for text in undeliverable(job.session):
                yield Notice(what="undeliverable", text=text, at=None, code="bad_channel", **about_job(job))


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
        yield Notice(what="failing", text=runs[0].error, at=runs[0].finished_at, **about_job(job))


def _found_before(job: Any, known: Iterable[Mapping[str, str]], *, is_newer: bool) -> Iterator[Notice]:
    """What preflight found. `is_newer`: a run has failed since, and says more of its model."""
    models = dict(zip(MODEL_CODES, models_of(job.agent, job.model, job.fallback_model), strict=True))
    for each in known:
        if not (is_newer and each["code"] in MODEL_CODES):
            since = datetime.fromisoformat(each["since"])
            cause = cause_of(models.get(each["code"], ""), each["code"], each["text"])
            more: dict[str, Any] = {"code": with_owner(job, each["code"]), "cause": cause}
            yield Notice(what="preflight", text=each["text"], at=since, **more, **about_job(job))


def _failing(
    job: Any, run: RunRecord | None, now: datetime, zone: tzinfo, stop: Stop | None
) -> Iterator[Notice]:
    """`run`: the last one if it failed; without it the last ones may lack something."""
    health = health_of(job)
    if run is not None and _is_current(job, run, now):
        waiting = QueueWait(next_slot=None if stop else job.clock.next_run_at)
        said = [describe_run(run, zone, waiting=waiting), cure_of(job, run)]
        said += [f"It runs at most once an hour. {ENDS_SLOWING}"] if health.is_slowed else []
        text = " ".join(filter(None, said))
        again = run.pk if run.state == RunState.FAILED and can_retry(job) else ""
        more: dict[str, Any] = {
            "run_id": again,
            "code": code_of_run(job, run),
            "cause": cause_of_run(job, run.reason) if cure_of(job, run) else "",
        }
        yield Notice(what="failing", text=text, at=run.finished_at, **more, **about_job(job))
    elif run is None and health.failures_in_a_row >= FAILING_AFTER:
        text = f"{health.failed_text}."
        yield Notice(what="failing", text=text, at=health.failing_since, **about_job(job))


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
