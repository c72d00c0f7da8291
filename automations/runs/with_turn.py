"""Starts runs with their turns, and stores the prompts that their turns show.

Each turn of a slot needs both statements, so they are prepared; `RunTransitions` has the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from automations.models import RunRecord, RunState
from sessions_app.models import Turn
from sessions_app.postgres.statements import Statement, table

_run = table(RunRecord)
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


_START, _KEEP_PROMPT = Statement(_started, prepared=True), Statement(_prompted, prepared=True)


def start_runs(turn: Turn) -> int:
    """QUEUED → RUNNING, for the runs of the turn. The run of a resumed turn is RUNNING already, and keeps its start."""
    return _START.run(turn=turn.pk)


def keep_prompt(turn: Turn, template: Mapping[str, Any], text: str) -> int:
    """Any state → the same, with the prompt that the model is shown."""
    ref, variables = (json.dumps(template[name]) for name in ("prompt_ref", "variables"))
    return _KEEP_PROMPT.run(turn=turn.pk, ref=ref, variables=variables, text=text)
