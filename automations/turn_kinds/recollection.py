"""Before a reflection, merge recent messages into the task states of their conversations (rule 5.6).

A conversation is compressed only when it grows long, so recent requests would be missing in the briefing. Each
conversation is read in a model call of its own, so that nothing crosses between them. Their windows do not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import structlog
from django.db import connection, transaction

from agent_core import tools
from agent_core.memory.lasting_facts import FactFilter
from agent_core.memory.task_state import SaidMessage, TaskStateData
from agent_core.planner import live
from agent_core.turn.compress import Unasked, compress, fitting
from agent_core.turn.control import TurnControl
from agent_core.types import Role, TurnRequest
from automations.heartbeats.briefing import of_conversation
from sessions_app.agents.budgets import account_of
from sessions_app.connections.usable import model_choice
from sessions_app.journal import Journal
from sessions_app.limits.policies import policy_of
from sessions_app.memory import task_state
from sessions_app.models import Agent, Message, Session, SessionState, TaskState, Turn, TurnKind
from sessions_app.turns.compression import failed_lately, note_failure, spoken_messages

MOST_CONVERSATIONS = 3  # read before one heartbeat; the others are left for the next
MOST_LOOKED_AT = 10  # conversations, as many as in a briefing
MOST_MESSAGES = 200  # of one conversation at a time

log = structlog.get_logger(__name__)


def bring_up_to_date(turn: Turn, journal: Journal, control: TurnControl) -> None:
    """Merge the newest messages of a few conversations into their task states. Stale.

    A conversation whose model call fails is left until it has half a window of new messages; until the next heartbeat
    if the call cost nothing.
    """
    asked = 0
    for session in _with_news(turn):
        if control.signal is not None or asked == MOST_CONVERSATIONS:
            break
        words = _new_words(session, _known_to(session))
        if any(row.turn is not None and row.turn.kind == TurnKind.MESSAGE for row in words):
            _read(session, words, journal, control)
            asked += 1
        elif words:
            _note(session, words[-1].seq, journal)  # no message by a person


def _with_news(turn: Turn) -> list[Session]:
    """Conversations with messages that are not in their task states, the oldest task state first."""
    conversations = of_conversation("pk", turn.session.agent_id)
    rows = Session.objects.filter(conversations, state=SessionState.OPEN)
    latest = list(
        rows.select_related("agent__owner__spending_limits", "task_state").order_by("-updated_at")[
            :MOST_LOOKED_AT
        ]
    )
    news = (row for row in latest if row.last_seq > _known_to(row) and not failed_lately(row))
    return sorted(news, key=_age)


def _known_to(session: Session) -> int:
    """The seq of the last message in the task state: the last one that a reflection read, or the last before the
    window.
    """
    state = _state_of(session)
    return max(session.window_from_seq - 1, state.read_to_seq if state else 0)


def _age(session: Session) -> datetime:
    state = _state_of(session)
    return state.updated_at if state else session.created_at


def _state_of(session: Session) -> TaskState | None:
    return getattr(session, "task_state", None)


def _read(session: Session, words: Sequence[Any], journal: Journal, control: TurnControl) -> None:
    state = _state_of(session)
    said, to_seq = _whole_turns(session, words)
    if not said:
        _note(session, to_seq, journal)
        return
    connection.close()  # back to the pool during the model call
    try:
        held = compress(
            said,
            task_state.task_state_of(state),
            lasting=FactFilter(live=live.all_words(), things=live.all_things()),
            request=_request(session.agent, journal.turn),
            control=control,
        )
    except Unasked:
        return
    if held is not None:
        _keep(session, held, to_seq, journal)
    elif control.signal is None:
        with transaction.atomic():
            note_failure(session)  # before the fence, as everywhere
            journal.fence()


def _whole_turns(session: Session, rows: Sequence[Any]) -> tuple[list[SaidMessage], int]:
    """The messages of as many whole turns as fit, and their last seq. A turn that is cut would lose the mark that it
    read text from outside.
    """
    said = spoken_messages(rows, session.agent.zone)
    fits = fitting([each for _, each in said])
    to_seq = rows[-1].seq
    if fits < len(said) or len(rows) == MOST_MESSAGES:
        beyond = said[fits][0] if fits < len(said) else to_seq
        begins = [row.seq for row in rows[1:] if row.role == str(Role.USER) and row.seq <= beyond]
        to_seq = begins[-1] - 1 if begins else to_seq
    return [each for seq, each in said[:fits] if seq <= to_seq], to_seq


def _keep(session: Session, held: TaskStateData, to_seq: int, journal: Journal) -> None:
    """Store the new task state, unless the conversation was cleared or its task state changed meanwhile."""
    state = _state_of(session)
    with transaction.atomic():
        # before the fence, as everywhere; a `/clear` with an empty task state changes only the window
        same = Session.objects.filter(pk=session.pk, window_from_seq=session.window_from_seq)
        if same.select_for_update(no_key=True).first() is None:
            return
        journal.fence()
        is_same = state is not None and held == task_state.task_state_of(state)
        if is_same or task_state.replace_state(session.pk, held, instead_of=state.revision if state else 0):
            TaskState.objects.filter(session=session).update(read_to_seq=to_seq)


def _new_words(session: Session, begin: int) -> Sequence[Any]:
    rows = Message.objects.filter(session=session, seq__gt=begin).select_related("turn").order_by("seq")
    return list(rows[:MOST_MESSAGES])


def _note(session: Session, to_seq: int, journal: Journal) -> None:
    with transaction.atomic():
        journal.fence()
        TaskState.objects.bulk_create(
            [TaskState(session=session, read_to_seq=to_seq)],
            update_conflicts=True,
            unique_fields=["session"],
            update_fields=["read_to_seq"],
        )


def _request(agent: Agent, turn: Turn) -> TurnRequest:
    """A request with this agent's model, policy and tools, which is charged to the heartbeat's turn."""
    of_user = getattr(agent.owner, "spending_limits", None)
    return TurnRequest(
        system_prompt="",
        history=(),
        message="",
        **model_choice(agent),
        policy=policy_of(agent.policy),
        account=account_of(turn, agent, of_user.limits if of_user else {}),
        tools=tuple(tool.spec() for tool in tools.all()),
    )
