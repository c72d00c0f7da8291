"""The statement that commits a turn: its end, the session's revision and seqs, messages, last step and events.

It locks the session first and then ends the turn, on the condition that the claim is still its own. If it finds no
such turn, it writes nothing at all. It also returns what the commit would otherwise read: whether the turn has guests,
and which session a thread shows.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by

from agent_core.types import StepKind
from sessions_app.journal import next_step
from sessions_app.models import (
    PRIMARY_KEY,
    Agent,
    Event,
    EventType,
    Message,
    Scope,
    Session,
    SessionType,
    Turn,
    TurnState,
    TurnStep,
)
from sessions_app.models.session import WEB
from sessions_app.postgres.event_statements import object_of
from sessions_app.postgres.statements import Statement, recordset, table

_session, _turn, _agent = table(Session), table(Turn), table(Agent)
_message, _event, _step = table(Message), table(Event), table(TurnStep)
_SESSION_ID = sa.bindparam("session_id", type_=sa.Uuid())
_TURN_ID = sa.bindparam("turn_id", type_=sa.BigInteger())
_COUNT = sa.bindparam("count", type_=sa.BigInteger())
_TEXT = sa.Text()
# the columns of the rows in the parameters `messages` and `events`
MESSAGE = {"role": _TEXT, "content": _TEXT, "model_content": _TEXT, "parts": JSONB(), "metadata": JSONB()}
EVENT = {"scope": _TEXT, "source_type": _TEXT, "run_id": _TEXT, "type": _TEXT, "content": JSONB()}


def _text(name: str) -> Any:
    return sa.bindparam(name, type_=sa.Text())


def _json(name: str) -> Any:
    return sa.cast(_text(name), JSONB)


def _has_guests() -> Any:
    # only the turn's own worker adds guests, so the answer stays true
    guest = _turn.alias("guest")
    return sa.exists().where(
        guest.c.session_id == _SESSION_ID,
        guest.c.host_id == _TURN_ID,
        guest.c.state == sa.literal_column(f"'{TurnState.QUEUED}'"),
    )


def _end_turn() -> Any:
    """Return a CTE: RUNNING, own claim → ended, after the session is locked.

    The claim stays in the row, to look up a COMMIT of unknown outcome.
    """
    held = sa.select(_session.c.id).where(_session.c.id == _SESSION_ID).with_for_update(key_share=True)
    locked = held.cte("locked")
    return (
        sa.update(_turn)
        .where(
            _turn.c.id == _TURN_ID,
            _turn.c.session_id == locked.c.id,
            _turn.c.claim == sa.bindparam("claim", type_=sa.Uuid()),
            _turn.c.state == sa.literal_column(f"'{TurnState.RUNNING}'"),
        )
        .values(
            state=_text("state"),
            finished_at=sa.func.statement_timestamp(),
            usage=_json("usage"),
            model=_text("model"),
            ended_by=_text("ended_by"),
            error_code=_text("error_code"),
            error=_text("error"),
            provider_message=_text("provider_message"),
            error_detail=_text("error_detail"),
        )
        .returning(_turn.c.id, _turn.c.session_id, _turn.c.origin_run, _turn.c.origin_attempt)
        .cte("ended")
    )


def _of_shown_primary(column: str) -> Any:
    """Select a column of the primary session that a thread of a unified agent shows; null for other sessions."""
    primary = _session.alias("primary_session")
    return (
        sa.select(primary.c[column])
        .join(_agent, _agent.c.id == primary.c.agent_id)
        .where(
            _session.c.type == sa.literal_column(f"'{SessionType.SUB}'"),
            _session.c.channel == sa.literal_column(f"'{WEB}'"),
            _agent.c.id == _session.c.agent_id,
            _agent.c.unified_session,
            primary.c.key == sa.literal_column(f"'{PRIMARY_KEY}'"),
        )
        .correlate(_session)
        .scalar_subquery()
    )


def _advance_session(ended: Any) -> Any:
    """Return a CTE that increases the session's revision by one and its last seq by `count`."""
    last_route = sa.func.coalesce(_json("route"), _session.c.last_route)
    title = sa.case((_session.c.title == "", _text("title")), else_=_session.c.title)
    return (
        sa.update(_session)
        .where(_session.c.id == ended.c.session_id)
        .values(
            revision=_session.c.revision + 1,
            last_seq=_session.c.last_seq + _COUNT,
            stored_bytes=_session.c.stored_bytes + sa.bindparam("stored", type_=sa.BigInteger()),
            updated_at=sa.func.statement_timestamp(),
            title=title,
            last_route=last_route,
        )
        .returning(
            _session.c.id,
            _session.c.agent_id,
            _session.c.owner_id,
            (_session.c.last_seq - _COUNT).label("seq_before"),
            _of_shown_primary("id").label("shown_in"),
            _of_shown_primary("last_seq").label("shown_after_seq"),
        )
        .cte("moved")
    )


def _insert(into: Any, columns: dict[str, Any], source: Any, *where: Any) -> Any:
    rows = sa.select(*columns.values()).select_from(source).where(*where)
    return sa.insert(into).from_select(list(columns), rows, include_defaults=False)


def _insert_messages(moved: Any) -> Any:
    said = recordset("messages", MESSAGE | {"n": sa.BigInteger()}).subquery("messages")
    columns = {
        "session_id": moved.c.id,
        "turn_id": _TURN_ID,
        "seq": moved.c.seq_before + said.c.n,
        "shown_after_seq": moved.c.shown_after_seq,
        **{name: said.c[name] for name in MESSAGE},
    }
    inserted = _insert(_message, columns, moved.join(said, sa.true()))
    return inserted.returning(_message.c.id, _message.c.seq).cte("said")


def _insert_events(moved: Any) -> Any:
    """The events in their order. An event with `message` gets the seq of the message with this number."""
    told = recordset("events", EVENT | {"message": sa.BigInteger()}).subquery("events")
    seq = object_of({"seq": moved.c.seq_before + told.c.message})
    with_seq = sa.case((told.c.message.is_not(None), told.c.content.op("||")(seq)), else_=told.c.content)
    columns = {
        "agent_id": moved.c.agent_id,
        "session_id": moved.c.id,
        "turn_id": _TURN_ID,
        **{name: told.c[name] for name in EVENT},
        "content": with_seq,
    }
    return _insert(_event, columns, moved.join(told, sa.true())).cte("told")


def _tell_of_thread(moved: Any) -> Any:
    """Windows of the session that a thread shows learn, without text, that the thread has new messages.

    The event names no turn, because the thread's turn may be deleted while the shown session is kept.
    """
    thread = object_of({"thread": sa.cast(moved.c.id, sa.Text())})
    columns = {
        "agent_id": moved.c.agent_id,
        "session_id": moved.c.shown_in,
        "scope": sa.literal_column(f"'{Scope.SESSION}'"),
        "source_type": _text("kind"),
        "run_id": _text("run_id"),
        "type": sa.literal_column(f"'{EventType.STATUS}'"),
        "content": thread.op("||")(_json("shared_runs")),
    }
    return _insert(_event, columns, moved, moved.c.shown_in.is_not(None)).cte("thread")


def _insert_answer(ended: Any) -> Any:
    """The last response, journaled in the commit itself, so that nothing can come between."""
    answer = _json("answer")
    kind: Any = sa.literal_column(f"'{StepKind.RESPONSE}'")
    columns = {"turn_id": ended.c.id, "n": next_step(ended.c.id), "kind": kind, "data": answer}
    return _insert(_step, columns, ended, answer.is_not(None)).cte("answer")


def _commit_statement() -> Any:
    ended = _end_turn()
    moved = _advance_session(ended)
    said = _insert_messages(moved)
    ids = (
        sa.select(sa.func.array_agg(aggregate_order_by(said.c.id, said.c.seq)))
        .scalar_subquery()
        .label("message_ids")
    )
    written = [_insert_answer(ended), _insert_events(moved), _tell_of_thread(moved)]
    row = sa.select(
        moved.c.seq_before,
        moved.c.shown_in,
        _has_guests().label("has_guests"),
        ids,
    )
    return row.add_cte(*written)


COMMIT = Statement(_commit_statement, prepared=True)
