"""Deleting a session: blocked by what is bound to it, in two steps, never under a running turn.

A delete closes the session, has its running turn end, and removes all in one transaction. It may meet beats, edits,
messages, other deletes and its own death: each finds the session whole or gone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Case, F, ProtectedError, QuerySet, When
from django.db.models.functions import Now

from sessions_app import deliver, mailbox
from sessions_app.cancel import cancel_turn
from sessions_app.claim import look
from sessions_app.events import announce_change
from sessions_app.exceptions import BadInput, NotFound, SessionBusy, TurnEnded
from sessions_app.lock import SessionLocks
from sessions_app.models import (
    Agent,
    Event,
    Message,
    Session,
    SessionState,
    SessionType,
    Turn,
    TurnState,
    TurnStep,
    Worker,
)
from sessions_app.models.turn import OPEN_STATES
from sessions_app.patience import through_deadlocks
from sessions_app.wake import wake

LOCK_WAIT = 10.0  # seconds to wait for a running turn to end
ABANDONED_AFTER = timedelta(seconds=60)  # a delete that took longer than this is not at work any more


@dataclass(frozen=True, kw_only=True)
class Blocker:
    """Something bound to the session that is in the way."""

    id: str
    name: str
    enabled: bool


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """What came of it: deleted, with the ids of what went along, or blocked."""

    deleted: bool
    blockers: tuple[Blocker, ...] = ()
    deleted_ids: tuple[str, ...] = ()


class Bound(Protocol):
    """What an app above binds to sessions."""

    def blockers(self, session_id: uuid.UUID) -> tuple[Blocker, ...]:
        """What is bound to the session, disabled ones too."""

    def lock(self, session_ids: list[uuid.UUID], agent_id: int | None) -> tuple[str, ...]:
        """Lock what is bound to these sessions, before the sessions themselves; the ids.

        With `agent_id` also what else is the agent's, and goes with it without being in the way.
        """

    def delete(self, ids: tuple[str, ...]) -> None:
        """Delete what was locked, in the same transaction."""

    def let_go(self, session_ids: list[uuid.UUID]) -> None:
        """End what is not deleted with these sessions and was at work in them, in the same transaction."""


_bound: list[Bound] = []


def register(bound: Bound) -> None:
    """Make something known that is bound to sessions."""
    _bound.append(bound)


def blockers_of(session_id: uuid.UUID) -> tuple[Blocker, ...]:
    """All that is in the way of deleting the session."""
    return tuple(blocker for bound in _bound for blocker in bound.blockers(session_id))


def delete_session(session_id: uuid.UUID, *, delete_automations: bool = False) -> Deletion:
    """Delete a session with all it holds, or say what is bound to it.

    NotFound; SessionBusy when a running turn does not end in time; BadInput for a primary session.
    """
    session = Session.objects.filter(pk=session_id).first()
    if session is None:
        raise NotFound("there is no such session")
    if session.type == SessionType.PRIMARY:
        raise BadInput("a primary session is deleted with its agent", code="primary_session")
    if not delete_automations and (blockers := blockers_of(session_id)):
        return Deletion(deleted=False, blockers=blockers)
    return _delete([session_id], delete_automations)


def delete_agent(agent_id: int, *, delete_automations: bool = False) -> Deletion:
    """Delete an agent with all its sessions, or say what is bound to any of them.

    NotFound; SessionBusy when a running turn does not end in time.
    """
    if not Agent.objects.filter(pk=agent_id).exists():
        raise NotFound("there is no such agent")
    session_ids = list(Session.objects.filter(agent_id=agent_id).order_by("id").values_list("id", flat=True))
    if not delete_automations and (blockers := _blockers_of_all(session_ids)):
        return Deletion(deleted=False, blockers=blockers)
    return _delete(session_ids, delete_automations, agent_id)


def remove_archived(session_ids: list[uuid.UUID]) -> int:
    """Remove sessions that are archived and at rest, in the transaction under way; how many. Others are skipped."""
    for bound in _bound:  # before the sessions, as everybody locks
        bound.lock(session_ids, None)
    rows = Session.objects.select_for_update(skip_locked=True).filter(pk__in=session_ids)
    at_work = Turn.objects.filter(session_id__in=session_ids, state__in=OPEN_STATES).values("session_id")
    resting = rows.filter(state=SessionState.ARCHIVED).exclude(pk__in=at_work).order_by("pk")
    ids = list(resting.values_list("pk", flat=True))
    if ids:
        for bound in _bound:
            bound.let_go(ids)
        deliver.let_go(ids)
        mailbox.let_go(ids)
        _delete_of_sessions(ids)
    return len(ids)


def reopen_abandoned() -> int:
    """Reopen sessions whose delete died half way; the number of them. A delete at work holds the row."""
    since = Now() - ABANDONED_AFTER
    with transaction.atomic():
        abandoned = Session.objects.filter(state=SessionState.DELETING, deleting_since__lt=since)
        ids = list(abandoned.select_for_update(skip_locked=True, no_key=True).values_list("pk", flat=True))
        return _reopened(Session.objects.filter(pk__in=ids))


def _blockers_of_all(session_ids: Iterable[uuid.UUID]) -> tuple[Blocker, ...]:
    return tuple(blocker for session_id in session_ids for blocker in blockers_of(session_id))


def _delete(session_ids: list[uuid.UUID], delete_automations: bool, agent_id: int | None = None) -> Deletion:
    """Close the sessions, delete them, and open them again when that comes to nothing."""
    since = _close(session_ids)
    deleted = False
    try:
        deletion = _delete_locked(session_ids, delete_automations, agent_id)
        deleted = deletion.deleted
    finally:
        if not deleted:
            # unless another delete took over: then it is that one's to open them again
            _reopened(Session.objects.filter(pk__in=session_ids, deleting_since=since))
            for session_id in session_ids:
                if lane := look(session_id):  # our probe of the lock may have turned a hint away
                    wake(session_id, lane)
    return deletion


def _close(session_ids: list[uuid.UUID]) -> datetime:
    """OPEN, ARCHIVED or another delete's DELETING → DELETING, ours; since when."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        since: datetime = cursor.fetchone()[0]
        Session.objects.filter(pk__in=session_ids).update(
            reopens_as=Case(When(state=SessionState.DELETING, then=F("reopens_as")), default=F("state")),
            state=SessionState.DELETING,
            deleting_since=since,
        )
    return since


def _reopened(sessions: QuerySet[Session]) -> int:
    closed = sessions.filter(state=SessionState.DELETING)
    return closed.update(state=F("reopens_as"), deleting_since=None)


def _delete_locked(
    session_ids: list[uuid.UUID], delete_automations: bool, agent_id: int | None = None
) -> Deletion:
    """Ask the running turns to end, take the sessions' locks within a bounded time, delete."""
    locks = SessionLocks(settings.DATABASE_LOCK_URL)
    locks.reconnect()
    try:
        _ask_to_end(Turn.objects.filter(session_id__in=session_ids))
        give_up = time.monotonic() + LOCK_WAIT
        for session_id in session_ids:
            while not _is_ours(locks, session_id):
                if time.monotonic() > give_up:
                    raise SessionBusy("a turn of the session is running and did not end in time")
                # one that was being claimed while the session closed
                _ask_to_end(Turn.objects.filter(session_id=session_id, cancel_requested_at__isnull=True))
                time.sleep(0.05)
        return through_deadlocks(lambda: _delete_rows(session_ids, delete_automations, agent_id))
    finally:
        locks.close()


def _is_ours(locks: SessionLocks, session_id: uuid.UUID) -> bool:
    """The lock is ours and nobody runs a turn: a worker may have lost its lock for a moment and go on."""
    handle = locks.try_hold(session_id)
    if handle is None:
        return False
    lost_after = timedelta(seconds=settings.RONDO_WORKER_LOST_SECONDS)
    alive = Worker.objects.filter(heartbeat_at__gt=Now() - lost_after).values("id")
    running = Turn.objects.filter(session_id=session_id, state=TurnState.RUNNING, claim__isnull=False)
    if running.filter(worker__in=alive).exists():
        locks.release(handle)
        return False
    return True


def _ask_to_end(turns: QuerySet[Turn]) -> None:
    for turn in turns.filter(state=TurnState.RUNNING):
        try:
            cancel_turn(turn.pk)
        except (TurnEnded, NotFound):
            continue  # it ended just now, or another delete was faster
    connection.close()  # the wait for the lock holds no connection


def _delete_rows(session_ids: list[uuid.UUID], delete_automations: bool, agent_id: int | None) -> Deletion:
    try:
        with transaction.atomic():
            locked = [(bound, bound.lock(session_ids, agent_id)) for bound in _bound]
            ids = tuple(item for _, items in locked for item in items)
            if ids and not delete_automations:  # bound between the two steps
                return Deletion(deleted=False, blockers=_blockers_of_all(session_ids))
            _lock_sessions(session_ids, agent_id)
            for bound, items in locked:
                bound.delete(items)
                bound.let_go(session_ids)
            deliver.let_go(session_ids)
            mailbox.let_go(session_ids)
            _delete_of_sessions(session_ids)
            if agent_id is not None:
                Agent.objects.filter(pk=agent_id).delete()
    except (ProtectedError, IntegrityError):  # bound since we locked what was
        return Deletion(deleted=False, blockers=_blockers_of_all(session_ids))
    return Deletion(deleted=True, deleted_ids=ids)


def _lock_sessions(session_ids: list[uuid.UUID], agent_id: int | None) -> None:
    """After clocks and jobs: agent, session, turn. Everybody locks in this order."""
    if agent_id is not None:
        _lock_agent(agent_id, session_ids)
    sessions = list(Session.objects.select_for_update().filter(pk__in=session_ids).order_by("id"))
    if len(sessions) < len(session_ids):
        raise NotFound("there is no such session")
    if any(session.state != SessionState.DELETING for session in sessions):
        # we were taken for dead, and somebody may have gone on in it
        raise SessionBusy("the session was opened again while it was being deleted; try again")
    list(Turn.objects.select_for_update().filter(session_id__in=session_ids).order_by("id").values_list("id"))


def _lock_agent(agent_id: int, session_ids: list[uuid.UUID]) -> None:
    """From here on nobody opens a session of it. SessionBusy if somebody did since we looked."""
    if not Agent.objects.select_for_update().filter(pk=agent_id).exists():
        raise NotFound("there is no such agent")
    if Session.objects.filter(agent_id=agent_id).exclude(pk__in=session_ids).exists():
        raise SessionBusy("a session of the agent was opened just now; try again")


def _delete_of_sessions(session_ids: list[uuid.UUID]) -> None:
    Event.objects.filter(session_id__in=session_ids).delete()
    Message.objects.filter(session_id__in=session_ids).delete()
    TurnStep.objects.filter(turn__session_id__in=session_ids).delete()
    Turn.objects.filter(session_id__in=session_ids).delete()
    Session.objects.filter(pk__in=session_ids).delete()
    announce_change()  # open streams look, and end
