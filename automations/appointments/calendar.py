"""A user's past and coming slots over all conversations, bounded. Reads only."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any

import sqlalchemy as sa
from django.contrib.auth.models import AbstractBaseUser

from automations.appointments import messages
from automations.appointments.jobs import MOST_JOBS, Kind, appointment_kind, job_rows
from automations.appointments.slots import SlotState, slot_of, slot_state
from automations.jobs.clock import database_now
from automations.jobs.explain import takes_no_runs
from automations.jobs.facts import RUN_COLUMNS
from automations.models import MessageStatus, RunRecord, ScheduledMessage
from automations.runs.describe import describe_run
from automations.schedules.describe import describe_job
from automations.schedules.plan import JobPlan, plan_of
from automations.schedules.schedule import ScheduleError
from automations.schedules.zone_files import zone_or_utc
from sessions_app.exceptions import BadInput
from sessions_app.postgres.statements import Statement, recordset, recordset_of, table

MOST_ENTRIES = 500
MOST_MESSAGES = 200
LONGEST_RANGE = timedelta(days=62)
MOST_COMING = 86_400  # coming slots of a day that are counted: one each second
_TICK = timedelta(milliseconds=1)
_WORST = (SlotState.FAILED, SlotState.MISSED, SlotState.WAITING, SlotState.LATE, SlotState.SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A slot of a day, or a day's slots of one job that has many: then `count` is their number and `until` the last.

    Instants are in the caller's zone. `state`: of SlotState; for several slots the one that needs most attention.
    `count`: None for a single slot, and when there are too many to count. `run_id`: empty for a coming slot.
    """

    at: datetime
    until: datetime | None
    state: str
    text: str
    kind: str
    id: str
    name: str
    session_id: uuid.UUID | None
    title: str
    agent: str
    count: int | None = None
    run_id: str = ""
    turn_id: int | None = None


def upcoming(user: AbstractBaseUser, since: datetime, until: datetime, *, zone: tzinfo = UTC) -> list[Entry]:
    """What ran and will run from `since` to before `until`, over all sessions of the user, by time.

    At most 500 entries of 100 jobs; the first ones when there are more. A job with more than 6 slots on a day of the
    zone is one entry of that day. BadInput unless the range is positive and at most 62 days.
    """
    if not timedelta(0) < until - since <= LONGEST_RANGE:
        raise BadInput(f"the range must be positive and at most {LONGEST_RANGE.days} days", code="bad_range")
    now, days = database_now(), list(_days(since, until, zone))
    jobs = {job.pk: job for job in job_rows(user)[:MOST_JOBS]}
    entries = [*_past(jobs, days, zone)]
    for job in jobs.values():
        entries += _coming(job, days, now, zone)
    entries += _messages(user, since, until, zone)
    return sorted(entries, key=lambda each: (each.at, each.name, each.id))[:MOST_ENTRIES]


def worst_state(states: Iterable[str]) -> SlotState:
    """The state of several slots: the one that needs most attention."""
    given = set(states)
    return next((each for each in (*_WORST, SlotState.NEXT) if each in given), SlotState.RAN)


def _days(since: datetime, until: datetime, zone: tzinfo) -> Iterator[Day]:
    """The days of the zone within the range; the first and the last one may be cut."""
    begin = since
    while begin < until:
        tomorrow = begin.astimezone(zone).date() + timedelta(days=1)
        end = min(until, datetime.combine(tomorrow, time(), zone).astimezone(UTC))
        yield Day(begin=begin, end=end)
        begin = end


def _entry(job: Any, **fields: Any) -> Entry:
    return Entry(
        kind=appointment_kind(job).value,
        id=job.pk,
        name=job.name,
        session_id=job.lives_in,
        title=job.lives_title or "",
        agent=job.agent.name,
        **fields,
    )


def _past(jobs: Mapping[str, Any], days: Sequence[Day], zone: tzinfo) -> Iterator[Entry]:
    runs, folds = past_slots(list(jobs), days) if jobs else ([], [])
    for run in runs:
        slot = slot_of(run, describe_run(run, zone), zone)
        yield _entry(
            jobs[run.job_id],
            at=slot.at,
            until=slot.until,
            state=slot.state,
            text=slot.text,
            count=slot.count,
            run_id=slot.run_id,
            turn_id=slot.turn_id,
        )
    for job_id, _day, fold in folds:
        yield _folded(jobs[job_id], fold, zone)


def _folded(job: Any, fold: Fold, zone: tzinfo) -> Entry:
    """A day of a job with many runs: `every minute: 1,438 ran, 2 failed`."""
    found: dict[SlotState, int] = {}
    for (state, reason), number in fold.states.items():
        word = slot_state(RunRecord(state=state, reason=reason))
        found[word] = found.get(word, 0) + number
    worst = worst_state(state for state in found if found[state])
    parts = ", ".join(f"{found[state]:,} {state.value}" for state in SlotState if found.get(state))
    is_cut = sum(found.values()) >= MOST_COUNTED
    return _entry(
        job,
        at=fold.first.astimezone(zone),
        until=fold.last.astimezone(zone),
        state=worst.value,
        text=f"{_words(job)}: {parts}{' at least' if is_cut else ''}",
        count=None if is_cut else fold.slots,
    )


def _words(job: Any) -> str:
    return describe_job(job, zone_or_utc(job.timezone).key)


def _coming(job: Any, days: Sequence[Day], now: datetime, zone: tzinfo) -> Iterator[Entry]:
    firing = job.clock.next_run_at
    if firing is None or not job.enabled or takes_no_runs(job):
        return
    try:
        yield from _planned(job, plan_of(job, job.clock.runs_started), days, now, zone)
    except ScheduleError:  # the explanation says so
        return


def _planned(job: Any, plan: JobPlan, days: Sequence[Day], now: datetime, zone: tzinfo) -> Iterator[Entry]:
    """The coming slots of each day: one by one, or folded when a day has many. A due slot is no coming one."""
    first, left = job.clock.next_run_at, plan.runs_left
    for day in days:
        begin = max(day.begin, now + _TICK, first)
        if begin >= day.end or left == 0:
            continue
        found = _slots(plan, begin - _TICK, day.end - _TICK, first)
        number = len(found)
        if number <= LISTED:
            found = found if left is None else found[:left]
            for firing in found:
                yield _entry(job, at=firing.astimezone(zone), until=None, state="next", text=_words(job))
        else:
            after, end = begin - _TICK - plan.jitter, day.end - _TICK - plan.jitter
            counted = plan.slots.count(after, end, MOST_COMING)
            number = min(counted or MOST_COMING, MOST_COMING if left is None else left)
            last = plan.slots.last(after, end) or found[-1]
            times = f"{number:,} times" if counted else f"more than {MOST_COMING:,} times"
            yield _entry(
                job,
                at=found[0].astimezone(zone),
                until=(last + plan.jitter).astimezone(zone),
                state="next",
                text=f"{_words(job)}, {times}",
                count=number if counted else None,
            )
        left = left if left is None else max(0, left - number)


def _slots(plan: JobPlan, after: datetime, until: datetime, first: datetime) -> list[datetime]:
    """The firings in a day, up to one more than are listed. `first`: the clock's, which need not be a slot."""
    found: list[datetime] = [first] if after < first <= until else []
    slot = plan.slots.next((first if found else after) - plan.jitter)
    while slot is not None and slot + plan.jitter <= until and len(found) <= LISTED:
        found.append(slot + plan.jitter)
        slot = plan.slots.next(slot)
    return found


def _messages(user: AbstractBaseUser, since: datetime, until: datetime, zone: tzinfo) -> Iterator[Entry]:
    rows = ScheduledMessage.objects.filter(
        session__owner_id=user.pk, send_at__gte=since, send_at__lt=until
    ).exclude(status=MessageStatus.CANCELLED)
    now = datetime.now(UTC)
    found = messages.with_run(rows).order_by("send_at", "pk")
    for message in found[:MOST_MESSAGES]:
        entry = Entry(
            at=message.send_at.astimezone(zone),
            until=None,
            state=SlotState.NEXT.value,
            text=messages.message_now(message, now),
            kind=Kind.MESSAGE.value,
            id=message.pk,
            name=messages.name_of(message),
            session_id=message.session_id,
            title=message.session.title,
            agent=message.session.agent.name,
        )
        slots = messages.slots_of(message, now)
        if slots:
            slot = slots[0]
            entry = replace(entry, state=slot.state, run_id=slot.run_id, turn_id=slot.turn_id)
        yield entry


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
