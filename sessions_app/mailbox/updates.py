"""The mailbox of a session: updates from other sessions' work, shown with the next turn (rules 6.1, 6.2).

A deposit is one INSERT: it takes no session lock and changes no history. Step 0 of a turn's journal lists the updates
that were shown, and the turn's commit acknowledges exactly those. A failed turn acknowledges nothing. Everybody
locks the session before its mailbox events.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from agent_core.strategies import Update
from sessions_app import events, flags, metrics
from sessions_app.models import (
    PRIMARY_KEY,
    Agent,
    MailboxEvent,
    Priority,
    Scope,
    Session,
    SessionState,
    SessionType,
    Turn,
)
from sessions_app.models.mailbox import TARGET_GONE
from sessions_app.models.session import WEB
from sessions_app.single_line import one_line

MOST_EVENTS = 50  # updates shown with one turn
MOST_CHARACTERS = 20_000  # of all updates shown with one turn; the rest waits for the next turn
MOST_ARTIFACTS = 20  # shown of one update
LONGEST_SUMMARY = LONGEST_ARTIFACT = 200
STALE_AFTER = timedelta(hours=24)
SUPERSEDED, STALE = "superseded", "stale"


@dataclass(frozen=True, kw_only=True)
class Mail:
    """An update to deposit. `summary` is one sentence; `detail` is the full text. A repeated `event_id` is ignored.

    `dedupe_key`: it replaces an unread update with the same key. `suppress_if_stale`: it is dropped after a day.
    `foreign`: its author had read text from outside (rule 3.5). `of_turn`: the turn that reports; the update is foreign
    if the turn had read such text, or an earlier one of its session.
    """

    event_type: str
    summary: str
    detail: str = ""
    source_key: str = ""
    priority: Priority = Priority.NORMAL
    artifacts: tuple[str, ...] = ()
    suppress_if_stale: bool = False
    dedupe_key: str = ""
    foreign: bool = False
    of_turn: Turn | None = None
    event_id: uuid.UUID = field(default_factory=uuid.uuid4)


@dataclass(frozen=True, kw_only=True)
class Drained:
    """Updates to show with a turn, urgent ones first. `ids` are their rows. `foreign`: one of them is foreign."""

    ids: tuple[int, ...]
    updates: tuple[Update, ...]
    foreign: bool = False


def deposit(
    target_id: uuid.UUID | None, mail: Mail, *, hint: bool = True, or_primary_of: int | None = None
) -> bool:
    """Put an update into the session's mailbox. False if it was deposited before, or the session is gone.

    The agent's primary session gets it while no turn drains the session's mailbox (rule 6.3). `or_primary_of`: the
    agent whose primary session gets it if there is no target (rule 4.11). `hint`: tell the agent's windows that an
    update waits, without its text; two feature flags limit this to the session's windows, or switch it off.
    """
    from sessions_app.mailbox.bounds import MAKE_ROOM  # late, both: SQLAlchemy is slow to load
    from sessions_app.mailbox.deposit_statements import DEPOSIT

    hint, everywhere = hint and flags.hints_at_mail(), flags.tells_every_window()
    scope = Scope.AGENT if everywhere else Scope.SESSION
    with transaction.atomic(savepoint=bool(mail.dedupe_key)):
        if mail.dedupe_key:
            target_id = _there(target_id, or_primary_of)
            if not _supersede_unread(target_id, mail):
                return False
        row = DEPOSIT.first(
            target=target_id, or_primary_of=or_primary_of, hint=hint, scope=scope.value, **_columns(mail)
        )
        if row is None:
            if mail.dedupe_key:
                transaction.set_rollback(True)  # restore the update that this one had replaced
            return False
        if row.target_id is None:
            return False
        if row.is_crowded:
            MAKE_ROOM.run(target=row.target_id)
        events.announce(row.target_id, row.agent_id if hint and everywhere else None)
        metrics.count(metrics.Counted.MAILBOX_DEPOSIT)
    return True


def _columns(mail: Mail) -> dict[str, Any]:
    """The row's values. A detail that only repeats the summary is left out."""
    summary, detail = one_line(mail.summary, LONGEST_SUMMARY), mail.detail.replace("\x00", "")
    return {
        "event_id": mail.event_id,
        "event_type": mail.event_type,
        "summary": summary,
        "detail": "" if detail.strip() == summary else detail,
        "source_key": mail.source_key,
        "dedupe_key": mail.dedupe_key,
        "artifacts": json.dumps([each.replace("\x00", "") for each in mail.artifacts]),
        "priority": int(mail.priority),
        "suppress_if_stale": mail.suppress_if_stale,
        "foreign": mail.foreign,
        "of_turn": mail.of_turn.pk if mail.of_turn else None,
        "in_session": mail.of_turn.session_id if mail.of_turn else None,
    }


def _there(target_id: uuid.UUID | None, or_primary_of: int | None) -> uuid.UUID | None:
    """The session that gets the update, which stays until the transaction ends. None: there is none."""
    from sessions_app.mailbox.deposit_statements import IS_THERE  # late, as above

    row = IS_THERE.first(target=target_id, or_primary_of=or_primary_of)
    return row.id if row is not None else None


def _supersede_unread(target_id: uuid.UUID | None, mail: Mail) -> bool:
    """Drop the unread update with the same key, one caller at a time. False if this update was deposited before."""
    _lock_keys(target_id, [mail.dedupe_key])
    if MailboxEvent.objects.filter(event_id=mail.event_id).exists():
        return False
    if target_id is not None:
        same = unread().filter(target_id=target_id, dedupe_key=mail.dedupe_key)
        same.update(dropped_at=Now(), reason=SUPERSEDED)
    return True


def _lock_keys(target_id: uuid.UUID | None, keys: list[str]) -> None:
    """Lock keys of a mailbox until the transaction ends, always in the same order."""
    with connection.cursor() as cursor:
        for key in sorted(keys):
            cursor.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"rondo:mail:{target_id}:{key}"]
            )


@contextmanager
def moving_undrained(agent_id: int, session_id: uuid.UUID | None = None) -> Iterator[None]:
    """Archive or open a session, or switch an agent's unified mode, in this context (rule 6.3).

    Then unread updates that no turn would show are in the agent's primary session. Of several with one key the newest
    stays. Nothing is moved back.
    """
    changed: QuerySet[Any] = Agent.objects.filter(pk=agent_id)
    sessions = Session.objects.filter(agent_id=agent_id)
    if session_id is not None:
        changed = sessions = sessions.filter(pk=session_id)
    with transaction.atomic():
        # before the change: each deposit has read this row and committed, or waits and then sees the change
        list(changed.select_for_update(of=("self",)).values_list("pk"))
        yield
        _move_undrained(agent_id, sessions)


def _move_undrained(agent_id: int, sessions: QuerySet[Session]) -> None:
    from sessions_app.mailbox.bounds import MAKE_ROOM  # late: SQLAlchemy is slow to load

    is_thread = Q(type=SessionType.SUB, channel=WEB, agent__unified_session=True)
    undrained = sessions.filter(is_thread | Q(state=SessionState.ARCHIVED)).exclude(key=PRIMARY_KEY)
    stuck = unread().filter(target__in=undrained.values("pk"))
    moved = dict(stuck.select_for_update(of=("self",)).order_by("pk").values_list("pk", "dedupe_key"))
    primary = Session.objects.filter(agent_id=agent_id, key=PRIMARY_KEY).values_list("pk", flat=True).first()
    if not moved or primary is None:
        return
    keys = list({key for key in moved.values() if key})
    _lock_keys(primary, keys)
    alike = unread().filter(Q(pk__in=moved) | Q(target=primary), dedupe_key__in=keys)
    newest = dict(alike.order_by("pk").values_list("dedupe_key", "pk"))
    alike.exclude(pk__in=newest.values()).update(dropped_at=Now(), reason=SUPERSEDED)
    unread().filter(pk__in=moved).update(target=primary)
    MAKE_ROOM.run(target=primary)


def unread() -> QuerySet[MailboxEvent]:
    """Return the updates that were neither acknowledged nor dropped."""
    return MailboxEvent.objects.filter(acknowledged_at__isnull=True, dropped_at__isnull=True)


def prepare_drain(session_id: uuid.UUID) -> Drained:
    """Read the unread updates that fit into one turn, and drop stale ones. The rest waits for the next turn.

    The first one is always included, so that no update waits for ever; a text that is too long is cut, with a note.
    """
    _drop_stale(session_id)
    waiting = unread().filter(target_id=session_id).order_by("-priority", "id")[:MOST_EVENTS]
    ids: list[int] = []
    updates: list[Update] = []
    foreign = False
    room = MOST_CHARACTERS
    for event in waiting:
        update = _shown(event)
        room -= len(update.summary) + len(update.detail) + sum(map(len, update.artifacts))
        if updates and room < 0:
            break
        ids.append(event.pk)
        updates.append(update)
        foreign = foreign or event.foreign
    return Drained(ids=tuple(ids), updates=tuple(updates), foreign=foreign)


def _shown(event: MailboxEvent) -> Update:
    detail, artifacts = event.detail, [_cut(str(each)) for each in event.artifacts]
    if len(detail) > MOST_CHARACTERS:
        detail = (
            f"{detail[:MOST_CHARACTERS]} … ({MOST_CHARACTERS:,} of {len(detail):,} characters;"
            f" the mailbox holds all of update {event.event_id})"
        )
    if len(artifacts) > MOST_ARTIFACTS:
        artifacts[MOST_ARTIFACTS:] = [f"and {len(artifacts) - MOST_ARTIFACTS} more"]
    lost = f" ({event.lost:,} older ones were dropped unread: too many waited)" if event.lost else ""
    return Update(
        event_type=event.event_type, summary=event.summary + lost, detail=detail, artifacts=tuple(artifacts)
    )


def _cut(artifact: str) -> str:
    shown = one_line(artifact, LONGEST_ARTIFACT + 1)
    return shown if len(shown) <= LONGEST_ARTIFACT else f"{shown[:LONGEST_ARTIFACT]}…"


def summaries(ids: tuple[int, ...]) -> tuple[str, ...]:
    """Return the summaries of these updates, in this order."""
    found = dict(MailboxEvent.objects.filter(pk__in=ids).values_list("pk", "summary")) if ids else {}
    return tuple(found[pk] for pk in ids if pk in found)


def acknowledge(turn: Turn, ids: Iterable[int]) -> None:
    """Mark updates as shown by this turn, in its commit. Those dropped meanwhile stay dropped."""
    shown = unread().filter(pk__in=list(ids)).update(acknowledged_at=Now(), acknowledged_by=turn)
    if shown:
        metrics.count(metrics.Counted.MAILBOX_DRAIN, shown)


def detach_from_sessions(session_ids: list[uuid.UUID]) -> None:
    """Prepare the sessions' deletion: drop unread updates without keeping their text, and delete the others."""
    unread().filter(target_id__in=session_ids).update(
        target=None, dropped_at=Now(), reason=TARGET_GONE, summary="", detail="", artifacts=[], source_key=""
    )
    MailboxEvent.objects.filter(target_id__in=session_ids).delete()


def _drop_stale(session_id: uuid.UUID) -> None:
    stale = unread().filter(target_id=session_id, suppress_if_stale=True, created_at__lt=Now() - STALE_AFTER)
    stale.update(dropped_at=Now(), reason=STALE)
