"""Deleting a session: blocked by what is bound to it, in two steps, never under a running turn."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Protocol

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import ProtectedError

from sessions_app.cancel import cancel_turn
from sessions_app.exceptions import BadInput, NotFound, SessionBusy, TurnEnded
from sessions_app.lock import SessionLocks
from sessions_app.models import (
    Event,
    MailboxEvent,
    Message,
    Session,
    SessionState,
    SessionType,
    Turn,
    TurnState,
    TurnStep,
)

LOCK_WAIT = 10.0  # seconds to wait for a running turn to end


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

    def delete(self, session_id: uuid.UUID) -> tuple[str, ...]:
        """Delete it, in the session's own transaction; the ids."""


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
    before = SessionState.ARCHIVED if session.state == SessionState.ARCHIVED else SessionState.OPEN
    Session.objects.filter(pk=session_id).update(state=SessionState.DELETING)
    try:
        deletion = _delete_locked(session_id, delete_automations)
    except BaseException:
        _reopen(session_id, before)
        raise
    if not deletion.deleted:
        _reopen(session_id, before)
    return deletion


def _reopen(session_id: uuid.UUID, state: SessionState) -> None:
    Session.objects.filter(pk=session_id, state=SessionState.DELETING).update(state=state)


def _delete_locked(session_id: uuid.UUID, delete_automations: bool) -> Deletion:
    """Ask the running turn to end, take the session's lock for a bounded time, delete."""
    locks = SessionLocks(settings.DATABASE_LOCK_URL)
    locks.reconnect()
    try:
        _stop_running(session_id)
        give_up = time.monotonic() + LOCK_WAIT
        while locks.try_hold(session_id) is None:
            if time.monotonic() > give_up:
                raise SessionBusy("a turn of the session is running and did not end in time")
            time.sleep(0.05)
        return _delete_rows(session_id, delete_automations)
    finally:
        locks.close()


def _stop_running(session_id: uuid.UUID) -> None:
    for turn in Turn.objects.filter(session_id=session_id, state=TurnState.RUNNING):
        try:
            cancel_turn(turn.pk)
        except TurnEnded:
            continue  # it ended just now
    connection.close()  # the wait for the lock holds no connection


def _delete_rows(session_id: uuid.UUID, delete_automations: bool) -> Deletion:
    try:
        with transaction.atomic():
            deleted_ids = tuple(
                item for bound in _bound for item in (bound.delete(session_id) if delete_automations else ())
            )
            if not Session.objects.select_for_update().filter(pk=session_id).exists():
                raise NotFound("there is no such session")
            MailboxEvent.objects.filter(target_id=session_id).delete()
            Event.objects.filter(session_id=session_id).delete()
            Message.objects.filter(session_id=session_id).delete()
            TurnStep.objects.filter(turn__session_id=session_id).delete()
            Turn.objects.filter(session_id=session_id).delete()
            Session.objects.filter(pk=session_id).delete()
    except (ProtectedError, IntegrityError):
        # something was bound between the two steps, or while we waited
        return Deletion(deleted=False, blockers=blockers_of(session_id))
    return Deletion(deleted=True, deleted_ids=deleted_ids)
