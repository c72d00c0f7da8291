"""Deleting a session: blocked by what is bound to it, in two steps, never under a running turn."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Case, F, ProtectedError, When
from django.db.models.functions import Now

from sessions_app.cancel import cancel_turn
from sessions_app.claim import look
from sessions_app.events import announce
from sessions_app.exceptions import BadInput, NotFound, SessionBusy, TurnEnded
from sessions_app.lock import SessionLocks
from sessions_app.models import (
    Agent,
    Event,
    MailboxEvent,
    Message,
    Session,
    SessionState,
    SessionType,
    Turn,
    TurnState,
    TurnStep,
    Worker,
)
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

    def lock(self, session_ids: list[uuid.UUID]) -> tuple[str, ...]:
        """Lock what is bound to these sessions, before the sessions themselves; the ids."""

    def delete(self, ids: tuple[str, ...]) -> None:
        """Delete what was locked, in the same transaction."""


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


def reopen_abandoned() -> int:
    """Reopen sessions whose delete died half way; the number of them. A delete at work holds the row."""
    since = Now() - ABANDONED_AFTER
    with transaction.atomic():
        abandoned = Session.objects.filter(state=SessionState.DELETING, deleting_since__lt=since)
        return _reopen([session.pk for session in abandoned.select_for_update(skip_locked=True, no_key=True)])


def _blockers_of_all(session_ids: Iterable[uuid.UUID]) -> tuple[Blocker, ...]:
    return tuple(blocker for session_id in session_ids for blocker in blockers_of(session_id))


def _delete(session_ids: list[uuid.UUID], delete_automations: bool, agent_id: int | None = None) -> Deletion:
    """Close the sessions, delete them, and open them again when that comes to nothing."""
    Session.objects.filter(pk__in=session_ids).update(
        reopens_as=Case(When(state=SessionState.DELETING, then=F("reopens_as")), default=F("state")),
        state=SessionState.DELETING,
        deleting_since=Now(),
    )
    deleted = False
    try:
        deletion = _delete_locked(session_ids, delete_automations, agent_id)
        deleted = deletion.deleted
    finally:
        if not deleted:
            _reopen(session_ids)
            for session_id in session_ids:
                if lane := look(session_id):  # our probe of the lock may have turned a hint away
                    wake(session_id, lane)
    return deletion


def _reopen(session_ids: list[uuid.UUID]) -> int:
    closed = Session.objects.filter(pk__in=session_ids, state=SessionState.DELETING)
    return closed.update(state=F("reopens_as"), deleting_since=None)


def _delete_locked(
    session_ids: list[uuid.UUID], delete_automations: bool, agent_id: int | None = None
) -> Deletion:
    """Ask the running turns to end, take the sessions' locks within a bounded time, delete."""
    locks = SessionLocks(settings.DATABASE_LOCK_URL)
    locks.reconnect()
    try:
        _stop_running(session_ids)
        give_up = time.monotonic() + LOCK_WAIT
        for session_id in session_ids:
            while not _is_ours(locks, session_id):
                if time.monotonic() > give_up:
                    raise SessionBusy("a turn of the session is running and did not end in time")
                time.sleep(0.05)
        return _delete_rows(session_ids, delete_automations, agent_id)
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


def _stop_running(session_ids: list[uuid.UUID]) -> None:
    for turn in Turn.objects.filter(session_id__in=session_ids, state=TurnState.RUNNING):
        try:
            cancel_turn(turn.pk)
        except TurnEnded:
            continue  # it ended just now
    connection.close()  # the wait for the lock holds no connection


def _delete_rows(session_ids: list[uuid.UUID], delete_automations: bool, agent_id: int | None) -> Deletion:
    try:
        with transaction.atomic():
            locked = [(bound, bound.lock(session_ids)) for bound in _bound if delete_automations]
            _lock_sessions(session_ids, agent_id)
            for bound, ids in locked:
                bound.delete(ids)
            _delete_of_sessions(session_ids)
            if agent_id is not None:
                Agent.objects.filter(pk=agent_id).delete()
    except (ProtectedError, IntegrityError):
        # something was bound between the two steps, or while we waited
        return Deletion(deleted=False, blockers=_blockers_of_all(session_ids))
    return Deletion(deleted=True, deleted_ids=tuple(item for _, ids in locked for item in ids))


def _lock_sessions(session_ids: list[uuid.UUID], agent_id: int | None) -> None:
    """After clocks and jobs: agent, session, turn. Everybody locks in this order."""
    if agent_id is not None:
        _lock_agent(agent_id, session_ids)
    sessions = Session.objects.select_for_update().filter(pk__in=session_ids).order_by("id")
    if len(sessions) < len(session_ids):
        raise NotFound("there is no such session")
    list(Turn.objects.select_for_update().filter(session_id__in=session_ids).order_by("id").values_list("id"))


def _lock_agent(agent_id: int, session_ids: list[uuid.UUID]) -> None:
    """From here on nobody opens a session of it. SessionBusy if somebody did since we looked."""
    if not Agent.objects.select_for_update().filter(pk=agent_id).exists():
        raise NotFound("there is no such agent")
    if Session.objects.filter(agent_id=agent_id).exclude(pk__in=session_ids).exists():
        raise SessionBusy("a session of the agent was opened just now; try again")


def _delete_of_sessions(session_ids: list[uuid.UUID]) -> None:
    MailboxEvent.objects.filter(target_id__in=session_ids).delete()
    Event.objects.filter(session_id__in=session_ids).delete()
    Message.objects.filter(session_id__in=session_ids).delete()
    TurnStep.objects.filter(turn__session_id__in=session_ids).delete()
    Turn.objects.filter(session_id__in=session_ids).delete()
    Session.objects.filter(pk__in=session_ids).delete()
    for session_id in session_ids:
        announce(session_id)  # open streams look, and end
