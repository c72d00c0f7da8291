"""The statement of each commit: it locks the session, ends the turn, and writes its messages and events.

It writes nothing unless the turn is RUNNING under the worker's own claim.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from django.db import models
from sqlalchemy.dialects.postgresql import JSONB

from agent_core.types import StepKind
from sessions_app.journal import next_step
from sessions_app.models import (
    Agent,
    Event,
    Message,
    Session,
    Turn,
    TurnState,
    TurnStep,
)
from sessions_app.postgres.event_statements import object_of
from sessions_app.postgres.statements import Statement, recordset, recordset_of, table
from sessions_app.queue.threads import is_redirected

_agent, _event, _message, _session = table(Agent), table(Event), table(Message), table(Session)
_step, _turn = table(TurnStep), table(Turn)
RESULT = (
    *("state", "error_code", "error", "provider_message", "error_detail"),
    *("usage", "model", "ended_by"),
)
OF_MESSAGE = ("seq", "role", "content", "model_content", "parts", "metadata")
OF_EVENT = ("agent_id", "session_id", "turn_id", "scope", "source_type", "run_id", "type", "content")


def _lock() -> Any:
    """Lock the session; select its last seq, and the primary session that shows this thread, with its last seq."""
    shown = _session.alias("shown")
    return (
        sa.select(
            _session.c.id,
            _session.c.last_seq,
            shown.c.id.label("shown_id"),
            shown.c.last_seq.label("shown_seq"),
        )
        .join(_agent, _agent.c.id == _session.c.agent_id)
        .outerjoin(shown, is_redirected(_session, _agent, shown))
        .where(_session.c.id == sa.bindparam("session_id", type_=sa.Uuid()))
        .with_for_update(key_share=True, of=_session)
        .cte("locked")
    )


def _write() -> Any:
    locked = _lock()
    ended = (
        sa.update(_turn)
        .where(
            _turn.c.id == sa.bindparam("turn_id", type_=sa.BigInteger()),
            _turn.c.session_id == locked.c.id,  # lock order: the session before the turn
            _turn.c.claim == sa.bindparam("own_claim", type_=sa.Uuid()),
            _turn.c.state == sa.literal_column(f"'{TurnState.RUNNING}'"),
        )
        .values(
            finished_at=sa.func.statement_timestamp(),
            **{name: sa.bindparam(f"new_{name}", type_=_turn.c[name].type) for name in RESULT},
        )
        .returning(_turn.c.id, *(column.label(f"of_{column.name}") for column in locked.c))
        .cte("ended")
    )
    written = _messages(ended)
    ids = sa.func.array(sa.select(written.c.id).order_by(written.c.seq).scalar_subquery())
    found = ended.c.of_last_seq.label("last_seq"), ended.c.of_shown_id.label("shown_id")
    return sa.select(*found, ids.label("message_ids")).add_cte(
        _response(ended), _advanced(ended), _events(ended)
    )


def _response(ended: Any) -> Any:
    """Append the last response to the journal, if there is one."""
    data = sa.cast(sa.bindparam("response", type_=sa.Text()), JSONB)
    row = sa.select(
        ended.c.id, next_step(ended.c.id), sa.literal_column(f"'{StepKind.RESPONSE}'"), data
    ).where(data.is_not(None))
    return (
        sa.insert(_step)
        .from_select(["turn_id", "n", "kind", "data"], row, include_defaults=False)
        .cte("response_step")
    )


def _messages(ended: Any) -> Any:
    given = recordset("messages", {name: _message.c[name].type for name in OF_MESSAGE}).subquery("new")
    seq, *more = given.c
    placed = ended.c.of_id, ended.c.id, ended.c.of_shown_seq, ended.c.of_last_seq + seq
    rows = sa.select(*placed, *more).join(given, sa.true())
    names = ["session_id", "turn_id", "shown_after_seq", *OF_MESSAGE]
    inserted = sa.insert(_message).from_select(names, rows, include_defaults=False)
    return inserted.returning(_message.c.id, _message.c.seq).cte("written")


def _advanced(ended: Any) -> Any:
    title = sa.bindparam("title", type_=sa.Text())
    return (
        sa.update(_session)
        .where(_session.c.id == ended.c.of_id)
        .values(
            revision=_session.c.revision + 1,
            last_seq=_session.c.last_seq + sa.bindparam("messages_count", type_=sa.Integer()),
            stored_bytes=_session.c.stored_bytes + sa.bindparam("stored", type_=sa.BigInteger()),
            updated_at=sa.func.now(),
            title=sa.func.coalesce(sa.func.nullif(_session.c.title, ""), title, ""),
            last_route=sa.func.coalesce(
                sa.cast(sa.bindparam("route", type_=sa.Text()), JSONB), _session.c.last_route
            ),
        )
        .cte("advanced")
    )


def _events(ended: Any) -> Any:
    given = recordset("events", {name: _event.c[name].type for name in OF_EVENT}).subquery("new_events")
    session_id = sa.func.coalesce(given.c.session_id, ended.c.of_shown_id)
    number = sa.cast(given.c.content["seq"].astext, sa.BigInteger())
    placed = given.c.content.op("||")(object_of({"seq": ended.c.of_last_seq + number}))
    content = sa.case((number.is_not(None), placed), else_=given.c.content)
    changed = {"session_id": session_id, "content": content}
    rows = sa.select(*(changed.get(name, given.c[name]) for name in OF_EVENT))
    rows = rows.join(ended, sa.true()).where(session_id.is_not(None))
    return sa.insert(_event).from_select(list(OF_EVENT), rows, include_defaults=False).cte("told")


_WRITE = Statement(_write, prepared=True)


def end_turn(
    turn: Turn,
    *,
    response: Mapping[str, Any] | None,
    messages: Sequence[Message],
    stored: int,
    title: str | None,
    route: Mapping[str, Any] | None,
    events: Sequence[Event],
) -> Any | None:
    """RUNNING, own claim → SUCCEEDED, FAILED or CANCELLED, as the turn says, with its messages and events.

    Returns `shown_id`, the primary session that shows this thread if the agent is unified, and sets the keys and seqs
    of the messages. None, and nothing is written: the state or the claim had already changed. The claim stays in the
    row, to look up a COMMIT of unknown outcome.

    Args:
        response: the last response, for the journal.
        messages: their seqs count from 1, as do those in the events' contents; `stored` is their bytes.
        title: of a session that has none.
        route: the session's new last route; None to keep it.
        events: one without a session is for the session that shows this thread, if there is one.
    """
    row = _WRITE.first(
        session_id=turn.session_id,
        turn_id=turn.pk,
        own_claim=turn.claim,
        **{f"new_{name}": getattr(turn, name) for name in RESULT} | {"new_usage": json.dumps(turn.usage)},
        response=None if response is None else json.dumps(response),
        **recordset_of("messages", _rows(messages, OF_MESSAGE)),
        stored=stored,
        title=title,
        route=None if route is None else json.dumps(route),
        **recordset_of("events", _rows(events, OF_EVENT)),
    )
    if row is None:
        return None
    for message, key in zip(messages, row.message_ids, strict=True):
        message.pk, message.seq = key, row.last_seq + message.seq
    return row


def _rows(given: Sequence[models.Model], columns: Sequence[str]) -> list[dict[str, Any]]:
    return [{name: getattr(each, name) for name in columns} for each in given]
