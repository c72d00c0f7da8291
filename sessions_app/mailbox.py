"""The mailbox: what other sessions' work has to say, shown with the next turn, then acknowledged (rules 6.1, 6.2).

A deposit is one INSERT: it takes no session's lock and touches no history. Drain and acknowledgement are two halves of
one turn: step 0 of the journal names what was shown, and the commit acknowledges exactly that. A turn that fails
acknowledges nothing. Everybody locks the session before its mail, as a delete does.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from sqlalchemy.dialects.postgresql import JSONB, insert

from agent_core.strategies import Update
from sessions_app import events, flags, metrics
from sessions_app.lines import one_line
from sessions_app.models import Event, EventType, MailboxEvent, Priority, Scope, Session, Turn
from sessions_app.sql import Statement, table

MOST_EVENTS = 50  # shown with one turn
MOST_CHARACTERS = 20_000  # of all of them; what does not fit stays for the next turn
MOST_ARTIFACTS = 20  # of one, shown
LONGEST_SUMMARY = LONGEST_ARTIFACT = 200
STALE_AFTER = timedelta(hours=24)
TARGET_GONE, SUPERSEDED, STALE = "target_gone", "superseded", "stale"


@dataclass(frozen=True, kw_only=True)
class Mail:
    """What is deposited. `summary` is one sentence, `detail` the whole; the same `event_id` twice is one event.

    `dedupe_key`: an unread event of the same key gives way. `suppress_if_stale`: not worth showing after a day.
    """

    event_type: str
    summary: str
    detail: str = ""
    source_key: str = ""
    priority: Priority = Priority.NORMAL
    artifacts: tuple[str, ...] = ()
    suppress_if_stale: bool = False
    dedupe_key: str = ""
    event_id: uuid.UUID = field(default_factory=uuid.uuid4)


@dataclass(frozen=True, kw_only=True)
class Drained:
    """Events to show with a turn, urgent first; `ids` are their rows."""

    ids: tuple[int, ...]
    updates: tuple[Update, ...]


_mail, _session, _event = table(MailboxEvent), table(Session), table(Event)
_TEXT, _NOW = sa.Text(), sa.func.now()
_TARGET = sa.bindparam("target", type_=sa.Uuid())
# KEY SHARE: a commit of the target goes on beside it; its delete waits for it, or was first
_TARGETS = sa.select(_session.c.id, _session.c.agent_id).where(_session.c.id == _TARGET)
_THERE = _TARGETS.with_for_update(read=True, key_share=True)


def _stored(there: Any) -> Any:
    gone = there.c.id.is_(None)

    def text(name: str) -> Any:
        return sa.bindparam(name, type_=_TEXT)

    def words(name: str) -> Any:
        return sa.case((gone, ""), else_=text(name))  # whose they were is not known any more

    values = {
        "event_id": sa.bindparam("event_id", type_=sa.Uuid()),
        "target_id": there.c.id,
        **{name: words(name) for name in ("summary", "detail", "source_key")},
        **{name: text(name) for name in ("event_type", "dedupe_key")},
        "artifacts": sa.cast(sa.case((gone, "[]"), else_=text("artifacts")), JSONB),
        "priority": sa.bindparam("priority", type_=sa.SmallInteger()),
        "suppress_if_stale": sa.bindparam("suppress_if_stale", type_=sa.Boolean()),
        "created_at": _NOW,
        "dropped_at": sa.case((gone, _NOW)),
        "reason": sa.case((gone, TARGET_GONE), else_=""),
    }
    one = sa.select(sa.literal(1).label("one")).subquery()
    given = sa.select(*values.values()).select_from(one.outerjoin(there, sa.true()))
    return (
        insert(_mail)
        .from_select(list(values), given, include_defaults=False)
        .on_conflict_do_nothing(index_elements=["event_id"])
        .returning(_mail.c.target_id, _mail.c.event_id)
        .cte("stored")
    )


def _hinted(there: Any, stored: Any) -> Any:
    """The mark for every window of the agent, or of the session alone."""
    event_id = sa.cast(stored.c.event_id, _TEXT)
    told = events.object_of({"has_unread_background_updates": sa.true(), "event_id": event_id})
    rows = (
        sa.select(
            there.c.agent_id,
            there.c.id,
            sa.bindparam("scope", type_=_TEXT),
            sa.literal("mailbox", _TEXT),
            sa.literal("", _TEXT),
            sa.literal(EventType.STATUS.value, _TEXT),
            sa.cast(told, JSONB),
        )
        .select_from(stored)
        .join(there, there.c.id == stored.c.target_id)
        .where(sa.bindparam("hint", type_=sa.Boolean()))
    )
    names = ["agent_id", "session_id", "scope", "source_type", "run_id", "type", "content"]
    return sa.insert(_event).from_select(names, rows, include_defaults=False).cte("hinted")


def _deposit() -> Statement:
    there = _THERE.cte("there")
    stored = _stored(there)
    agent = sa.select(there.c.agent_id).scalar_subquery().label("agent_id")
    return Statement(sa.select(stored.c.target_id, agent).add_cte(_hinted(there, stored)))


IS_THERE, DEPOSIT = Statement(_THERE), _deposit()


def deposit(target_id: uuid.UUID, mail: Mail, *, hint: bool = True, or_else: uuid.UUID | None = None) -> bool:
    """Put it into the session's mailbox; False: it was there before, or the session is gone.

    `or_else`: where it goes when the session is gone (rule 4.11). `hint`: tell every window of the agent that
    something waits, not what; two flags make it fewer windows, or none.
    """
    hint, everywhere = hint and flags.hints_at_mail(), flags.tells_every_window()
    scope = Scope.AGENT if everywhere else Scope.SESSION
    with transaction.atomic():
        if or_else is not None and not _is_there(target_id):
            target_id = or_else
        if mail.dedupe_key and not _gave_way(target_id, mail):
            return False
        row = DEPOSIT.first(target=target_id, hint=hint, scope=scope.value, **_columns(mail))
        if row is None:
            transaction.set_rollback(True)  # what gave way to it, did so for nothing
            return False
        if row.target_id is None:
            return False
        events.announce(target_id, row.agent_id if hint and everywhere else None)
        metrics.count(metrics.Counted.MAILBOX_DEPOSIT)
    return True


def _columns(mail: Mail) -> dict[str, Any]:
    return {
        "event_id": mail.event_id,
        "event_type": mail.event_type,
        "summary": one_line(mail.summary, LONGEST_SUMMARY),
        "detail": mail.detail.replace("\x00", ""),
        "source_key": mail.source_key,
        "dedupe_key": mail.dedupe_key,
        "artifacts": json.dumps([each.replace("\x00", "") for each in mail.artifacts]),
        "priority": int(mail.priority),
        "suppress_if_stale": mail.suppress_if_stale,
    }


def _is_there(session_id: uuid.UUID) -> bool:
    """It is, and stays until the transaction ends."""
    return IS_THERE.first(target=session_id) is not None


def _gave_way(target_id: uuid.UUID, mail: Mail) -> bool:
    """Drop the unread event of the same key; one at a time for a key. False: this very event came before."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"rondo:mail:{target_id}:{mail.dedupe_key}"],
        )
    if MailboxEvent.objects.filter(event_id=mail.event_id).exists():
        return False
    if _is_there(target_id):
        same = unread().filter(target_id=target_id, dedupe_key=mail.dedupe_key)
        same.update(dropped_at=Now(), reason=SUPERSEDED)
    return True


def unread() -> QuerySet[MailboxEvent]:
    """What no turn has shown and nothing has dropped."""
    return MailboxEvent.objects.filter(acknowledged_at__isnull=True, dropped_at__isnull=True)


def prepare_drain(session_id: uuid.UUID) -> Drained:
    """Read what waits and fits; what does not fit stays for the next turn. What is no longer worth it is dropped.

    The first always comes, so that nothing waits for ever; if it is too long by itself, its end is cut and says so.
    """
    _drop_stale(session_id)
    waiting = unread().filter(target_id=session_id).order_by("-priority", "id")[:MOST_EVENTS]
    ids: list[int] = []
    updates: list[Update] = []
    room = MOST_CHARACTERS
    for event in waiting:
        update = _shown(event)
        room -= len(update.summary) + len(update.detail) + sum(map(len, update.artifacts))
        if updates and room < 0:
            break
        ids.append(event.pk)
        updates.append(update)
    return Drained(ids=tuple(ids), updates=tuple(updates))


def _shown(event: MailboxEvent) -> Update:
    detail, artifacts = event.detail, [_cut(str(each)) for each in event.artifacts]
    if len(detail) > MOST_CHARACTERS:
        detail = (
            f"{detail[:MOST_CHARACTERS]} … ({MOST_CHARACTERS:,} of {len(detail):,} characters;"
            f" the mailbox holds all of update {event.event_id})"
        )
    if len(artifacts) > MOST_ARTIFACTS:
        artifacts[MOST_ARTIFACTS:] = [f"and {len(artifacts) - MOST_ARTIFACTS} more"]
    return Update(
        event_type=event.event_type, summary=event.summary, detail=detail, artifacts=tuple(artifacts)
    )


def _cut(artifact: str) -> str:
    shown = one_line(artifact, LONGEST_ARTIFACT + 1)
    return shown if len(shown) <= LONGEST_ARTIFACT else f"{shown[:LONGEST_ARTIFACT]}…"


def acknowledge(turn: Turn, ids: Iterable[int]) -> None:
    """Mark events as shown by this turn; part of its commit. What was dropped meanwhile stays dropped."""
    shown = unread().filter(pk__in=list(ids)).update(acknowledged_at=Now(), acknowledged_by=turn)
    if shown:
        metrics.count(metrics.Counted.MAILBOX_DRAIN, shown)


def let_go(session_ids: list[uuid.UUID]) -> None:
    """Part of a delete: what waits is dropped with the reason and without its text, the rest goes."""
    mail = MailboxEvent.objects.filter(target_id__in=session_ids)
    waiting = mail.filter(acknowledged_at__isnull=True, dropped_at__isnull=True)
    waiting.update(
        target=None, dropped_at=Now(), reason=TARGET_GONE, summary="", detail="", artifacts=[], source_key=""
    )
    mail.delete()


def _drop_stale(session_id: uuid.UUID) -> None:
    stale = unread().filter(target_id=session_id, suppress_if_stale=True, created_at__lt=Now() - STALE_AFTER)
    stale.update(dropped_at=Now(), reason=STALE)
