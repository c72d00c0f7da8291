"""Delete sessions and agents.

A delete is refused while automations are bound to the session, unless they are to be deleted too. It closes the
session, ends its running turn, and removes everything in one transaction. Whatever runs at the same time finds the
session either whole or gone: beats, edits, messages and other deletes, also after this delete has died.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import ProtectedError, QuerySet
from django.db.models.functions import Now

from sessions_app.deliveries import outbox
from sessions_app.events import announce_change
from sessions_app.exceptions import BadInput, NotFound, SessionBusy, TurnEnded
from sessions_app.hints import wake
from sessions_app.mailbox import updates
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
from sessions_app.postgres.connection import no_time_limit
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.postgres.rows import existing, fetch
from sessions_app.queue.cancel import cancel_turn
from sessions_app.turns.lock import SessionLocks

LOCK_WAIT = 10.0  # seconds to wait for a running turn to end
ABANDONED_AFTER = timedelta(seconds=60)  # a delete that takes longer than this has died


# Rows that apps above bind to sessions. Those apps register them; nothing here imports them.


@dataclass(frozen=True, kw_only=True)
class Blocker:
    """Something bound to a session: it prevents its deletion, or goes along."""

    id: str
    name: str
    enabled: bool


class SessionDependent(Protocol):
    """Rows that an app above binds to sessions."""

    def blockers(self, session_id: uuid.UUID, *, with_agent: bool) -> tuple[Blocker, ...]:
        """List what would be deleted with the session, disabled ones too; `with_agent`: its agent is deleted."""

    def companions(self, session_id: uuid.UUID) -> tuple[Blocker, ...]:
        """List what is deleted with the session without blocking that, and would still have done something."""

    def lock(self, session_ids: list[uuid.UUID], agent_id: int | None) -> tuple[str, ...]:
        """Lock what is bound to these sessions, before the sessions. Returns the ids of what would be deleted.

        With `agent_id` it also locks what is deleted with the agent without blocking the delete.
        """

    def delete(self, ids: tuple[str, ...]) -> None:
        """Delete what was locked, in the same transaction."""

    def detach_from_sessions(self, session_ids: list[uuid.UUID]) -> tuple[str, ...]:
        """End what used these sessions and is not deleted with them, in the same transaction.

        Returns the ids of what is moved to the primary session.
        """


_dependents: list[SessionDependent] = []


def register_session_dependent(dependent: SessionDependent) -> None:
    """Register rows that are bound to sessions."""
    _dependents.append(dependent)


def blockers_of(session_id: uuid.UUID, *, with_agent: bool = False) -> tuple[Blocker, ...]:
    """List what prevents deleting the session, alone or with its agent."""
    return tuple(
        blocker
        for dependent in _dependents
        for blocker in dependent.blockers(session_id, with_agent=with_agent)
    )


def companions_of(session_id: uuid.UUID) -> tuple[Blocker, ...]:
    """List what is deleted with the session without preventing that."""
    return tuple(each for dependent in _dependents for each in dependent.companions(session_id))


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """The result of a delete: either blocked, or deleted with the ids of what was deleted and what was moved.

    What is moved goes to the primary session.
    """

    deleted: bool
    blockers: tuple[Blocker, ...] = ()
    deleted_ids: tuple[str, ...] = ()
    moved_ids: tuple[str, ...] = ()


def delete_session(session_id: uuid.UUID, *, with_dependents: bool = False) -> Deletion:
    """Delete a session with everything in it, unless something bound to it prevents that.

    NotFound; SessionBusy if a running turn does not end in time; BadInput for a primary session.
    """
    must_be_deletable(existing(Session.objects.filter(pk=session_id)))
    if not with_dependents and (blockers := blockers_of(session_id)):
        return Deletion(deleted=False, blockers=blockers)
    return _delete([session_id], with_dependents)


def must_be_deletable(session: Session) -> None:
    """BadInput for a primary session."""
    if session.type == SessionType.PRIMARY:
        raise BadInput(
            "a primary session cannot be deleted by itself; delete its agent", code="primary_session"
        )


def delete_agent(agent_id: int, *, with_dependents: bool = False) -> Deletion:
    """Delete an agent with all its sessions, unless something bound to one of them prevents that.

    NotFound; SessionBusy if a running turn does not end in time.
    """
    existing(Agent.objects.filter(pk=agent_id))
    session_ids = list(Session.objects.filter(agent_id=agent_id).order_by("id").values_list("id", flat=True))
    if not with_dependents and (blockers := _blockers_of_all(session_ids, with_agent=True)):
        return Deletion(deleted=False, blockers=blockers)
    return _delete(session_ids, with_dependents, agent_id)


def remove_archived(session_ids: list[uuid.UUID]) -> int:
    """Remove the sessions that are archived and have no open turn. Returns their number."""
    for dependent in _dependents:  # before the sessions: the lock order
        dependent.lock(session_ids, None)
    rows = Session.objects.select_for_update(skip_locked=True).filter(pk__in=session_ids)
    at_work = Turn.objects.filter(session_id__in=session_ids, state__in=OPEN_STATES).values("session_id")
    resting = rows.filter(state=SessionState.ARCHIVED).exclude(pk__in=at_work).order_by("pk")
    ids = list(resting.values_list("pk", flat=True))
    if ids:
        for dependent in _dependents:
            dependent.detach_from_sessions(ids)
        _delete_with_contents(ids)
    return len(ids)


def reopen_abandoned() -> int:
    """Reopen sessions whose delete died; returns how many. A delete that is still running holds the row's lock."""
    since = Now() - ABANDONED_AFTER
    with transaction.atomic():
        abandoned = Session.objects.filter(state=SessionState.DELETING, deleting_since__lt=since)
        ids = list(abandoned.select_for_update(skip_locked=True, no_key=True).values_list("pk", flat=True))
        return Session.objects.filter(pk__in=ids).reopen()


def _blockers_of_all(session_ids: Iterable[uuid.UUID], *, with_agent: bool) -> tuple[Blocker, ...]:
    return tuple(
        blocker for session_id in session_ids for blocker in blockers_of(session_id, with_agent=with_agent)
    )


def _delete(session_ids: list[uuid.UUID], with_dependents: bool, agent_id: int | None = None) -> Deletion:
    """Close the sessions and delete them. If that fails, open them again."""
    since = _close(session_ids)
    deleted = False
    try:
        deletion = _delete_locked(session_ids, with_dependents, agent_id)
        deleted = deletion.deleted
    finally:
        if not deleted:
            from sessions_app.turns.next_lane import next_lane  # late: SQLAlchemy is slow to load

            # if another delete took over, reopening is its task
            Session.objects.filter(pk__in=session_ids, deleting_since=since).reopen()
            for session_id in session_ids:
                for waiting in next_lane(session_id):  # a hint may have found the lock held by this delete
                    wake(waiting.session_id, waiting.lane)
    return deletion


def _close(session_ids: list[uuid.UUID]) -> datetime:
    """Close the sessions for input. Returns the instant that identifies this delete."""
    with transaction.atomic():
        since: datetime = fetch("SELECT now()")[0][0]
        Session.objects.filter(pk__in=session_ids).begin_delete(since)
    return since


def _delete_locked(
    session_ids: list[uuid.UUID], with_dependents: bool, agent_id: int | None = None
) -> Deletion:
    """Cancel the running turns, take the sessions' locks within `LOCK_WAIT`, then delete."""
    locks = SessionLocks(settings.DATABASE_LOCK_URL)
    locks.reconnect()
    try:
        _cancel_running(Turn.objects.filter(session_id__in=session_ids))
        give_up = time.monotonic() + LOCK_WAIT
        for session_id in session_ids:
            while not _try_lock(locks, session_id):
                if time.monotonic() > give_up:
                    raise SessionBusy("a running turn of the session did not end in time; try again")
                # a turn may have been claimed while the session was being closed
                _cancel_running(Turn.objects.filter(session_id=session_id, cancel_requested_at__isnull=True))
                time.sleep(0.05)
        with no_time_limit():  # deleting a long history may take longer than the limit of a request
            return retry_deadlocks(lambda: _delete_rows(session_ids, with_dependents, agent_id))
    finally:
        locks.close()


def _try_lock(locks: SessionLocks, session_id: uuid.UUID) -> bool:
    """Take the lock, unless a live worker runs a turn: it may have lost its lock for a moment and still go on."""
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


def _cancel_running(turns: QuerySet[Turn]) -> None:
    for turn in turns.filter(state=TurnState.RUNNING):
        with suppress(TurnEnded, NotFound):  # it ended just now, or another delete was faster
            cancel_turn(turn.pk)
    connection.close()  # the wait for the lock holds no connection


def _delete_rows(session_ids: list[uuid.UUID], with_dependents: bool, agent_id: int | None) -> Deletion:
    with_agent = agent_id is not None
    try:
        with transaction.atomic():
            locked = [(dependent, dependent.lock(session_ids, agent_id)) for dependent in _dependents]
            ids = tuple(item for _, items in locked for item in items)
            if ids and not with_dependents:  # bound since the check before
                return Deletion(deleted=False, blockers=_blockers_of_all(session_ids, with_agent=with_agent))
            _lock_sessions(session_ids, agent_id)
            moved: list[str] = []
            for dependent, items in locked:
                dependent.delete(items)
                moved += dependent.detach_from_sessions(session_ids)
            _delete_with_contents(session_ids)
            if agent_id is not None:
                Agent.objects.filter(pk=agent_id).delete()
    except (ProtectedError, IntegrityError):  # something was bound after the lock
        return Deletion(deleted=False, blockers=_blockers_of_all(session_ids, with_agent=with_agent))
    return Deletion(deleted=True, deleted_ids=ids, moved_ids=tuple(moved))


def _lock_sessions(session_ids: list[uuid.UUID], agent_id: int | None) -> None:
    """Lock agent, sessions and turns, in this order, after the dependents. All code locks in this order."""
    if agent_id is not None:
        _lock_agent(agent_id, session_ids)
    sessions = list(Session.objects.select_for_update().filter(pk__in=session_ids).order_by("id"))
    if len(sessions) < len(session_ids):
        raise NotFound("there is no such session")
    if any(session.state != SessionState.DELETING for session in sessions):
        # this delete counted as dead, and the session may be in use again
        raise SessionBusy("the session was opened again while it was being deleted; try again")
    list(Turn.objects.select_for_update().filter(session_id__in=session_ids).order_by("id").values_list("id"))


def _lock_agent(agent_id: int, session_ids: list[uuid.UUID]) -> None:
    """Lock the agent, so that no session of it is opened. SessionBusy if one was opened since the ids were read."""
    existing(Agent.objects.select_for_update().filter(pk=agent_id))
    if Session.objects.filter(agent_id=agent_id).exclude(pk__in=session_ids).exists():
        raise SessionBusy("a session of the agent was opened just now; try again")


def _delete_with_contents(session_ids: list[uuid.UUID]) -> None:
    outbox.detach_from_sessions(session_ids)
    updates.detach_from_sessions(session_ids)
    Event.objects.filter(session_id__in=session_ids).delete()
    Message.objects.filter(session_id__in=session_ids).delete()
    TurnStep.objects.filter(turn__session_id__in=session_ids).delete()
    Turn.objects.filter(session_id__in=session_ids).delete()
    Session.objects.filter(pk__in=session_ids).delete()
    announce_change()  # open streams of these sessions end
