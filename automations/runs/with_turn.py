"""Starts runs with their turns, stores the prompts that their turns show, and ends runs that go well at once.

Each turn of a slot needs these statements, so they are prepared; `RunTransitions` has the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from agent_core.types import Usage
from automations.models import JobHealth, RunRecord, RunState
from sessions_app.models import Turn
from sessions_app.postgres.statements import Statement, table

_health, _run = table(JobHealth), table(RunRecord)
# the run of the turn, or the runs that share it, unless another attempt is to follow
_of_turn = sa.and_(_run.c.turn_id == sa.bindparam("turn", type_=sa.BigInteger()), _run.c.not_before.is_(None))


def _started() -> Any:
    is_queued = _run.c.state == sa.literal_column(f"'{RunState.QUEUED}'")
    # not by the state: PostgreSQL might read the index of all open runs instead of finding these by their turn
    return (
        sa.update(_run)
        .where(_of_turn, _run.c.finished_at.is_(None))
        .values(
            state=sa.literal_column(f"'{RunState.RUNNING}'"),
            started_at=sa.case((is_queued, sa.func.statement_timestamp()), else_=_run.c.started_at),
        )
    )


def _prompted() -> Any:
    return (
        sa.update(_run)
        .where(_of_turn)
        .values(
            prompt_ref=sa.cast(sa.bindparam("ref", type_=sa.Text()), JSONB),
            prompt_variables=sa.cast(sa.bindparam("variables", type_=sa.Text()), JSONB),
            rendered_prompt=sa.bindparam("text", type_=sa.Text()),
        )
    )


def _ended_well() -> Any:
    nothing_wrong = sa.and_(
        _health.c.failures_in_a_row == sa.literal_column("0"), _health.c.told == sa.literal_column("''")
    )
    well = sa.select(nothing_wrong).where(_health.c.job_id == _run.c.job_id)
    is_well = sa.func.coalesce(well.scalar_subquery(), sa.true())
    has_used_nothing = _run.c.usage == sa.literal_column("'{}'::jsonb")
    now = sa.func.statement_timestamp()
    blank = ("reason", "error", "provider_message", "error_detail", "attention")
    seen = sa.cast(sa.bindparam("gate_seen", type_=sa.Text()), JSONB)
    return (
        sa.update(_run)
        .where(_of_turn, _run.c.finished_at.is_(None), is_well, has_used_nothing)
        .values(
            state=sa.literal_column(f"'{RunState.SUCCEEDED}'"),
            finished_at=now,
            duration_ms=sa.cast(sa.func.extract("epoch", now - _run.c.started_at) * 1000, sa.BigInteger()),
            response_summary=sa.bindparam("summary", type_=sa.Text()),
            usage=sa.cast(sa.bindparam("used", type_=sa.Text()), JSONB),
            gate_seen=sa.func.coalesce(seen, _run.c.gate_seen),
            **dict.fromkeys(blank, sa.literal_column("''")),
        )
    )


_START, _KEEP_PROMPT = Statement(_started, prepared=True), Statement(_prompted, prepared=True)
_END_WELL = Statement(_ended_well, prepared=True)


def start_runs(turn: Turn) -> int:
    """QUEUED → RUNNING, for the runs of the turn. The run of a resumed turn is RUNNING already, and keeps its start."""
    return _START.run(turn=turn.pk)


def keep_prompt(turn: Turn, template: Mapping[str, Any], text: str) -> int:
    """Any state → the same, with the prompt that the model is shown."""
    ref, variables = (json.dumps(template[name]) for name in ("prompt_ref", "variables"))
    return _KEEP_PROMPT.run(turn=turn.pk, ref=ref, variables=variables, text=text)


def end_runs_well(turn: Turn, used: Usage, summary: str, gate_seen: Mapping[str, Any] | None) -> int:
    """QUEUED or RUNNING → SUCCEEDED, for the runs of the turn that have used nothing before and whose jobs are well.

    Args:
        used: the whole turn's usage, or an equal part of it if the turn is of several runs.
        gate_seen: what the gate of the job remembers; None: as before.
    """
    return _END_WELL.run(
        turn=turn.pk,
        used=json.dumps(used.to_json()),
        summary=summary,
        gate_seen=None if gate_seen is None else json.dumps(gate_seen),
    )
