"""The journal of a running turn, and the fence before each of its writes.

The fence: a write begins by reading the turn's row with its own claim, RUNNING, FOR SHARE. No row means that this
worker is stale. EXISTS is not enough: READ COMMITTED still sees the old version of a row that a rescue is changing.
"""

from __future__ import annotations

import json
from typing import Any

from django.db import transaction

from agent_core.exceptions import Stale
from agent_core.types import Step, StepKind
from sessions_app import events
from sessions_app.models import EventType, Turn, TurnStep


class Journal:
    """The steps of one claimed turn. Writes raise Stale if another worker has claimed the turn."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def steps(self, *, of_this_attempt: bool = False) -> tuple[Step, ...]:
        """Return the steps of earlier attempts, step 0 first; with `of_this_attempt` also those of this one.

        They are read after the claim, when no earlier worker can add any more.
        """
        if self.turn.attempt == 1 and not of_this_attempt:
            return ()
        rows = list(TurnStep.objects.filter(turn_id=self.turn.pk).order_by("n"))
        return tuple(Step(n=row.n, kind=StepKind(row.kind), data=row.data) for row in rows)

    def fence(self) -> None:
        """Lock the turn's row for the current transaction. Stale if the claim is not its own."""
        if not transaction.get_connection().in_atomic_block:
            raise RuntimeError("the fence needs an open transaction")
        from sessions_app.journal.journal_statements import FENCE  # late: SQLAlchemy is slow to load

        row = FENCE.first(turn_id=self.turn.pk, claim=self.turn.claim)
        if row is None:
            raise Stale
        self.turn.cancel_requested_at = row.cancel_requested_at

    def record(
        self, kind: StepKind, data: dict[str, Any], event: tuple[EventType, dict[str, Any]] | None = None
    ) -> None:
        """Append a step and its event behind the fence, in one statement."""
        from sessions_app.journal.journal_statements import RECORD  # late, as above

        params = {"event": json.dumps(event[1])} if event is not None else {}
        self._append(RECORD[event[0] if event else None], kind, data, params)
        if event is not None:
            events.announce(self.turn.session_id)

    def record_prompt(self, data: dict[str, Any], template: dict[str, Any] | None, text: str) -> None:
        """Append step 0. For a prompt from a template, its parts and text are stored in the turn's run, too."""
        from sessions_app.journal.journal_statements import RECORD, RECORD_PROMPT  # late, as above

        if template is None:
            self._append(RECORD[None], StepKind.PROMPT, data, {})
            return
        ref, variables = json.dumps(template["prompt_ref"]), json.dumps(template["variables"])
        params = {"prompt_ref": ref, "prompt_variables": variables, "prompt_text": text}
        self._append(RECORD_PROMPT, StepKind.PROMPT, data, params)

    def _append(self, statement: Any, kind: StepKind, data: dict[str, Any], params: dict[str, Any]) -> None:
        row = statement.first(
            turn_id=self.turn.pk, claim=self.turn.claim, kind=str(kind), data=json.dumps(data), **params
        )
        if row is None:
            raise Stale
        self.turn.cancel_requested_at = row.cancel_requested_at
