"""Deleting a session while it is at work (rule 4.11)."""

from __future__ import annotations

import pytest

from agent_core.testing import ModelServer
from automations.edit import NewJob, create_job
from automations.fire import fire_due
from automations.models import CronJob, JobClock, RunRecord
from sessions_app import delete
from sessions_app.delete import delete_session
from sessions_app.exceptions import BadInput, NotFound, SessionBusy
from sessions_app.models import PRIMARY_KEY, Event, Message, Session, SessionState, Turn, TurnStep
from sessions_app.receive import Input, receive
from tests.conftest import Person
from tests.core.test_main_job import ended
from tests.fleet import Fleet, until

EVERY = {"kind": "every", "seconds": 60}


def test_a_running_turn_is_ended_and_everything_goes(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    receive(session.pk, Input(content="[[hold:h]] x"))
    until(lambda: model_server.held.get("h"))
    receive(session.pk, Input(content="waiting"))
    assert delete_session(session.pk).deleted
    for model in (Turn, TurnStep, Message, Event):
        assert not model.objects.exists()
    with pytest.raises(NotFound):
        receive(session.pk, Input(content="hello?"))
    other = receive(person_with_server.session().pk, Input(content="hello"))
    until(lambda: ended(other))
    assert not Session.objects.filter(pk=session.pk).exists(), "nothing recreates it"


def test_a_turn_that_does_not_end_keeps_its_session(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete, "LOCK_WAIT", 1.0)
    fleet.worker()
    session = person_with_server.session()
    turn = receive(session.pk, Input(content='use tool wait with {"name": "open"}'))
    until((fleet.folder / "open.calls").exists)
    with pytest.raises(SessionBusy):
        delete_session(session.pk)
    session.refresh_from_db()
    assert session.state == SessionState.OPEN
    (fleet.folder / "open.go").touch()
    until(lambda: ended(turn))


def test_a_disabled_automation_is_in_the_way_too_and_a_queued_run_goes_along(person: Person) -> None:
    session, other = person.session(), person.session()
    paused = create_job(NewJob(session_id=session.pk, message="m", schedule=EVERY, enabled=False))
    due = create_job(NewJob(session_id=session.pk, message="m", schedule=EVERY))
    kept = create_job(NewJob(session_id=other.pk, message="m", schedule=EVERY))
    JobClock.objects.update(next_run_at="2026-01-01T00:00:00Z")
    fire_due()
    blocked = delete_session(session.pk)
    assert [(blocker.id, blocker.enabled) for blocker in blocked.blockers] == [
        (paused.pk, False),
        (due.pk, True),
    ]
    assert sorted(delete_session(session.pk, delete_automations=True).deleted_ids) == sorted(
        [paused.pk, due.pk]
    )
    assert list(CronJob.objects.all()) == [kept]
    assert set(RunRecord.objects.values_list("job_id", flat=True)) == {kept.pk}
    assert set(Turn.objects.values_list("session_id", flat=True)) == {other.pk}


def test_a_primary_session_goes_only_with_its_agent(person: Person) -> None:
    primary = Session.objects.get(agent=person.agent, key=PRIMARY_KEY)
    with pytest.raises(BadInput):
        delete_session(primary.pk, delete_automations=True)
    assert Session.objects.filter(pk=primary.pk).exists()
