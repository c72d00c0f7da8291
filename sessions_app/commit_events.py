"""What the windows are told of a turn's commit, stored in its transaction."""

from __future__ import annotations

from typing import Any

from agent_core.execution import WAITING
from agent_core.types import TurnResult
from sessions_app import events, flags
from sessions_app.models import BACKGROUND, Event, EventType, Message, Session, Turn


def _of_execution(session: Session, turn: Turn, result: TurnResult) -> list[Event]:
    """What a planned turn came to: a question that waits, or the end of the plan."""
    execution = result.execution
    if execution is None:
        return []
    about: dict[str, Any] = {"execution": execution.id, "status": str(execution.status)}
    if execution.status in WAITING:
        told = about | {"question": execution.question}
        return [events.event(turn, session.agent_id, EventType.WAITING, told)]
    return [events.event(turn, session.agent_id, EventType.DONE, about)]


def of(session: Session, messages: list[Message], ended: list[Turn], result: TurnResult) -> list[Event]:
    """Every event of a commit: what was said, what a plan came to, the end of each turn."""
    told = [
        events.event(
            ended[0],
            session.agent_id,
            EventType.MESSAGE,
            {"seq": message.seq, "role": message.role, "text": message.content, "metadata": message.metadata},
        )
        for message in messages
        if message.content
    ]
    planned = _of_execution(session, ended[0], result)
    return told + planned + [each for turn in ended for each in ends(turn, session)]


def ends(turn: Turn, session: Session) -> list[Event]:
    """A turn's end, and what every window of the agent is told of it when it ran in the background."""
    if not _is_told_everywhere(session):
        return [turn_end(turn, session.agent_id)]
    about = {"kind": turn.kind, "state": turn.state}
    everywhere = events.background(turn, session.agent_id, EventType.TURN_END, about)
    return [turn_end(turn, session.agent_id), everywhere]


def announce(session: Session) -> None:
    """Tell the windows, after the commit, that there is something to read."""
    events.announce(session.pk, session.agent_id if _is_told_everywhere(session) else None)


def _is_told_everywhere(session: Session) -> bool:
    return session.type in BACKGROUND and flags.tells_every_window()


def turn_end(turn: Turn, agent_id: int) -> Event:
    """The last event of a turn; there is exactly one."""
    return events.event(
        turn, agent_id, EventType.TURN_END, {"state": turn.state, "error": turn.error or None}
    )
