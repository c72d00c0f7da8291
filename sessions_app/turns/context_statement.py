"""Read what a turn needs in one statement: its session with agent, task state, documents and newest messages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sessions_app.exceptions import NotFound
from sessions_app.memory import history
from sessions_app.models import Agent, Document, MailboxEvent, Preference, Session, TaskState
from sessions_app.postgres.rows import instance_of
from sessions_app.postgres.statements import Statement, table

_session, _agent, _task_state = table(Session), table(Agent), table(TaskState)
_PARTS: tuple[Any, ...] = (Session, Agent, TaskState)


@dataclass(frozen=True, kw_only=True)
class Context:
    """The rows that a turn reads. `preferences` are the owner's; `has_mail`: updates wait in the mailbox."""

    session: Session
    preferences: str
    documents: dict[str, str]
    has_mail: bool
    messages: list[history.StoredMessage]  # newest first


def _of_session(select: Any) -> Any:
    return select.correlate(_session).scalar_subquery()


def _select_context() -> Any:
    """Select the context of a session. Parameters: `session_id`, `most` and `of_turns`, as in `read_context`."""
    document, preference, mail = table(Document), table(Preference), table(MailboxEvent)
    documents = sa.select(sa.func.json_object_agg(document.c.name, document.c.content)).where(
        document.c.agent_id == _session.c.agent_id
    )
    preferences = sa.select(preference.c.content).where(
        preference.c.agent_id == _session.c.agent_id, preference.c.user_id == _session.c.owner_id
    )
    has_mail = sa.exists().where(
        mail.c.target_id == _session.c.id, mail.c.acknowledged_at.is_(None), mail.c.dropped_at.is_(None)
    )
    columns = [
        column.label(f"{part.name}_{column.name}")
        for part in (_session, _agent, _task_state)
        for column in part.c
    ]
    return (
        sa.select(
            *columns,
            _of_session(preferences).label("preferences"),
            _of_session(documents).label("documents"),
            has_mail.label("has_mail"),
            history.newest_messages(_session).label("messages"),
        )
        .select_from(_session)
        .join(_agent, _agent.c.id == _session.c.agent_id)
        .outerjoin(_task_state, _task_state.c.session_id == _session.c.id)
        .where(_session.c.id == sa.bindparam("session_id", type_=sa.Uuid()))
    )


CONTEXT = Statement(_select_context, prepared=True)


def read_context(
    session_id: uuid.UUID, of_turns: Mapping[str, Any], *, most: int = history.WINDOW
) -> Context:
    """Read the context of a turn, with at most `most` messages. NotFound if the session is gone.

    `of_turns`: what the metadata of a turn must contain for its messages to be read; empty: every message is.
    """
    given = json.dumps(dict(of_turns)) if of_turns else None
    row = CONTEXT.first(session_id=session_id, most=most, of_turns=given)
    if row is None:
        raise NotFound("there is no such session")
    return _context_of(row)


def _context_of(row: Sequence[Any]) -> Context:
    """Make a context of the columns of `_select_context`."""
    values = iter(row)
    session, agent, state = (
        instance_of(model, [next(values) for _ in model._meta.concrete_fields]) for model in _PARTS
    )
    session.agent = agent
    session._state.fields_cache["task_state"] = state if state.pk is not None else None
    preferences, documents, has_mail, messages = values
    return Context(
        session=session,
        preferences=preferences or "",
        documents=documents or {},
        has_mail=has_mail,
        messages=[history.StoredMessage(**each) for each in messages],
    )
