"""Deleting a session while it is at work (rule 4.11)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import NewJob, create_job
from automations.models import JobClock
from sessions_app.exceptions import NotFound, SessionBusy
from sessions_app.models import Session, SessionState, Turn
from sessions_app.queue.cancel import cancel_turn
from sessions_app.sessions import delete
from sessions_app.sessions.delete import delete_session
from tests.chaos.test_locks import connected
from tests.conftest import Person
from tests.races import in_thread

pytestmark = pytest.mark.rule("4.11")

EVERY = {"kind": "every", "seconds": 60}


def test_a_session_opens_again_as_what_it_was(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete, "LOCK_WAIT", 0.5)
    session = person.session()
    create_job(NewJob(session_id=session.pk, message="m", schedule=EVERY))
    Session.objects.filter(pk=session.pk).update(state=SessionState.ARCHIVED)
    holder = connected()
    assert holder.try_hold(session.pk)
    deletes = [in_thread(partial(delete_session, session.pk, with_dependents=True)) for _ in range(2)]
    for thread, came in deletes:
        thread.join(30)
        assert isinstance(came[0], SessionBusy)
    holder.close()
    session.refresh_from_db()
    assert session.state == SessionState.ARCHIVED


def test_cancelling_a_queued_run_during_a_session_delete_never_deadlocks(person: Person) -> None:
    for _ in range(4):
        session = person.session()
        create_job(NewJob(session_id=session.pk, message="m", schedule=EVERY))
        JobClock.objects.filter(job__session=session).update(next_run_at="2026-01-01T00:00:00Z")
        fire_due_jobs()
        turn = Turn.objects.get(session=session)
        actions: list[Any] = [
            partial(cancel_turn, turn.pk),
            partial(delete_session, session.pk, with_dependents=True),
        ]
        threads = [in_thread(action) for action in actions]
        for thread, _ in threads:
            thread.join(20)
        cancelled, deleted = (came[0] for _, came in threads)
        assert isinstance(cancelled, Turn | NotFound)
        assert deleted.deleted
