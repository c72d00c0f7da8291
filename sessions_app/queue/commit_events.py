"""The events of a turn's commit, which are stored in its transaction."""

from __future__ import annotations

import uuid
from typing import Any

from agent_core.execution import WAITING, Status
from agent_core.types import TurnResult
from sessions_app import events, flags
from sessions_app.models import BACKGROUND, Event, EventType, Message, Session, Turn


def _of_execution(session: Session, turn: Turn, result: TurnResult) -> list[Event]:
    """The event of a question that waits, or of the end of a plan."""
    execution, asked = result.execution, result.asks
    if asked is not None:
        content: dict[str, Any] = {
            "execution": asked.execution or None,
            "status": str(Status.WAITING_CONFIRMATION),
            "question_id": asked.id,
            "question": asked.text,
        }
        return [events.event(turn, session.agent_id, EventType.WAITING, content)]
    if execution is None:
        return []
    about: dict[str, Any] = {"execution": execution.id, "status": str(execution.status)}
    if execution.status in WAITING:
        about |= {"question_id": execution.question_id, "question": execution.question}
        return [events.event(turn, session.agent_id, EventType.WAITING, about)]
    return [events.event(turn, session.agent_id, EventType.DONE, about)]


def events_of_commit(
    session: Session, messages: list[Message], turn: Turn, result: TurnResult
) -> list[dict[str, Any]]:
    """Return every event of a commit as a row: its messages, the state of a plan, the end of the turn.

    `message`: the number of the message in the commit, from 1. Its seq is known only to the statement.
    """
    said = [
        _row(
            events.event(
                turn,
                session.agent_id,
                EventType.MESSAGE,
                {"role": message.role, "text": message.content, "metadata": message.metadata},
            ),
            number,
        )
        for number, message in enumerate(messages, 1)
        if message.content
    ]
    return said + [
        _row(each) for each in (*_of_execution(session, turn, result), *turn_end_events(turn, session))
    ]


def _row(event: Event, message: int | None = None) -> dict[str, Any]:
    names = ("scope", "source_type", "run_id", "type", "content")
    return {"message": message} | {name: getattr(event, name) for name in names}


def turn_end_events(turn: Turn, session: Session) -> list[Event]:
    """Return the event of a turn's end and, for a background turn, the one for every window of the agent."""
    if not _is_broadcast(session):
        return [turn_end(turn, session.agent_id)]
    about = {"kind": turn.kind, "state": turn.state}
    everywhere = events.background_event(turn, session.agent_id, EventType.TURN_END, about)
    return [turn_end(turn, session.agent_id), everywhere]


def announce_commit(session: Session, ended: list[Turn], shown_in: uuid.UUID | None = None) -> None:
    """After the commit, notify the windows that there are new events, and that these turns have ended.

    `shown_in`: the session that shows these messages, too.
    """
    events.announce(session.pk, session.agent_id if _is_broadcast(session) else None, ended)
    if shown_in is not None:
        events.announce(shown_in)


def _is_broadcast(session: Session) -> bool:
    return session.type in BACKGROUND and flags.tells_every_window()


def turn_end(turn: Turn, agent_id: int) -> Event:
    """Make the last event of a turn; there is exactly one."""
    return events.event(
        turn, agent_id, EventType.TURN_END, {"state": turn.state, "error": turn.error or None}
    )
