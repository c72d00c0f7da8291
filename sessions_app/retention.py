"""Retention: how long events, journals, turns, executions, mailbox events, deliveries and keys are kept.

Messages stay for ever.
"""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy as sa
from django.conf import settings
from django.db.models import Q

from agent_core.execution import ENDED
from sessions_app import prune_turns
from sessions_app.models import (
    Delivery,
    Event,
    ExecutionState,
    IdempotencyKey,
    MailboxEvent,
    Pruning,
    Session,
    Turn,
    TurnStep,
)
from sessions_app.models.pruning import EVENTS
from sessions_app.once import KEPT
from sessions_app.prune import AgeWalk, OwnerWalk, register
from sessions_app.prune_sessions import JobSessionsWalk
from sessions_app.prune_sql import among, delete_free, ended, of_owners, old, window
from sessions_app.sql import table

_event, _step, _turn = table(Event), table(TurnStep), table(Turn)
_mail, _delivery, _key = table(MailboxEvent), table(Delivery), table(IdempotencyKey)

_execution = table(ExecutionState)
_has_ended: Any = _execution.c.status.in_([sa.literal_column(f"'{status}'") for status in ENDED])

DELETE_EXECUTIONS = delete_free(
    _execution.c.id,
    # one that is taken up again meanwhile is none that has ended
    sa.and_(among(_execution.c.id, sa.bindparam("ids", type_=sa.ARRAY(sa.String()))), _has_ended),
)
OLD_EXECUTIONS = of_owners(
    table(Session).c.id,
    lambda session: (
        sa.select(_execution.c.id)
        .where(_execution.c.session_id == session.c.id, _has_ended, old(_execution.c.updated_at))
        .order_by(_execution.c.created_at)
    ),
)
DELETE_EVENTS = delete_free(_event.c.id, among(_event.c.id), _event.c.xid)
DELETE_JOURNALS = delete_free(
    _step.c.id, _step.c.turn_id.in_(sa.select(_step.c.turn_id).where(among(_step.c.id)).scalar_subquery())
)


def _remove_events(ids: list[int]) -> set[int]:
    """With them goes the horizon on, by which windows that come back learn that they missed some."""
    rows = DELETE_EVENTS.all(ids=ids)
    if rows:
        xid, last = max((int(row.xid), row.id) for row in rows)
        before = Q(horizon_xid__lt=xid) | Q(horizon_xid=xid, horizon_id__lt=last)
        Pruning.objects.filter(before, pk=EVENTS).update(horizon_xid=xid, horizon_id=last)
    return {row.id for row in rows}


def _remove_journals(ids: list[int]) -> set[int]:
    """A journal goes as a whole."""
    return {row.id for row in DELETE_JOURNALS.all(ids=ids)}


def _remover(rows: Any) -> Any:
    statement = delete_free(rows.c.id, among(rows.c.id))
    return lambda ids: {row.id for row in statement.all(ids=ids)}


def _events() -> AgeWalk:
    return AgeWalk(
        name=EVENTS,
        days=lambda: settings.RONDO_KEEP_EVENTS_DAYS,
        window=window(_event, "created_at", lambda page: old(page.c.created_at)),
        remove=_remove_events,
    )


def _journals() -> AgeWalk:
    beside = (_turn, lambda page: _turn.c.id == page.c.turn_id)
    return AgeWalk(
        name="journals",
        days=lambda: settings.RONDO_KEEP_JOURNALS_DAYS,
        window=window(_step, "created_at", lambda _: sa.and_(ended(_turn), old(_turn.c.finished_at)), beside),
        remove=_remove_journals,
    )


def _old_turns() -> AgeWalk:
    return AgeWalk(
        name="turns by age",
        days=lambda: settings.RONDO_KEEP_TURNS_DAYS,
        window=window(
            _turn,
            "queued_at",
            lambda page: sa.and_(ended(page), old(page.c.finished_at), page.c.host_id.is_(None)),
        ),
        remove=prune_turns.remove,
    )


def _too_many_turns() -> OwnerWalk:
    def params() -> dict[str, Any] | None:
        keep = settings.RONDO_KEEP_TURNS_PER_SESSION
        return {"keep": keep} if keep else None

    return OwnerWalk(
        name="turns by count",
        params=params,
        owners=prune_turns.SESSIONS,
        first=str(uuid.UUID(int=0)),
        read_key=uuid.UUID,
        over=prune_turns.TOO_MANY,
        remove=prune_turns.remove,
    )


def _executions() -> OwnerWalk:
    """Session by session: their ids are of no order."""

    def params() -> dict[str, Any] | None:
        days = settings.RONDO_KEEP_TURNS_DAYS
        return {"days": days} if days else None

    return OwnerWalk(
        name="executions",
        params=params,
        owners=prune_turns.SESSIONS,
        first=str(uuid.UUID(int=0)),
        read_key=uuid.UUID,
        over=OLD_EXECUTIONS,
        remove=lambda ids: {row.id for row in DELETE_EXECUTIONS.all(ids=ids)},
    )


def _mailbox() -> AgeWalk:
    return AgeWalk(
        name="mailbox events",
        days=lambda: settings.RONDO_KEEP_MAILBOX_DAYS,
        window=window(
            _mail,
            "created_at",
            lambda page: old(sa.func.coalesce(page.c.acknowledged_at, page.c.dropped_at)),
        ),
        remove=_remover(_mail),
    )


def _deliveries() -> AgeWalk:
    return AgeWalk(
        name="deliveries",
        days=lambda: settings.RONDO_KEEP_DELIVERIES_DAYS,
        window=window(
            _delivery,
            "created_at",
            lambda page: old(page.c.ended_at),  # a dead letter stays until somebody sends or closes it
        ),
        remove=_remover(_delivery),
    )


def _keys() -> AgeWalk:
    return AgeWalk(
        name="idempotency keys",
        days=lambda: KEPT.days,
        window=window(_key, "created_at", lambda page: old(page.c.created_at)),
        remove=_remover(_key),
    )


def register_all() -> None:
    """Have maintenance prune what lies in this app."""
    for walk in (
        _events(), _journals(), _old_turns(), _too_many_turns(), _executions(), _mailbox(), _deliveries(), _keys()
    ):  # fmt: skip
        register(walk)
    register(JobSessionsWalk())
