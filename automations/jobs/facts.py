"""What an explanation reads of jobs: their last runs, the open one, and what a queued run waits for.

The number of statements does not depend on the number of jobs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from django.db.models import BooleanField, Count, ExpressionWrapper, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from automations.jobs.clock import database_now
from automations.models import RunRecord, RunState
from automations.models.run import OPEN_RUNS
from automations.runs.describe import Waiting
from sessions_app.connections.usable import warnings_of_agents
from sessions_app.limits import owners
from sessions_app.models import Turn, TurnKind, TurnState
from sessions_app.postgres.statements import Statement, table

LAST = 20  # runs of a job
RUN_COLUMNS = (  # of RunRecord: what a sentence and a slot are made of
    *("run_id", "job_id", "session_id", "scheduled_for", "state", "reason", "slots_from", "slots_to"),
    *("slots_count", "attempt", "not_before", "started_at", "lag_ms", "duration_ms", "turn_id", "error"),
    "provider_message",
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
class JobFacts:
    """A row of `selectors.with_runs`, and what was read about it at `now`.

    `runs`: rows with RUN_COLUMNS of the last ones, newest first; a thousand instances of the model would cost more than
    all the rest. `open_run`: the running one, else the first queued one. `held_by`: why a due
    slot is not started, as the end of a sentence; empty: nothing holds it. `model_warnings`: why its agent's models
    cannot be called.
    """

    job: Any
    now: datetime
    runs: Sequence[Any] = ()
    open_run: Any = None
    waiting: Waiting = field(default_factory=Waiting)
    held_by: str = ""
    model_warnings: Sequence[str] = ()


def read_facts(jobs: Sequence[Any]) -> list[JobFacts]:
    """The facts of these rows of `selectors.with_runs`, in their order."""
    now, waiting = database_now(), _waiting(jobs)
    warnings = warnings_of_agents(job.agent for job in jobs)
    last: dict[str, list[Any]] = {}
    opened: dict[str, Any] = {}
    for run in _RUNS.all(job_ids=[job.pk for job in jobs]) if jobs else ():
        if run.is_open:
            opened[run.job_id] = run
        else:
            last.setdefault(run.job_id, []).append(run)
    return [
        JobFacts(
            job=job,
            now=now,
            runs=last.get(job.pk, ()),
            open_run=opened.get(job.pk),
            waiting=waiting.get(job.pk, Waiting()),
            model_warnings=warnings[job.agent_id],
        )
        for job in jobs
    ]


def _runs() -> Statement:
    """The last runs of each job, newest first, and its open run, which may be older than those."""
    run = table(RunRecord)
    ids: Any = sa.func.unnest(sa.bindparam("job_ids", type_=sa.ARRAY(sa.Text())))
    given = ids.table_valued("job_id", name="given").render_derived()
    job = given.c.job_id
    columns = [run.c[name] for name in RUN_COLUMNS]
    last = sa.select(*columns).where(run.c.job_id == job).order_by(run.c.scheduled_for.desc()).limit(LAST)
    # as in the partial index
    is_open = run.c.state.in_([sa.literal_column(f"'{state}'") for state in OPEN_RUNS])
    first = sa.select(*columns).where(run.c.job_id == job, is_open)
    first = first.order_by((run.c.state == RunState.RUNNING.value).desc(), run.c.scheduled_for).limit(1)
    found = [
        sa.select(sa.literal_column(word).label("is_open"), *rows.c).select_from(given).join(rows, sa.true())
        for word, rows in (("false", last.lateral("last")), ("true", first.lateral("opened")))
    ]
    both = sa.union_all(*found).subquery("found")
    return Statement(sa.select(*both.c).order_by(both.c.scheduled_for.desc()))


_RUNS = _runs()


def _waiting(jobs: Iterable[Any]) -> dict[str, Waiting]:
    """What the first queued turn of each job waits for in its session."""
    pending = {job.pk: job for job in jobs if job.pending}
    if not pending:
        return {}
    turns = _first_turns(pending)
    sessions = {turn.session_id for turn in turns.values()}
    running = Turn.objects.filter(session__in=sessions, state=TurnState.RUNNING)
    busy = {turn.session_id: turn for turn in running.only("session_id", "kind", "metadata", "started_at")}
    found = {job_id: _waits(turn, busy) for job_id, turn in turns.items()}
    idle = [job.pk for job in pending.values() if not job.owner_is_active]
    return found | dict.fromkeys(idle, Waiting(owner_inactive=True))


def _first_turns(job_ids: Iterable[str]) -> dict[str, Any]:
    """The first queued turn of each job, with the number of turns before it in its session."""
    own = Turn.objects.filter(
        runs__job__in=list(job_ids), runs__state=RunState.QUEUED, state=TurnState.QUEUED
    )
    mine: QuerySet[Any] = own.annotate(waiting_job=F("runs__job_id")).order_by("waiting_job", "due_at", "id")
    firsts = dict(mine.distinct("waiting_job").values_list("waiting_job", "pk"))
    queue = Turn.objects.filter(session=OuterRef("session"), state=TurnState.QUEUED, host__isnull=True)
    earlier = Q(due_at__lt=OuterRef("due_at")) | Q(due_at=OuterRef("due_at"), id__lt=OuterRef("pk"))
    turns: dict[int, Any] = Turn.objects.annotate(
        people=_count(queue.exclude(lane=OuterRef("lane"))),
        before=_count(queue.filter(earlier, lane=OuterRef("lane"))),
        behind_others=ExpressionWrapper(owners.waits_for_own_turns(), BooleanField()),
    ).in_bulk(firsts.values())
    return {job_id: turns[pk] for job_id, pk in firsts.items() if pk in turns}


def _count(rows: QuerySet[Turn]) -> Coalesce:
    """Expression: how many turns of the session these are."""
    counted = rows.order_by().values("session").annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(counted), 0)


def _waits(turn: Any, busy: dict[uuid.UUID, Turn]) -> Waiting:
    running = busy.get(turn.session_id)
    if running is not None:
        return Waiting(busy_with=_busy_with(running), busy_since=running.started_at)
    ahead = turn.people + turn.before
    return Waiting(ahead=ahead, queued_at=turn.queued_at, behind_others=turn.behind_others)


def _busy_with(turn: Turn) -> str:
    if turn.kind == TurnKind.AUTOMATION:
        return f"the automation {turn.input.automation_name!r}"
    return _BUSY_WITH[TurnKind(turn.kind)]
