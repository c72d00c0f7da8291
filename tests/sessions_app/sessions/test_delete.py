"""Deleting a session while it is at work (rule 4.11)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.testing import ModelServer
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import NewJob, create_job
from automations.models import CronJob, JobClock, RunRecord
from sessions_app.exceptions import BadInput, NotFound, SessionBusy
from sessions_app.models import PRIMARY_KEY, Event, Message, Session, SessionState, Turn, TurnStep
from sessions_app.sessions import delete
from sessions_app.sessions.delete import delete_session
from sessions_app.turns.cancel import cancel_turn
from sessions_app.turns.receive import MessageInput, receive
from tests.chaos.test_locks import connected
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.races import in_thread
from tests.stories.test_main_job import ended

pytestmark = pytest.mark.rule("4.11")

EVERY = {"kind": "every", "seconds": 60}


def test_a_running_turn_is_ended_and_everything_goes(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    receive(session.pk, MessageInput(content="[[hold:h]] x"))
    until(lambda: model_server.held.get("h"))
    receive(session.pk, MessageInput(content="waiting"))
    assert delete_session(session.pk).deleted
    for model in (Turn, TurnStep, Message, Event):
        assert not model.objects.exists()
    with pytest.raises(NotFound):
        receive(session.pk, MessageInput(content="hello?"))
    other = receive(person_with_server.session().pk, MessageInput(content="hello"))
    until(lambda: ended(other))
    assert not Session.objects.filter(pk=session.pk).exists(), "nothing recreates it"


def test_a_turn_that_does_not_end_keeps_its_session(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete, "LOCK_WAIT", 1.0)
    fleet.worker()
    session = person_with_server.session()
    turn = receive(session.pk, MessageInput(content='use tool wait with {"name": "open"}'))
    until((fleet.folder / "open.calls").exists)
    with pytest.raises(SessionBusy):
        delete_session(session.pk)
    session.refresh_from_db()
    assert session.state == SessionState.OPEN
    (fleet.folder / "open.go").touch()
    until(lambda: ended(turn))


def test_disabled_automations_block_deletion_and_queued_runs_are_deleted(person: Person) -> None:
    session, other = person.session(), person.session()
    paused = create_job(NewJob(session_id=session.pk, message="m", schedule=EVERY, enabled=False))
    due = create_job(NewJob(session_id=session.pk, message="m", schedule=EVERY))
    kept = create_job(NewJob(session_id=other.pk, message="m", schedule=EVERY))
    JobClock.objects.update(next_run_at="2026-01-01T00:00:00Z")
    fire_due_jobs()
    blocked = delete_session(session.pk)
    assert [(blocker.id, blocker.enabled) for blocker in blocked.blockers] == [
        (paused.pk, False),
        (due.pk, True),
    ]
    assert sorted(delete_session(session.pk, with_dependents=True).deleted_ids) == sorted([paused.pk, due.pk])
    assert list(CronJob.objects.all()) == [kept]
    assert set(RunRecord.objects.values_list("job_id", flat=True)) == {kept.pk}
    assert set(Turn.objects.values_list("session_id", flat=True)) == {other.pk}


def test_a_primary_session_goes_only_with_its_agent(person: Person) -> None:
    primary = Session.objects.get(agent=person.agent, key=PRIMARY_KEY)
    with pytest.raises(BadInput):
        delete_session(primary.pk, with_dependents=True)
    assert Session.objects.filter(pk=primary.pk).exists()


def test_a_slot_due_during_a_delete_is_skipped_without_fault(
    person: Person,
) -> None:
    session = person.session()
    job = create_job(NewJob(session_id=session.pk, message="m", schedule=EVERY))
    JobClock.objects.update(next_run_at="2026-01-01T00:00:00Z")
    Session.objects.filter(pk=session.pk).update(state=SessionState.DELETING, deleting_since=Now())
    fire_due_jobs()
    job.refresh_from_db()
    run = RunRecord.objects.get()
    assert (job.enabled, job.fault, run.state, run.reason) == (True, "", "skipped", "session_closed")
    assert JobClock.objects.get(job=job).next_run_at is not None


def test_the_sweep_reopens_a_session_after_an_abandoned_delete(fleet: Fleet, person: Person) -> None:
    dead, at_work = person.session(), person.session()
    turn = receive(dead.pk, MessageInput(content="hello"))
    Session.objects.filter(pk=dead.pk).update(
        state=SessionState.DELETING, deleting_since=datetime.now(UTC) - timedelta(minutes=2)
    )
    Session.objects.filter(pk=at_work.pk).update(
        state=SessionState.DELETING, deleting_since=datetime.now(UTC)
    )
    fleet.worker()
    until(lambda: ended(turn))
    dead.refresh_from_db()
    at_work.refresh_from_db()
    assert (dead.state, dead.deleting_since) == (SessionState.OPEN, None)
    assert at_work.state == SessionState.DELETING


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
    for _ in range(8):
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
