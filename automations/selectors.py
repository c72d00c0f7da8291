"""Reads for the API. Each starts from the user: other users' rows do not exist for them (invariant 10)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db import connection
from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    Count,
    DecimalField,
    Exists,
    F,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, Now
from django.db.models.lookups import IsNull

from agent_core.spending import MICRO
from automations.exceptions import JobNotFound, MessageNotFound, ProtectedJob, ScheduleError
from automations.models import (
    CronJob,
    ExecutionMode,
    JobClock,
    RunRecord,
    RunState,
    ScheduledMessage,
    ScheduleKind,
)
from automations.models.health import health_of
from automations.models.job import Pause
from automations.schedules.plan import schedule_of
from sessions_app.connections.prices import NO_COST, Cost, Used, costs_of
from sessions_app.connections.usable import begin_of_uncallable, models_of
from sessions_app.exceptions import NotFound
from sessions_app.models.session import NOBODY
from sessions_app.postgres.notify import JOBS
from sessions_app.postgres.pages import PagedQuery, found_in, search_newest
from sessions_app.reads.selectors import key_subquery, owned, shown_id
from sessions_app.reads.session_reads import with_deliveries
from sessions_app.spending.accounts import end_of_stop
from sessions_app.tokens.reach import in_agents, in_sessions, limit_of

MODEL_CODES = ("bad_model", "bad_fallback_model")  # of problems
IN_ANOTHER_WAY = "The last call failed in another way. Before that: "
STATES = ("scheduled", "running", "done", "failed")
_AGENT_OF_RUN = Coalesce("job__agent__name", "scheduled_message__session__agent__name")


@dataclass(frozen=True, kw_only=True)
class Health:
    """How a job's runs go. `backoff_until`: no slot before this time is run; null when it has passed.

    `paused_reason`: why the server has paused the job; empty unless it has.
    """

    failures_in_a_row: int
    backoff_until: datetime | None
    paused_reason: str
    preflight: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Automation:
    """A bound job as people see it. `state` is one of STATES; `pending`: one of its runs is queued."""

    id: str
    name: str
    message: str
    schedule: dict[str, Any]
    enabled: bool
    execution_mode: str
    overlap: str
    catch_up: str
    timeout_seconds: int | None
    ends_at: datetime | None
    max_runs: int | None
    jitter_seconds: int
    max_retry: int
    health: Health
    ping_url: str
    model: str
    fallback_model: str
    max_output_tokens: int | None
    allow_tools: list[str] | None
    gate: dict[str, Any] | None
    limits: dict[str, Any]
    zone: str  # the agent's, whose days and months count for the limits
    source: str
    next_run_at: datetime | None
    paused_from: datetime | None
    paused_until: datetime | None
    state: str
    last_status: str | None
    pending: bool
    agent: str
    session: uuid.UUID | None
    session_key: str
    created_at: datetime
    revision: int


def automations(user: AbstractBaseUser) -> QuerySet[Any]:
    """The user's bound jobs with everything that `automation_of` reads, in one statement."""
    return with_runs(CronJob.objects.filter(in_sessions(user), session__owner_id=user.pk))


def with_runs(jobs: QuerySet[CronJob]) -> QuerySet[Any]:
    """The jobs with clock, session, agent and state, and what explanations read of their runs and owner."""
    runs = RunRecord.objects.filter(job=OuterRef("pk"))
    last = runs.exclude(state=RunState.SKIPPED).order_by("-scheduled_for").values("state")[:1]
    rows = jobs.select_related("clock", "health", "preflight", "session", "agent").annotate(
        last_status=Subquery(last),
        runs_now=Exists(runs.filter(state=RunState.RUNNING)),
        pending=Exists(runs.filter(state=RunState.QUEUED)),
        owner_is_active=F("agent__owner__is_active"),
        stopped_until=end_of_stop("agent_id", "pk"),
    )
    return rows.annotate(state=_state())


def automations_of(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[Any]:
    """The jobs bound to a session, or to the primary session that it shows. NotFound."""
    return automations(user).filter(session_id__in={session_id, shown_id(user, session_id)})


def automations_of_user(user: AbstractBaseUser, wanted: Mapping[str, Any], term: str = "") -> PagedQuery[Any]:
    """The user's bound jobs in all sessions with these values of fields, in the order of creation."""
    rows: QuerySet[Any] = CronJob.objects.filter(in_sessions(user), owner_id=user.pk, session__isnull=False)
    if "state" in wanted:
        rows = with_runs(rows)
    rows = search_newest(rows, found_in(term, "name", "message"), time="created_at").filter(**wanted)
    return PagedQuery(
        parts=[rows], order=("created_at", "pk"), load=lambda ids: automations(user).filter(pk__in=ids)
    )


def automation(user: AbstractBaseUser, job_id: str) -> Automation:
    """One of the user's automations. JobNotFound."""
    if job := automations(user).filter(pk=job_id).first():
        return automation_of(job)
    raise JobNotFound


def automation_to_change(user: AbstractBaseUser, job_id: str) -> Automation:
    """One of the user's automations, to change it. JobNotFound; ProtectedJob for a system job of the user's agent."""
    own = CronJob.objects.exclude(system_event="").filter(in_agents(user), agent__owner_id=user.pk)
    if own.filter(pk=job_id).exists():
        raise ProtectedJob
    return automation(user, job_id)


def automation_of(job: Any) -> Automation:
    """A row of `automations` as people see it."""
    shown = {
        "schedule": schedule_json(job),
        "next_run_at": job.clock.next_run_at,
        **pause_shown(job),
        "health": health_shown(job),
        "agent": job.agent.name,
        "zone": job.agent.timezone,
        "session": job.session_id,
        "session_key": job.session.key,
    }
    same = {each.name: getattr(job, each.name) for each in fields(Automation) if each.name not in shown}
    return Automation(**same, **shown)


def problems_of(job: Any) -> list[dict[str, str]]:
    """The known problems that will stop the job's next run, each `{code, text, since}`; the oldest first.

    None for a paused or disabled job, whose state already says what stops it, and none about a model that is not the
    job's any more.
    """
    found = getattr(job, "preflight", None)
    if found is None or not job.enabled or job.fault or job.clock.next_run_at is None:
        return []
    models = filter(None, models_of(job.agent, job.model, job.fallback_model))
    known = tuple(map(begin_of_uncallable, models))
    return [
        {"code": each["code"], "text": _as_known(each), "since": each["since"]}
        for each in found.problems
        if each["code"] not in MODEL_CODES or each["text"].startswith(known)
    ]


def _as_known(problem: dict[str, Any]) -> str:
    """The text of a stored problem. One that an outage hides is no second cause beside the outage."""
    return f"{IN_ANOTHER_WAY if problem.get('is_old') else ''}{problem['text']}"


def health_shown(job: Any) -> Health:
    """How the job's runs go, as people see it."""
    health, now = health_of(job), datetime.now(UTC)
    until = health.backoff_until
    return Health(
        failures_in_a_row=health.failures_in_a_row,
        backoff_until=until if until is not None and until > now else None,
        paused_reason=health.paused_reason,
        preflight=tuple(problems_of(job)),
    )


def held_until(job: Any) -> datetime | None:
    """Until when the slots of a row of `with_runs` are skipped: it is slowed down, or a cap has stopped it."""
    return max(filter(None, (health_shown(job).backoff_until, job.stopped_until)), default=None)


def paused_until(job: Any) -> datetime | None:
    """The end of the pause that a person has set, while it lasts."""
    until: datetime | None = job.clock.pause_at(datetime.now(UTC))
    return until


def coming_pause(job: Any) -> Pause | None:
    """The pause that a person has set and that has not begun."""
    pause: Pause | None = job.clock.pause
    return pause if pause and pause.begin and pause.begin > datetime.now(UTC) else None


def pause_shown(job: Any) -> dict[str, datetime | None]:
    """The fields of a pause, as people see it: the begin only while it is to come, nothing once it has passed."""
    coming = coming_pause(job)
    return {
        "paused_from": coming.begin if coming else None,
        "paused_until": coming.end if coming else paused_until(job),
    }


def _state() -> Case:
    """One of STATES, for rows with `runs_now`, `pending` and `last_status`.

    A job without slots left is `failed` if it had only one run and that failed, else `done`.
    """
    had_one_run = Q(schedule_kind=ScheduleKind.AT) | Q(max_runs=1)
    failed = had_one_run & Q(last_status=RunState.FAILED)
    return Case(
        When(runs_now=True, then=Value("running")),
        When(~Q(fault=""), then=Value("failed")),
        When(
            Q(enabled=True, pending=False, clock__next_run_at__isnull=True),
            then=Case(When(failed, then=Value("failed")), default=Value("done")),
        ),
        default=Value("scheduled"),
        output_field=CharField(),
    )


def schedule_json(job: CronJob) -> dict[str, Any]:
    """The schedule as the API has it."""
    try:
        return schedule_of(job).to_json(zone=job.agent.timezone)
    except ScheduleError:  # the job is disabled with a fault; only its kind can be shown
        return {"kind": job.schedule_kind}


def runs_of(user: AbstractBaseUser, job_id: str) -> PagedQuery[Any]:
    """A job's runs. JobNotFound."""
    automation(user, job_id)
    mine = CronJob.objects.filter(pk=job_id, session__owner_id=user.pk)
    return runs_of_job(user, mine)


def runs_of_job(user: AbstractBaseUser, job: QuerySet[CronJob]) -> PagedQuery[Any]:
    """Return the runs of this one job of the user, by their slots."""
    rows = RunRecord.objects.filter(job=key_subquery(job))
    return PagedQuery(parts=[rows], order=("scheduled_for",), load=lambda ids: _runs(user).filter(pk__in=ids))


def runs_of_user(user: AbstractBaseUser, wanted: Mapping[str, Any], term: str = "") -> PagedQuery[Any]:
    """The user's runs with these values of fields, by their slots; not those of system and legacy jobs."""
    rows: QuerySet[Any] = RunRecord.objects.filter(_reached(user), owner_id=user.pk, owner_id__gt=NOBODY)
    if "agent_name" in wanted:
        rows = rows.alias(agent_name=_AGENT_OF_RUN)
    named = CronJob.objects.filter(found_in(term, "name"), owner_id=user.pk).values("pk")
    found = found_in(term, "error") | Q(job__in=named) if term else Q()
    rows = search_newest(rows, found, time="scheduled_for").filter(**wanted)
    return PagedQuery(
        parts=[rows], order=("scheduled_for", "pk"), load=lambda ids: _runs(user).filter(pk__in=ids)
    )


def shown_runs(rows: QuerySet[RunRecord]) -> QuerySet[Any]:
    """The runs with their agent, what they are of, and their deliveries.

    Of `automation_id`, `routine_id` and `scheduled_message_id` one is set.
    """
    is_bound = Q(job__execution_mode=ExecutionMode.SESSION)
    return rows.annotate(
        agent_name=_AGENT_OF_RUN,
        automation_id=Case(When(is_bound, then=F("job_id"))),
        routine_id=Case(When(~is_bound, then=F("job_id"))),
        shown_deliveries=with_deliveries("message__turn_id", OuterRef("turn_id")),
    )


def run_record(user: AbstractBaseUser, run_id: str) -> RunRecord:
    """One run. NotFound."""
    if "\x00" not in run_id and (found := _runs(user).filter(pk=run_id).first()):
        return found
    raise NotFound("there is no such run")


def _runs(user: AbstractBaseUser) -> QuerySet[RunRecord]:
    """Runs of the user's automations, routines and scheduled messages, without system and legacy jobs."""
    ours = Q(job__session__isnull=False) | ~Q(job__execution_mode=ExecutionMode.SESSION)
    rows = RunRecord.objects.filter(_reached(user))
    theirs = Q(scheduled_message__session__owner_id=user.pk)
    return shown_runs(rows.filter(Q(job__agent__owner_id=user.pk) & ours | theirs))


def _reached(user: AbstractBaseUser) -> Q:
    """Condition: runs that the token reaches."""
    limit = limit_of(user)
    if not limit:
        return Q()
    of_jobs = in_agents(user, "job__agent") if limit.session_id is None else in_sessions(user, "job__session")
    return of_jobs | in_sessions(user, "scheduled_message__session")


MOST_COUNTED = 1_000  # runs of one sum


@dataclass(frozen=True, kw_only=True)
class RunsUsage:
    """The tokens that runs used, and their cost in US dollars as far as there was a price."""

    runs: int
    input_tokens: int
    output_tokens: int
    cost: Cost = NO_COST

    @property
    def usd(self) -> str:
        """US dollars of what has a price."""
        return f"{self.cost.dollars:.6f}"

    @property
    def usd_per_run(self) -> str:
        """The same of one run on average."""
        return f"{self.cost.dollars / max(self.runs, 1):.6f}"

    @property
    def unpriced_tokens(self) -> int:
        """Tokens of models without a price."""
        return self.cost.unpriced_tokens

    @property
    def is_unknown(self) -> bool:
        """Whether nothing of it has a price."""
        return self.cost.is_partial and not self.cost.dollars

    @property
    def words(self) -> str:
        """Such as `20 runs that asked the model, 6,612 tokens read, 199 written, $0.42, $0.021 a run`."""
        tokens = f"{self.input_tokens:,} tokens read, {self.output_tokens:,} written"
        each = replace(self.cost, dollars=self.cost.dollars / max(self.runs, 1))
        cost = "cost unknown" if self.is_unknown else f"{self.cost}, {each} a run"
        return f"{self.runs:,} run{'s' * (self.runs != 1)} that asked the model, {tokens}, {cost}"


def usage_of_runs(job_id: str) -> RunsUsage:
    """Sum the usage of a job's runs in the last 30 days that asked a model, of at most the newest MOST_COUNTED runs."""
    rows = RunRecord.objects.filter(job=job_id, scheduled_for__gte=Now() - timedelta(days=30))
    newest = rows.order_by("-scheduled_for").values("pk")[:MOST_COUNTED]
    asked = RunRecord.objects.filter(pk__in=newest, usage__requests__gt=0)
    found = (
        asked.annotate(is_unpriced=IsNull(KT("usage__usd"), True))
        .values("is_unpriced", "turn__model", "job__agent__owner")
        .annotate(
            runs=Count("pk"),
            read=Sum(Cast(KT("usage__input_tokens"), BigIntegerField()), default=0),
            written=Sum(Cast(KT("usage__output_tokens"), BigIntegerField()), default=0),
            usd=Sum(Cast(KT("usage__usd"), DecimalField(max_digits=20, decimal_places=6)), default=0),
        )
    )
    groups: list[Any] = list(found.order_by())
    [cost] = costs_of([map(_used, groups)])
    return RunsUsage(
        runs=sum(each["runs"] for each in groups),
        input_tokens=sum(each["read"] for each in groups),
        output_tokens=sum(each["written"] for each in groups),
        cost=cost,
    )


def _used(group: dict[str, Any]) -> Used:
    """What runs used that one model answered; none is known of turns that are not kept."""
    return Used(
        owner_id=group["job__agent__owner"],
        model=group["turn__model"] or "",
        input_tokens=group["read"],
        output_tokens=group["written"],
        micro_usd=int(Decimal(group["usd"]) * MICRO),
    )


def scheduled_messages(user: AbstractBaseUser) -> QuerySet[ScheduledMessage]:
    """The user's scheduled messages, each with `cancelled_ids`: the messages that it replaced."""
    replaced = ScheduledMessage.objects.filter(replaced_by=OuterRef("pk")).order_by("send_at", "pk")
    return ScheduledMessage.objects.filter(in_sessions(user), session__owner_id=user.pk).annotate(
        agent_name=F("session__agent__name"), cancelled_ids=ArraySubquery(replaced.values("pk"))
    )


def scheduled_messages_of(user: AbstractBaseUser, session_id: uuid.UUID) -> PagedQuery[ScheduledMessage]:
    """The scheduled messages of a session and of the primary session that it shows. NotFound."""
    rows, shown = scheduled_messages(user), {session_id, shown_id(user, session_id)}
    parts = [rows.filter(session=owned(user, each)) for each in shown]
    return PagedQuery(parts=parts, order=("created_at", "id"))


def scheduled_message(user: AbstractBaseUser, message_id: str) -> ScheduledMessage:
    """One of the user's scheduled messages. MessageNotFound."""
    if found := scheduled_messages(user).filter(pk=message_id).first():
        return found
    raise MessageNotFound


def beats_seen() -> int:
    """How many beats listen for edits, counted by their database connections. For operators."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = %s",
            [f'LISTEN "{JOBS}"'],
        )
        return int(cursor.fetchone()[0])


def seconds_overdue() -> float:
    """How long the oldest due job or message has been waiting for beat; 0 when nothing is due. For operators."""
    jobs = JobClock.objects.filter(next_run_at__lte=Now(), inline=False)
    messages = ScheduledMessage.objects.waiting().filter(send_at__lte=Now())
    late = [
        jobs.aggregate(late=Now() - Min("next_run_at"))["late"],
        messages.aggregate(late=Now() - Min("send_at"))["late"],
    ]
    return max((float(each.total_seconds()) for each in late if each is not None), default=0.0)
