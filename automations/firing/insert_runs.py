"""Insert runs with their turns and events and move the clocks in one statement, then notify windows and workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from automations.firing.due_jobs import advance_clocks, move
from automations.firing.trace_slots import trace_slots
from automations.models import CronJob, ExecutionMode, RunRecord, RunState
from automations.models.run import PINGS_KEY
from sessions_app import events
from sessions_app.hints import Hint, send
from sessions_app.models import Lane, Session, Turn
from sessions_app.models.owner import NOBODY
from sessions_app.models.turn import JOB_KEY
from sessions_app.postgres.event_statements import object_of
from sessions_app.postgres.statements import Statement, recordset, recordset_of, table
from sessions_app.queue.enqueue_statements import EMPTY, GIVEN, insert_turns

_run, _turn, _session, _job = table(RunRecord), table(Turn), table(Session), table(CronJob)
HINTS_PER_AGENT = 20  # sessions for each 100 turns; each turn that ends wakes one of the other sessions
_COLUMNS: dict[str, Any] = {
    "run_id": sa.Text(),
    "job_id": sa.Text(),
    "scheduled_message_id": sa.Text(),
    "scheduled_for": sa.DateTime(timezone=True),
    "lag_ms": sa.BigInteger(),
    "schedule": JSONB(),
    "session_id": sa.Uuid(),
    "snapshot": JSONB(),
    "kind": sa.Text(),
    "content": sa.Text(),
    "metadata": JSONB(),
}


def _given(*, only_one: bool) -> Any:
    """The parameter `rows`, each with the id of its turn. The turns of a session are numbered in slot order."""
    data = recordset("rows", _COLUMNS, only_one=only_one).subquery("data")
    # a subquery, so that the sequence is looked up once and not for each row
    sequence = f"(SELECT pg_get_serial_sequence('{_turn.name}', 'id')::regclass)"
    turn_id = sa.literal_column(f"nextval({sequence})", sa.BigInteger()).label("turn_id")
    return sa.select(*data.c, turn_id).cte("given")


def _snapshot(given: Any) -> Any:
    """What a run stores of its job, so that a later edit does not change the run."""
    names = ("name", "message", "timezone", "revision", "max_retry")
    fields = {name: _job.c[name] for name in names} | {"schedule": given.c.schedule, "policy": _policy()}
    return object_of(fields)


def _policy() -> Any:
    timeout = object_of({"timeout_seconds": _job.c.timeout_seconds})
    return _with(_job.c.policy, timeout, _job.c.timeout_seconds.is_not(None))


def _metadata(given: Any) -> Any:
    """The metadata of a job's turn: the job, the limits of the turn, and what the row adds."""
    about = {JOB_KEY: _job.c.id, "automation_name": _job.c.name, "timezone": _job.c.timezone}
    held = _with(object_of({**about, "policy": _policy()}), given.c.metadata, given.c.metadata.is_not(None))
    return _with(held, object_of({PINGS_KEY: sa.true()}), _job.c.ping_url != sa.literal_column("''"))


def _with(value: Any, more: Any, which: Any) -> Any:
    """A JSON object, and `more` where `which` is true: each `||` writes the whole object again."""
    return sa.case((which, value.op("||")(more)), else_=value)


def _filled(given: Any) -> Any:
    """The rows with what the job's row holds. A bound job's turn goes to the job's session and says its message."""
    of_job = _job.c.id.is_not(None)
    session_id = sa.func.coalesce(given.c.session_id, _job.c.session_id)
    names = ("run_id", "job_id", "scheduled_message_id", "scheduled_for", "lag_ms", "kind", "turn_id")
    # LEFT JOIN: without its job or session a row must fail, since its clock moves
    return (
        sa.select(
            *(given.c[name] for name in names),
            session_id.label("session_id"),
            _session.c.key.label("session_key"),
            _session.c.agent_id,
            _session.c.owner_id,
            sa.case((_is_shown(), _session.c.owner_id), else_=NOBODY).label("run_owner_id"),
            sa.case((of_job, _snapshot(given)), else_=given.c.snapshot).label("snapshot"),
            sa.func.coalesce(given.c.content, _job.c.message).label("content"),
            sa.case((of_job, _metadata(given)), else_=given.c.metadata).label("metadata"),
            sa.func.concat("run:", given.c.run_id, ":1").label("idempotency_key"),
        )
        .select_from(given)
        .outerjoin(_job, _job.c.id == given.c.job_id)
        .outerjoin(_session, _session.c.id == session_id)
        .cte("filled")
    )


def _is_shown() -> Any:
    """Whether users are shown the run: those of system and legacy jobs are nobody's, as the trigger decides, too."""
    in_session = _job.c.execution_mode == sa.literal_column(f"'{ExecutionMode.SESSION}'")
    return sa.or_(_job.c.id.is_(None), _job.c.session_id.is_not(None), ~in_session)


def _insert(rows: Any, **more: Any) -> Any:
    """Insert queued runs; a slot that already has a run is ignored."""
    own = ("run_id", "job_id", "scheduled_message_id", "scheduled_for", "lag_ms", "snapshot", "session_key")
    texts = ("reason", "rendered_prompt", "error", "error_detail", "response_summary")
    values = {
        **{name: rows.c[name] for name in own if name in rows.c},
        "state": sa.literal(RunState.QUEUED.value),
        "attempt": sa.literal(1),
        "usage": EMPTY,
        **{name: sa.literal("") for name in texts},
        **more,
    }
    return (
        insert(_run)
        .from_select(list(values), sa.select(*values.values()), include_defaults=False)
        .on_conflict_do_nothing()
    )


def _queue(*, only_one: bool = False) -> Any:
    filled = _filled(_given(only_one=only_one))
    runs = _insert(
        filled,
        session_id=filled.c.session_id,
        turn_id=filled.c.turn_id,
        owner_id=filled.c.run_owner_id,
    )
    new_runs = runs.returning(_run.c.run_id).cte("new_runs")
    named = {"id": filled.c.turn_id, "origin_run": filled.c.run_id, "due_at": filled.c.scheduled_for}
    given = [named[name].label(name) if name in named else filled.c[name] for name in GIVEN]
    is_new = new_runs.c.run_id == filled.c.run_id
    new = _marked(sa.select(*given, filled.c.agent_id, filled.c.owner_id).join(new_runs, is_new).subquery())
    turns, queued = insert_turns(new)
    told = sa.select(new.c.session_id, new.c.origin_run, new.c.share_of.is_(None).label("hinted"))
    return told.order_by(new.c.id).add_cte(turns, queued)


def _marked(new: Any) -> Any:
    """The new turns with `share_of`: null in the first few sessions of each agent, which get hints.

    In the other sessions it is the owner, as if the turn had been refused for want of room: see `next_lane.py`.
    """
    first = sa.func.min(new.c.id).over(partition_by=new.c.session_id)
    ordered = sa.select(*new.c, first.label("first")).subquery()
    place = sa.func.dense_rank().over(partition_by=ordered.c.agent_id, order_by=ordered.c.first)
    placed = sa.select(*ordered.c, place.label("place")).subquery()
    share_of = sa.case((placed.c.place > sa.bindparam("hinted", type_=sa.Integer()), placed.c.owner_id))
    return sa.select(*placed.c, share_of.label("share_of")).cte("new")


def _wait() -> Statement:
    """Insert runs without turns: those of inline routines, which share a turn."""
    data = recordset("rows", _COLUMNS).subquery("data")
    rows = (
        sa.select(*(data.c[name] for name in ("run_id", "job_id", "scheduled_for", "lag_ms")))
        .add_columns(_snapshot(data).label("snapshot"), sa.literal("").label("session_key"))
        .join(_job, _job.c.id == data.c.job_id)
        .subquery("filled")
    )
    return Statement(_insert(rows))


QUEUE = Statement(_queue(), prepared=True)
FIRE = Statement(_queue().add_cte(move().cte("moved")), prepared=True)
# for one run of one job, as it is mostly
FIRE_ONE = Statement(_queue(only_one=True).add_cte(move(only_one=True).cte("moved")), prepared=True)
WAIT = _wait()


def insert_runs(rows: Sequence[dict[str, Any]], clocks: Sequence[dict[str, Any]] = ()) -> list[Any]:
    """Insert runs in slot order, each with its turn and event, and move clocks. Returns what `announce_turns` takes.

    A row names a `job_id`, with its `schedule`, or a `scheduled_message_id`, with its `snapshot`. A slot that already
    has a run is ignored, so a second beat does no harm. `clocks`: as for `advance_clocks`.
    """
    if not rows:
        advance_clocks(clocks)
        return []
    given = recordset_of("rows", sorted(rows, key=lambda row: str(row["scheduled_for"])))
    given["hinted"] = HINTS_PER_AGENT * max(1, len(rows) // 100)
    if not clocks:
        return QUEUE.all(**given)
    fire = FIRE_ONE if len(rows) == len(clocks) == 1 else FIRE
    return fire.all(**given, **recordset_of("clocks", clocks))


def insert_inline_runs(rows: Sequence[dict[str, Any]]) -> None:
    """Insert the runs of inline routines, as `insert_runs` does. They have no turn yet."""
    if rows:
        WAIT.run(**recordset_of("rows", rows))


def announce_turns(queued: Sequence[Any]) -> list[Hint]:
    """After the commit, notify windows and send hints: one for each session, for a limited number of each agent's.

    Returns the hints.
    """
    trace_slots(turn.origin_run for turn in queued)
    events.announce_each(turn.session_id for turn in queued)
    sessions = dict.fromkeys(turn.session_id for turn in queued if turn.hinted)
    hints = [Hint(session_id=session_id, lane=Lane.AUTO) for session_id in sessions]
    send(hints)
    return hints


def lag_ms(late: timedelta) -> int:
    """A run's lag in milliseconds, at least 0."""
    return max(0, round(late.total_seconds() * 1000))
