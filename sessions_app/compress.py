"""When a conversation grows over its budget, its older messages become task state (rule 7.6).

It is asked for after the turn's answer, journaled as a step of its own and stored with the turn's commit. Whatever
fails of it changes nothing: the context stays within its budget also without (`history.read`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Func, JSONField, Value

from agent_core import tokens
from agent_core.compress import compress, fitting
from agent_core.control import TurnControl
from agent_core.memory import Held
from agent_core.planner import live
from agent_core.types import Ending, Entry, Role, StepKind, TurnResult
from sessions_app import history, memory
from sessions_app.context import Prepared
from sessions_app.models import BACKGROUND, Message, Session

FAILED_AT = "compression_failed_at"  # of Session.variables: the newest message when one failed last
MOST_AT_ONCE = 200  # messages of one compression; the next turn goes on with the rest


@dataclass(frozen=True, kw_only=True)
class Shortened:
    """The task state from now on, in place of the one with this revision, and where the window then begins."""

    held: Held
    instead_of: int
    window_from_seq: int

    def to_json(self) -> dict[str, Any]:
        """The journal's form."""
        return {
            "held": self.held.to_json(),
            "instead_of": self.instead_of,
            "window_from_seq": self.window_from_seq,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Shortened:
        """Read what `to_json` wrote."""
        return cls(
            held=Held.from_json(data["held"]),
            instead_of=data["instead_of"],
            window_from_seq=data["window_from_seq"],
        )


def shortened(
    prepared: Prepared, result: TurnResult, control: TurnControl
) -> tuple[TurnResult, Shortened | None]:
    """The result with what the compression used, and what it came to; None: everything stays as it is."""
    if result.ending is not Ending.SUCCEEDED or not _is_long(prepared):
        return result, None
    done = next((step for step in prepared.request.steps if step.kind is StepKind.MEMORY), None)
    if done is not None:
        return result, Shortened.from_json(done.data) if "held" in done.data else None
    begin, older = _older(prepared)
    if not older or _failed_lately(prepared.session):
        return result, None
    state = memory.state_of(prepared.session.pk)
    connection.close()  # back to the pool: nothing is open while the model thinks
    made = compress(
        older,
        memory.held(state),
        live=live.all_words(),
        request=prepared.request,
        control=control,
    )
    if made is None:
        if control.signal is None:
            _note_failure(prepared)
        return result, None
    short = Shortened(held=made.held, instead_of=state.revision if state else 0, window_from_seq=begin)
    prepared.journal.record(StepKind.MEMORY, short.to_json())
    return replace(result, usage=result.usage + made.usage), short


def _failed_lately(session: Session) -> bool:
    """A try that fails costs a model call: the next one is due only after half a window of new messages."""
    failed = session.variables.get(FAILED_AT)
    return failed is not None and session.last_seq - failed < settings.RONDO_WINDOW_MESSAGES // 2


def _note_failure(prepared: Prepared) -> None:
    session = prepared.session
    noted = Value({FAILED_AT: session.last_seq}, output_field=JSONField())
    with transaction.atomic():
        prepared.journal.record(StepKind.MEMORY, {"failed": True})  # the fence, and no second try by a rescue
        Session.objects.filter(pk=session.pk).update(
            variables=Func(F("variables"), noted, template="(%(expressions)s)", arg_joiner=" || ")
        )


def _is_long(prepared: Prepared) -> bool:
    """More messages than the window, and over the threshold of tokens or so many that the oldest leave the view."""
    session = prepared.session
    count = session.last_seq - session.window_from_seq + 1
    if session.type in BACKGROUND or count <= settings.RONDO_WINDOW_MESSAGES:
        return False
    if prepared.kind.said(prepared.turn) is not None:
        return False  # it was over without a model
    if count >= history.WINDOW:
        return True
    threshold = settings.RONDO_CONTEXT_TOKENS // 2
    return sum(map(tokens.of_entry, prepared.request.history)) > threshold


def _older(prepared: Prepared) -> tuple[int, Sequence[Entry]]:
    """Where the window is to begin, with a person's or another turn's words; and what is before it, from the oldest.

    No further than the model can be shown: what it did not see must not leave the window.
    """
    session = prepared.session
    latest = session.last_seq - settings.RONDO_WINDOW_MESSAGES // 2 + 1
    rows = list(
        Message.objects.filter(
            session_id=session.pk, seq__gte=session.window_from_seq, seq__lte=latest
        ).order_by("seq")[: MOST_AT_ONCE + 1]
    )
    entries = [history.to_entry(row) for row in rows]
    for number in range(min(fitting(entries), len(rows) - 1), 0, -1):
        if rows[number].role == str(Role.USER):
            return rows[number].seq, entries[:number]
    return session.window_from_seq, ()
