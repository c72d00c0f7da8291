"""Read what became of the slots of many jobs in a range of days, each day counted, thin days slot by slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from automations.jobs.facts import RUN_COLUMNS
from automations.models import RunRecord
from sessions_app.postgres.statements import Statement, recordset, recordset_of, table

LISTED = 6  # slots of a job on a day that are listed one by one; more are folded
MOST_COUNTED = 1_500  # runs of a job on a day: a job every minute has 1,440


@dataclass(frozen=True, kw_only=True)
class Day:
    """The slots of one day, within the range that was asked for: `begin` is included, `end` is not."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, kw_only=True)
class Fold:
    """The runs of a job on one day. `states`: number of rows by state and reason; `slots`: of skipped slots."""

    first: datetime
    last: datetime
    states: Mapping[tuple[str, str], int]
    slots: int


_run = table(RunRecord)
_DAYS = {"n": sa.Integer(), "begin": sa.DateTime(timezone=True), "end": sa.DateTime(timezone=True)}
_PAIRS = {"job": sa.Text()} | _DAYS


def _of_day(given: Any) -> Any:
    return sa.and_(
        _run.c.job_id == given.c.job,
        _run.c.scheduled_for >= given.c.begin,
        _run.c.scheduled_for < given.c.end,
    )


def _counts() -> Statement:
    days = recordset("days", _DAYS).subquery("days")
    ids: Any = sa.func.unnest(sa.bindparam("job_ids", type_=sa.ARRAY(sa.Text())))
    jobs = ids.table_valued("job", name="jobs").render_derived()
    pairs = sa.select(jobs.c.job, *days.c).select_from(jobs).join(days, sa.true()).subquery("pairs")
    columns = [_run.c[name] for name in ("state", "reason", "scheduled_for", "slots_count")]
    found = sa.select(*columns).where(_of_day(pairs)).order_by(_run.c.scheduled_for).limit(MOST_COUNTED)
    rows = found.lateral("found")
    return Statement(
        sa.select(pairs.c.job, pairs.c.n, rows.c.state, rows.c.reason)
        .add_columns(
            sa.func.count().label("rows"),
            sa.func.sum(sa.func.coalesce(rows.c.slots_count, 1)).label("slots"),
            sa.func.min(rows.c.scheduled_for).label("first"),
            sa.func.max(rows.c.scheduled_for).label("last"),
        )
        .select_from(pairs)
        .join(rows, sa.true())
        .group_by(pairs.c.job, pairs.c.n, rows.c.state, rows.c.reason)
    )


def _listed() -> Statement:
    pairs = recordset("pairs", _PAIRS).subquery("pairs")
    columns = [_run.c[name] for name in RUN_COLUMNS]
    found = sa.select(*columns).where(_of_day(pairs)).order_by(_run.c.scheduled_for).limit(LISTED)
    rows = found.lateral("found")
    return Statement(sa.select(*rows.c).select_from(pairs).join(rows, sa.true()))


def _earlier() -> Statement:
    """The last run of each job before an instant, if it is a gap that reaches it."""
    since = sa.bindparam("since", type_=sa.DateTime(timezone=True))
    ids: Any = sa.func.unnest(sa.bindparam("job_ids", type_=sa.ARRAY(sa.Text())))
    jobs = ids.table_valued("job", name="jobs").render_derived()
    columns = [_run.c[name] for name in RUN_COLUMNS]
    before = sa.select(*columns).where(_run.c.job_id == jobs.c.job, _run.c.scheduled_for < since)
    last = before.order_by(_run.c.scheduled_for.desc()).limit(1).lateral("before")
    reaching = last.c.slots_to >= since
    return Statement(sa.select(*last.c).select_from(jobs).join(last, sa.true()).where(reaching))


COUNTS, LISTING, EARLIER = _counts(), _listed(), _earlier()


def past_slots(job_ids: Sequence[str], days: Sequence[Day]) -> tuple[list[Any], list[tuple[str, int, Fold]]]:
    """The runs of these jobs on these days: as rows with RUN_COLUMNS where a day has few, else one fold of the day.

    A gap that began before the first day and reaches it is among them. Three statements.
    """
    given = [
        {"n": n, "begin": day.begin.isoformat(), "end": day.end.isoformat()} for n, day in enumerate(days)
    ]
    groups: dict[tuple[str, int], list[Any]] = {}
    for row in COUNTS.all(job_ids=list(job_ids), **recordset_of("days", given)):
        groups.setdefault((row.job, row.n), []).append(row)
    thin = [{"job": job, **given[n]} for (job, n), rows in groups.items() if _total(rows) <= LISTED]
    runs = LISTING.all(**recordset_of("pairs", thin)) if thin else []
    runs += EARLIER.all(job_ids=list(job_ids), since=days[0].begin)
    return runs, [(job, n, _fold(rows)) for (job, n), rows in groups.items() if _total(rows) > LISTED]


def _total(rows: Sequence[Any]) -> int:
    return sum(row.rows for row in rows)


def _fold(rows: Sequence[Any]) -> Fold:
    return Fold(
        first=min(row.first for row in rows),
        last=max(row.last for row in rows),
        states={(row.state, row.reason): row.rows for row in rows},
        slots=int(sum(row.slots for row in rows)),
    )
