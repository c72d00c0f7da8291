"""The statements of firing: claim what is due, queue runs with their turns, move the clocks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app import events
from sessions_app.models import EventType, Lane, OnBusy, Session, Turn, TurnKind, TurnState
from sessions_app.models.turn import OPEN_STATES
from sessions_app.publish import JOBS, publisher
from sessions_app.sql import Statement, table

_clock, _job, _run = table(JobClock), table(CronJob), table(RunRecord)
_turn, _session = table(Turn), table(Session)


@dataclass(frozen=True, kw_only=True)
class Due:
    """A claimed job with what its decision needs; `open` and `waiting` count its runs by their turns' states."""

    job: CronJob
    next_run_at: datetime
    now: datetime
    session_state: str
    session_key: str
    open: int
    waiting: int


_EMPTY = sa.cast(sa.literal_column("'{}'"), JSONB)
# NOT inline, as the partial index spells it: for "inline IS FALSE" PostgreSQL would read every clock
_IS_DUE = sa.and_(_clock.c.next_run_at <= sa.func.now(), ~_clock.c.inline)


def _claim(*which: Any) -> Statement:
    # now(), never clock_timestamp(): a volatile function cannot be an index condition
    return Statement(
        sa.select(_clock.c.job_id, _clock.c.next_run_at, sa.func.now().label("now"))
        .where(_IS_DUE, *which)
        .order_by(_clock.c.next_run_at)
        .limit(sa.bindparam("limit", type_=sa.Integer()))
        .with_for_update(skip_locked=True)
    )


CLAIM, CLAIM_ONE = _claim(), _claim(_clock.c.job_id == sa.bindparam("job_id", type_=sa.Text()))
PEEK = Statement(
    sa.select(_clock.c.job_id)
    .where(_IS_DUE)
    .order_by(_clock.c.next_run_at)
    .limit(sa.bindparam("limit", type_=sa.Integer()))
)
OPEN_RUNS = Statement(
    sa.select(
        _run.c.job_id,
        sa.func.count().label("open"),
        sa.func.count().filter(_turn.c.state == TurnState.QUEUED).label("waiting"),
    )
    .join(_turn, _turn.c.id == _run.c.turn_id)
    .where(
        _run.c.job_id == sa.any_(sa.bindparam("job_ids", type_=sa.ARRAY(sa.Text()))),
        _run.c.state.in_([sa.literal_column("'queued'"), sa.literal_column("'running'")]),
        _turn.c.state.in_([sa.literal_column(f"'{state}'") for state in OPEN_STATES]),
    )
    .group_by(_run.c.job_id)
)
NEXT = Statement(
    sa.select(
        (sa.func.extract("epoch", _clock.c.next_run_at) - sa.func.extract("epoch", sa.func.now())).label(
            "wait"
        )
    )
    .where(_clock.c.next_run_at.is_not(None), ~_clock.c.inline)
    .order_by(_clock.c.next_run_at)
    .limit(1)
)


def peek(limit: int) -> list[str]:
    """Ids of due jobs, unlocked."""
    return [row.job_id for row in PEEK.all(limit=limit)]


def seconds_to_next() -> float | None:
    """Seconds until the next job is due; None without any."""
    row = NEXT.first()
    return None if row is None else float(row.wait)


def claim(limit: int, only: str | None) -> list[Due]:
    """Lock due clocks that nobody else has, and read their jobs.

    Two statements on purpose: the second sees every edit that was committed before the clock was locked.
    """
    claimed = CLAIM.all(limit=limit) if only is None else CLAIM_ONE.all(limit=limit, job_id=only)
    if not claimed:
        return []
    ids = [row.job_id for row in claimed]
    jobs = CronJob.objects.select_related("session").in_bulk(ids)
    opened = {row.job_id: row for row in OPEN_RUNS.all(job_ids=ids)}
    return [_due(row, jobs[row.job_id], opened.get(row.job_id)) for row in claimed]


def lock_one(job_id: str) -> datetime | None:
    """Lock one due clock; its slot, or None when it is not due or in other hands."""
    row = CLAIM_ONE.first(limit=1, job_id=job_id)
    return None if row is None else row.next_run_at


def _due(row: Any, job: CronJob, opened: Any | None) -> Due:
    session = job.session
    return Due(
        job=job,
        next_run_at=row.next_run_at,
        now=row.now,
        session_state=session.state if session else "",
        session_key=session.key if session else "",
        open=opened.open if opened else 0,
        waiting=opened.waiting if opened else 0,
    )


def _queue() -> Statement:
    types: dict[str, Any] = {
        "session_id": sa.Uuid(),
        "scheduled_for": sa.DateTime(timezone=True),
        "snapshot": JSONB(),
        "metadata": JSONB(),
        "lag_ms": sa.BigInteger(),
    }
    names = [
        "run_id",
        "job_id",
        "session_id",
        "session_key",
        "scheduled_for",
        "snapshot",
        "lag_ms",
        "content",
        "metadata",
        "idempotency_key",
    ]
    columns: list[Any] = [sa.column(name, types.get(name, sa.Text())) for name in names]
    rows = sa.func.jsonb_to_recordset(sa.cast(sa.bindparam("rows", type_=sa.Text()), JSONB))
    data = rows.table_valued(*columns, name="data").render_derived(with_types=True)
    sequence = f"pg_get_serial_sequence('{_turn.name}', 'id')::regclass"
    turn_id = sa.literal_column(f"nextval({sequence})", sa.BigInteger()).label("turn_id")
    numbered = sa.select(*data.c, turn_id).cte("numbered")
    run_values = {
        **{_run.c[n].name: numbered.c[n] for n in names if n in _run.c},
        "state": sa.literal(RunState.QUEUED.value),
        "turn_id": numbered.c.turn_id,
        "attempt": sa.literal(1),
        "usage": _EMPTY,
        **{
            name: sa.literal("")
            for name in ("reason", "rendered_prompt", "error", "error_detail", "response_summary")
        },
    }
    runs = (
        insert(_run)
        .from_select(list(run_values), sa.select(*run_values.values()), include_defaults=False)
        .on_conflict_do_nothing()
        .returning(_run.c.run_id)
        .cte("new_runs")
    )
    turn_values = {
        "id": numbered.c.turn_id,
        "session_id": numbered.c.session_id,
        "kind": sa.literal(TurnKind.AUTOMATION.value),
        "lane": sa.literal(Lane.AUTO.value),
        "content": numbered.c.content,
        "metadata": numbered.c.metadata,
        "origin_run": numbered.c.run_id,
        "on_busy": sa.literal(OnBusy.ENQUEUE.value),
        "idempotency_key": numbered.c.idempotency_key,
        "state": sa.literal(TurnState.QUEUED.value),
        "due_at": numbered.c.scheduled_for,
        "origin_attempt": sa.literal(1),
        "usage": _EMPTY,
        **{name: sa.literal(0) for name in ("attempt", "rescues", "steps_at_claim")},
        **{name: sa.literal("") for name in ("error_code", "error", "error_detail")},
    }
    turns = (
        sa.insert(_turn)
        .from_select(
            list(turn_values),
            sa.select(*turn_values.values()).join(runs, runs.c.run_id == numbered.c.run_id),
            include_defaults=False,
        )
        .returning(*_turn.c)
        .cte("new_turns")
    )
    told = events.insert_from(
        turns, EventType.TURN_QUEUED, events.object_of({"text": turns.c.content, "kind": turns.c.kind})
    )
    return Statement(
        sa.select(turns.c.id, turns.c.session_id, _session.c.agent_id)
        .join(_session, _session.c.id == turns.c.session_id)
        .order_by(turns.c.id)
        .add_cte(told)
    )


QUEUE = _queue()


def queue(rows: list[dict[str, Any]]) -> list[Any]:
    """Insert runs, and for each one that is new its turn and event, in slot order; the new turns.

    A slot that has its run already is left alone: that is what makes a second beat harmless.
    """
    if not rows:
        return []
    return QUEUE.all(rows=json.dumps(sorted(rows, key=lambda row: str(row["scheduled_for"]))))


_values = (
    sa.func.unnest(
        sa.bindparam("job_ids", type_=sa.ARRAY(sa.Text())),
        sa.bindparam("nexts", type_=sa.ARRAY(sa.DateTime(timezone=True))),
        sa.bindparam("lasts", type_=sa.ARRAY(sa.DateTime(timezone=True))),
    )
    .table_valued(
        sa.column("job_id", sa.Text()),
        sa.column("next_run_at", sa.DateTime(timezone=True)),
        sa.column("last_slot", sa.DateTime(timezone=True)),
        name="moved",
    )
    .render_derived()
)
ADVANCE = Statement(
    sa.update(_clock)
    .where(_clock.c.job_id == _values.c.job_id)
    .values(
        next_run_at=_values.c.next_run_at,
        last_slot=sa.func.greatest(_clock.c.last_slot, _values.c.last_slot),
    )
)


def advance(moved: list[tuple[str, datetime | None, datetime | None]]) -> None:
    """Move clocks to (job, next_run_at, last_slot). `last_slot` never goes back."""
    job_ids, nexts, lasts = (list(column) for column in zip(*moved, strict=True))
    ADVANCE.run(job_ids=job_ids, nexts=nexts, lasts=lasts)


def plans_changed() -> None:
    """Tell every beat that a job was made, edited or brought forward; call it after the commit."""
    publisher().notify(JOBS, {"changed": True})
