"""The end of a turn's runs, as one statement."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from automations.models import RunRecord, RunState
from automations.models.run import OPEN_RUNS
from sessions_app.models import Turn
from sessions_app.postgres.statements import Statement, table

_run, _turn = table(RunRecord), table(Turn)


def _text(name: str) -> Any:
    return sa.bindparam(name, type_=sa.Text())


def _json(name: str) -> Any:
    return sa.cast(_text(name), JSONB)


def _update(turn: Any) -> Any:
    """Update the run that the turn is an attempt of, or the runs that share it, while they are at this attempt."""
    own = sa.select(turn.c.origin_run.label("run_id"), turn.c.origin_attempt.label("attempt"))
    shared = _run.alias("shared")
    sharing = (
        sa.select(shared.c.run_id, shared.c.attempt)
        .join_from(turn, shared, shared.c.turn_id == turn.c.id)
        .where(turn.c.origin_run == "", shared.c.not_before.is_(None))
    )
    found = sa.union_all(own.where(turn.c.origin_run != ""), sharing).cte("runs_of_turn")
    # the keys once more as an array: a join alone may read the whole index, while the statistics say that it is empty
    keys = sa.func.array(sa.select(found.c.run_id).scalar_subquery())
    return sa.update(_run).where(
        _run.c.run_id == sa.any_(keys), _run.c.run_id == found.c.run_id, _run.c.attempt == found.c.attempt
    )


def _is(*states: RunState) -> Any:
    # not the bare column: PostgreSQL might read the index of all open runs instead of finding this one by its key, if
    # few were open when it planned
    return sa.func.coalesce(_run.c.state, sa.literal_column("''")).in_(
        [sa.literal_column(f"'{state}'") for state in states]
    )


def _end(turn: Any, *where: Any) -> Any:
    """QUEUED or RUNNING → SUCCEEDED, FAILED or CANCELLED."""
    elapsed = sa.func.extract("epoch", sa.func.now() - _run.c.started_at)  # null: it never started
    ended = _update(turn).where(_is(*OPEN_RUNS), *where)
    return ended.values(
        state=_text("run_state"),
        finished_at=sa.func.now(),
        reason=_text("run_reason"),
        error=_text("run_error"),
        provider_message=_text("run_provider_message"),
        error_detail=_text("run_error_detail"),
        response_summary=_text("run_summary"),
        usage=_json("run_usage"),
        duration_ms=sa.cast(elapsed * 1000, sa.BigInteger()),
    )


def _end_statement() -> Any:
    turn = (
        sa.select(_turn).where(_turn.c.id == sa.bindparam("turn_id", type_=sa.BigInteger())).subquery("turn")
    )
    only = _text("only")
    return _end(turn, sa.or_(only.is_(None), _run.c.run_id == only))


# ends the runs of a turn, or `only` one of those that share it
END = Statement(_end_statement)
