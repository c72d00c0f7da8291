"""Compression: the older messages of a long conversation become task state (rule 7.6).

The model is asked after the turn's answer. The result is a journal step of its own and is stored with the turn's
commit. If it fails nothing changes; requests stay short enough anyway (`history.fitting_entries`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import tzinfo
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Func, JSONField, Value

from agent_core.llm import tokens
from agent_core.memory.lasting_facts import FactFilter
from agent_core.memory.task_state import SaidMessage, Speaker, TaskStateData
from agent_core.planner import live
from agent_core.turn.compress import Unasked, compress, fitting
from agent_core.turn.control import TurnControl
from agent_core.types import Ending, Role, StepKind, TurnResult
from sessions_app.memory import history, task_state
from sessions_app.models import BACKGROUND, Message, Session
from sessions_app.models.message import BY_AUTOMATION
from sessions_app.single_line import one_line
from sessions_app.turns.context import Prepared

FAILED_AT = "compression_failed_at"  # in Session.variables: last_seq when a compression failed last
LONGEST_OF_RUN = 300  # characters of one message of an automation's turn
MOST_AT_ONCE = 200  # messages of one compression; the next turn handles the rest


@dataclass(frozen=True, kw_only=True)
class CompressedHistory:
    """The new task state `held`, which replaces the one with revision `instead_of`, and the new start of the window."""

    held: TaskStateData
    instead_of: int
    window_from_seq: int

    def to_json(self) -> dict[str, Any]:
        """Return the form that the journal stores."""
        return asdict(self) | {"held": self.held.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CompressedHistory:
        """Read what `to_json` wrote."""
        return cls(**data | {"held": TaskStateData.from_json(data["held"])})


def compress_history(
    prepared: Prepared, result: TurnResult, control: TurnControl
) -> CompressedHistory | None:
    """Compress the history if it is too long."""
    if result.ending is not Ending.SUCCEEDED or not _is_long(prepared):
        return None
    done = next((step for step in prepared.request.steps if step.kind is StepKind.MEMORY), None)
    if done is not None:
        return CompressedHistory.from_json(done.data) if "held" in done.data else None
    begin, older = _older_messages(prepared)
    if not older or failed_lately(prepared.session):
        return None
    state = task_state.stored_state(prepared.session.pk)
    connection.close()  # back to the pool during the model call
    try:
        held = compress(
            older,
            task_state.task_state_of(state),
            lasting=FactFilter(live=live.all_words(), things=live.all_things()),
            request=prepared.request,
            control=control,
        )
    except Unasked:
        return None
    if held is None:
        if control.signal is None:
            with transaction.atomic():
                # fenced; a rescue does not try again
                prepared.journal.record(StepKind.MEMORY, {"failed": True})
                note_failure(prepared.session)
        return None
    short = CompressedHistory(held=held, instead_of=state.revision if state else 0, window_from_seq=begin)
    prepared.journal.record(StepKind.MEMORY, short.to_json())
    return short


def failed_lately(session: Session) -> bool:
    """Whether a try failed within the last half window of messages. Each try costs a model call."""
    failed = session.variables.get(FAILED_AT)
    return failed is not None and session.last_seq - failed < settings.RONDO_WINDOW_MESSAGES // 2


def note_failure(session: Session) -> None:
    """Store that a try failed now. It runs in a transaction that is fenced."""
    failed = Value({FAILED_AT: session.last_seq}, output_field=JSONField())
    Session.objects.filter(pk=session.pk).update(
        variables=Func(F("variables"), failed, template="(%(expressions)s)", arg_joiner=" || ")
    )


def _is_long(prepared: Prepared) -> bool:
    """Whether there are more messages than the window, and they fill half of the tokens of a request, or exceed the
    number that is shown.
    """
    session = prepared.session
    count = session.last_seq - session.window_from_seq + 1
    if session.type in BACKGROUND or count <= settings.RONDO_WINDOW_MESSAGES:
        return False
    if prepared.answer is not None:
        return False  # the turn was answered without a model
    if count >= history.WINDOW:
        return True
    return sum(map(tokens.of_entry, prepared.request.history)) > prepared.room // 2


def _older_messages(prepared: Prepared) -> tuple[int, Sequence[SaidMessage]]:
    """Return the new start of the window, which is the input of a turn, and what was said before it.

    Messages that do not fit into the model's request stay in the window.
    """
    session = prepared.session
    latest = session.last_seq - settings.RONDO_WINDOW_MESSAGES // 2 + 1
    rows = history.read_messages(session.pk, session.window_from_seq, latest, most=MOST_AT_ONCE + 1)
    older = spoken_messages(rows, prepared.agent.zone)
    fits = fitting([said for _, said in older])
    beyond = older[fits][0] if fits < len(older) else session.last_seq + 1  # the first that does not fit
    for row in reversed(rows[1:]):
        if row.role == str(Role.USER) and row.seq <= beyond:
            return row.seq, [said for seq, said in older if seq < row.seq]
    return session.window_from_seq, ()


def spoken_messages(
    rows: Iterable[history.PlacedMessage | Message], zone: tzinfo
) -> list[tuple[int, SaidMessage]]:
    """Return what people, automations and the agent said, with the seqs. Tool output and hooks' posts are left out.

    The agent's answer in a turn that had read text from outside counts as from outside. Of an automation's turn only
    the beginnings are left, so that what summaries of many runs cost stays small beside the runs.
    """
    said, has_read, is_run = [], False, False
    for row in rows:
        if history.REFUSED in row.metadata:
            continue
        entry = history.to_entry(row)
        if entry.role is Role.USER:
            has_read, is_run = entry.stranger, bool(row.metadata.get(BY_AUTOMATION))
        has_read = has_read or entry.is_foreign
        if entry.role is Role.TOOL or entry.stranger:
            continue
        who = _speaker(row) if not has_read else Speaker.OUTSIDE
        calls = "".join(f" ({call.name} is called)" for call in entry.calls)
        text = f"{row.content}{calls}".strip()
        text = one_line(text, LONGEST_OF_RUN) if is_run else text
        said.append((row.seq, SaidMessage(who=who, at=row.created_at.astimezone(zone), text=text)))
    return said


def _speaker(row: history.PlacedMessage | Message) -> Speaker:
    if row.role != str(Role.USER):
        return Speaker.AGENT
    return Speaker.AUTOMATION if row.metadata.get(BY_AUTOMATION) else Speaker.PERSON
