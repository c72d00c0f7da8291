"""How long events, journals, turns, executions, mailbox events, deliveries, sign-in links and keys are kept.

Messages are kept for ever.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from django.conf import settings
from django.db.models import Q

from agent_core.execution import ENDED
from sessions_app.models import (
    Delivery,
    Event,
    ExecutionState,
    IdempotencyKey,
    MailboxEvent,
    Pruning,
    Session,
    SignInLink,
    StreamTicket,
    Turn,
    TurnStep,
)
from sessions_app.models.access import IDEMPOTENCY_KEPT
from sessions_app.models.process import EVENTS
from sessions_app.postgres.statements import table
from sessions_app.retention import turns
from sessions_app.retention.job_sessions import JobSessionsWalk
from sessions_app.retention.walk import (
    AgeWalk,
    OwnerWalk,
    Walk,
    age_page,
    among,
    delete_free,
    ended,
    of_owners,
    old,
    register_walk,
)

_event, _step, _turn = table(Event), table(TurnStep), table(Turn)
_mail, _delivery, _key = table(MailboxEvent), table(Delivery), table(IdempotencyKey)
_link, _ticket = table(SignInLink), table(StreamTicket)

_execution = table(ExecutionState)
_has_ended: Any = _execution.c.status.in_([sa.literal_column(f"'{status}'") for status in ENDED])

DELETE_EXECUTIONS = delete_free(
    _execution.c.id,
    # checked again, since an execution may be resumed meanwhile
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
    """Delete events, and advance the horizon by which returning windows learn that they missed some."""
    rows = DELETE_EVENTS.all(ids=ids)
    if rows:
        xid, last = max((int(row.xid), row.id) for row in rows)
        before = Q(horizon_xid__lt=xid) | Q(horizon_xid=xid, horizon_id__lt=last)
        Pruning.objects.filter(before, pk=EVENTS).update(horizon_xid=xid, horizon_id=last)
    return {row.id for row in rows}


def _remove_journals(ids: list[int]) -> set[int]:
    """Delete the whole journals that these steps belong to."""
    return {row.id for row in DELETE_JOURNALS.all(ids=ids)}


def _remover(rows: Any) -> Any:
    statement = delete_free(rows.c.id, among(rows.c.id))
    return lambda ids: {row.id for row in statement.all(ids=ids)}


def _if_set(name: str, value: int) -> dict[str, Any] | None:
    return {name: value} if value else None


_WALKS: tuple[Walk, ...] = (
    AgeWalk(
        name=EVENTS,
        days=lambda: settings.RONDO_KEEP_EVENTS_DAYS,
        page=age_page(_event, "created_at", lambda page: old(page.c.created_at)),
        remove=_remove_events,
    ),
    AgeWalk(
        name="journals",
        days=lambda: settings.RONDO_KEEP_JOURNALS_DAYS,
        page=age_page(
            _step,
            "created_at",
            lambda _: sa.and_(ended(_turn), old(_turn.c.finished_at)),
            beside=(_turn, lambda page: _turn.c.id == page.c.turn_id),
        ),
        remove=_remove_journals,
    ),
    AgeWalk(
        name="turns by age",
        days=lambda: settings.RONDO_KEEP_TURNS_DAYS,
        page=age_page(
            _turn,
            "queued_at",
            lambda page: sa.and_(ended(page), old(page.c.finished_at), page.c.host_id.is_(None)),
        ),
        remove=turns.remove_turns,
    ),
    OwnerWalk(
        name="turns by count",
        params=lambda: _if_set("keep", settings.RONDO_KEEP_TURNS_PER_SESSION),
        owners=turns.SESSIONS,
        over=turns.TOO_MANY,
        remove=turns.remove_turns,
    ),
    OwnerWalk(  # session by session, because the ids of executions have no order
        name="executions",
        params=lambda: _if_set("days", settings.RONDO_KEEP_TURNS_DAYS),
        owners=turns.SESSIONS,
        over=OLD_EXECUTIONS,
        remove=lambda ids: {row.id for row in DELETE_EXECUTIONS.all(ids=ids)},
    ),
    AgeWalk(
        name="mailbox events",
        days=lambda: settings.RONDO_KEEP_MAILBOX_DAYS,
        page=age_page(
            _mail, "created_at", lambda page: old(sa.func.coalesce(page.c.acknowledged_at, page.c.dropped_at))
        ),
        remove=_remover(_mail),
    ),
    AgeWalk(  # a dead letter has not ended: it is kept until somebody resends or closes it
        name="deliveries",
        days=lambda: settings.RONDO_KEEP_DELIVERIES_DAYS,
        page=age_page(_delivery, "created_at", lambda page: old(page.c.ended_at)),
        remove=_remover(_delivery),
    ),
    AgeWalk(
        name="idempotency keys",
        days=lambda: IDEMPOTENCY_KEPT.days,
        page=age_page(_key, "created_at", lambda page: old(page.c.created_at)),
        remove=_remover(_key),
    ),
    AgeWalk(  # a day after it was made a link has long expired
        name="sign-in links",
        days=lambda: 1,
        page=age_page(_link, "created_at", lambda page: old(page.c.expires_at)),
        remove=_remover(_link),
    ),
    AgeWalk(
        name="stream tickets",
        days=lambda: 1,
        page=age_page(_ticket, "created_at", lambda page: old(page.c.expires_at)),
        remove=_remover(_ticket),
    ),
    JobSessionsWalk(),
)


def register_walks() -> None:
    """Register the walks of this app."""
    for walk in _WALKS:
        register_walk(walk)
