"""Reads of a user for the API: how sessions and turns are shown, and which session a session shows."""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy as sa
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import QuerySet, Value
from django.db.models.functions import JSONObject, NullIf
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from agent_core.text.formats import BLANKS
from agent_core.types import Role
from sessions_app.models import (
    Agent,
    Delivery,
    Message,
    Session,
    SessionState,
    Turn,
)
from sessions_app.models.message import BY_AUTOMATION
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.rows import instances_of
from sessions_app.postgres.statements import Statement, table
from sessions_app.questions.question_reads import open_questions
from sessions_app.queue.threads import is_redirected

ACTIVE, IDLE = "active", "idle"  # states of an open session, as it is shown
LOOKED_BACK = 100  # newest messages of a history that are searched for its last visible words
LONGEST_LOOK = 1_000  # characters of a message that are read for them
DELIVERY_FIELDS = ("id", "channel", "state", "attempts")

_agent, _session, _turn = table(Agent), table(Session), table(Turn)
_message, _delivery = table(Message), table(Delivery)
_shown = _session.alias("shown")  # the session that one shows
_speaker = sa.func.coalesce(_turn.c.host_id, _turn.c.id)  # the turn that answers
_OWNER = sa.bindparam("owner", type_=sa.BigInteger())
_SESSION_IDS = sa.bindparam("ids", type_=ARRAY(sa.Uuid()))
_TURN_IDS = _turn.c.id == sa.any_(sa.bindparam("ids", type_=ARRAY(sa.BigInteger())))


def shown_sessions(owner: Any, ids: list[uuid.UUID]) -> list[Any]:
    """Return these sessions of the user, each with `agent_name`, `target_id`, `shown_seq`, `last_words`, `shown_state`
    and `waiting_size`, the bytes of its open questions.

    `target_id` is the session that it shows (see `is_redirected`). `shown_state` of an open one is active or idle.
    """
    return instances_of(Session, _SHOWN.all(owner=owner, ids=ids))


def shown_turns(owner: Any, ids: list[int]) -> list[Any]:
    """Return these turns of the user, each with `agent_name`, `reply`, the last answer of the turn (of its host, if it
    joined one), and `shown_deliveries`.
    """
    return instances_of(Turn, _TURNS.all(owner=owner, ids=ids))


def with_deliveries(message: str, of: Any) -> ArraySubquery:
    """Column: `{id, channel, state, attempts, last_error}` of each delivery whose field `message` equals `of`."""
    shown = JSONObject(**{name: name for name in DELIVERY_FIELDS}, last_error=NullIf("last_error", Value("")))
    rows = Delivery.objects.filter(**{message: of}).order_by("id")
    return ArraySubquery(rows.values(shown=shown))


def in_state(rows: QuerySet[Session], state: str, owner: Any) -> QuerySet[Session]:
    """Return a user's sessions whose `shown_state` is this one.

    The condition is not that expression: PostgreSQL would compute it for each of the user's sessions.
    """
    if state not in (ACTIVE, IDLE):
        return rows.filter(state=state)
    busy = Turn.objects.filter(owner_id=owner, state__in=OPEN_STATES).order_by().values("session")
    opened = rows.filter(state=SessionState.OPEN)
    return opened.filter(pk__in=busy) if state == ACTIVE else opened.exclude(pk__in=busy)


def _select(*columns: Any) -> Any:
    """Select these columns of some sessions of a user, of their agents and of the sessions that they show."""
    primary = _session.alias("primary_session")
    return (
        sa.select(*columns)
        .select_from(_session)
        .join(_agent, _agent.c.id == _session.c.agent_id)
        .outerjoin(primary, is_redirected(_session, _agent, primary))
        .join(_shown, _shown.c.id == sa.func.coalesce(primary.c.id, _session.c.id))
        .where(_session.c.id == sa.any_(_SESSION_IDS), _session.c.owner_id == _OWNER)
    )


def _select_shown() -> Any:
    state = sa.case(
        (_session.c.state != SessionState.OPEN, _session.c.state),
        # two probes, because each partial index covers one state only
        else_=sa.func.coalesce(_active_if("running"), _active_if("queued"), IDLE),
    )
    return _select(
        *_session.c,
        _agent.c.name.label("agent_name"),
        _shown.c.id.label("target_id"),
        _shown.c.last_seq.label("shown_seq"),
        _last_words().label("last_words"),
        state.label("shown_state"),
        _waiting_size(),
    )


def _active_if(state: str) -> Any:
    """Expression: `active` if the session has a turn in this state, else null.

    With EXISTS, or without the order of the queue's index, PostgreSQL may read the turns of all sessions at once.
    """
    turns = sa.select(sa.literal(ACTIVE)).where(
        _turn.c.session_id == _session.c.id, _turn.c.state == sa.literal_column(f"'{state}'")
    )
    return turns.order_by(_turn.c.lane, _turn.c.due_at, _turn.c.id).limit(1).scalar_subquery()


def _last_words() -> Any:
    """Expression: the beginning of the last message by a person or the assistant; null if it is too far back.

    It is searched in the history that the session shows. An automation's trigger does not count. The range of seqs
    bounds the search in a long history.
    """
    text = sa.func.left(_message.c.content, LONGEST_LOOK)
    said = sa.select(text).where(
        _message.c.session_id == _shown.c.id,
        _message.c.seq > _shown.c.last_seq - LOOKED_BACK,
        _message.c.role != sa.literal_column("'tool'"),
        sa.not_(_message.c.metadata.has_key(BY_AUTOMATION)),
        text.regexp_match(f"[^[:space:]{BLANKS}]"),
    )
    return said.order_by(_message.c.seq.desc()).limit(1).scalar_subquery()


def _waiting_size() -> Any:
    size = sa.select(sa.func.sum(open_questions(_shown.c.id).lateral("asked").c.size))
    return sa.func.coalesce(size.scalar_subquery(), 0).label("waiting_size")


def _of_reply(column: Any) -> Any:
    """Expression: this column of the last answer of a turn."""
    said = sa.select(column).where(
        _message.c.turn_id == _speaker, _message.c.role == Role.ASSISTANT, _message.c.content != ""
    )
    return said.order_by(_message.c.seq.desc()).limit(1).scalar_subquery()


def _select_turns() -> Any:
    pairs = [part for name in DELIVERY_FIELDS for part in (name, _delivery.c[name])]
    shown = sa.func.json_build_object(*pairs, "last_error", sa.func.nullif(_delivery.c.last_error, ""))
    sent = sa.select(sa.func.json_agg(aggregate_order_by(shown, _delivery.c.id)))
    sent = sent.join(_message, _message.c.id == _delivery.c.message_id).where(_message.c.turn_id == _speaker)
    deliveries = sa.func.coalesce(sent.scalar_subquery(), sa.literal_column("'[]'::json"))
    return (
        sa.select(
            *(*_turn.c, _agent.c.name.label("agent_name")),
            _of_reply(_message.c.content).label("reply"),
            deliveries.label("shown_deliveries"),
        )
        .join(_session, _session.c.id == _turn.c.session_id)
        .join(_agent, _agent.c.id == _session.c.agent_id)
        .where(_TURN_IDS, _session.c.owner_id == _OWNER)
    )


_SHOWN = Statement(_select_shown)
_TURNS = Statement(_select_turns)
TARGET = Statement(
    lambda: _select(_session.c.id.label("pk"), _session.c.agent_id, _shown.c.id.label("target_id"))
)
# the bytes of what is shown with them, by their ids
WAITING_SIZES = Statement(lambda: _select(_session.c.id, _waiting_size()))
REPLY_SIZES = Statement(
    lambda: sa.select(_turn.c.id, _of_reply(sa.func.octet_length(_message.c.content))).where(_TURN_IDS)
)
