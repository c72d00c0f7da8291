"""Deleting a session or an agent is blocked by routines like by automations, and takes them along (rule 4.11)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from automations.models import CronJob, JobClock, RunRecord
from automations.routines.edit import NewRoutine, add_routine, remove_routine
from automations.runs.report import report_to_home
from interfaces.api.shared import deleted
from sessions_app.exceptions import NotFound, SessionClosed
from sessions_app.mailbox.deposit import NewUpdate
from sessions_app.models import Agent, MailboxEvent, Session, SessionType, Turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.delete import delete_agent, delete_session
from sessions_app.sessions.dependents import blockers_of
from tests.conftest import Person
from tests.races import UPDATE, gate, orphans

pytestmark = pytest.mark.rule("4.11")


def add(person: Person, title: str, session: Session | None = None) -> CronJob:
    return add_routine(
        NewRoutine(
            agent_id=person.agent.pk, title=title, schedule="1h", session_id=session.pk if session else None
        )
    )


def primary(person: Person) -> Session:
    return Session.objects.get(agent=person.agent, type=SessionType.PRIMARY)


@pytest.fixture
def group(person: Person) -> Session:
    """A home that is not the primary session's like: several people read there."""
    found: Session = person.session(chat_type="group")
    return found


def test_deleting_a_private_web_thread_moves_its_routines_to_primary(
    person: Person,
) -> None:
    home = person.session()
    mine, disabled, other = add(person, "A", home), add(person, "B", home), add(person, "C", person.session())
    remove_routine(disabled.pk)
    assert blockers_of(home.pk) == ()
    said = delete_session(home.pk)
    assert (said.deleted, said.deleted_ids) == (True, ())
    assert set(said.moved_ids) == {mine.pk, disabled.pk}
    for job in (mine, disabled, other):
        before = job.home_id
        job.refresh_from_db()
        assert job.home_id == (before if job is other else None)
    assert deleted(said).data["moved_routines"] == list(said.moved_ids)
    report_to_home(mine.home_id, person.agent.pk, NewUpdate(event_type="job_completed", summary="done"))
    assert MailboxEvent.objects.get().target_id == primary(person).pk


@pytest.mark.parametrize("confirmed", [False, True])
def test_routines_of_group_or_channel_sessions_are_not_moved(
    person: Person, telegram: None, confirmed: bool
) -> None:
    for home in (person.session(key="telegram:42"), person.session(chat_type="group")):
        mine = add(person, "A", home)
        said = delete_session(home.pk, with_dependents=confirmed)
        assert (said.deleted, said.moved_ids) == (confirmed, ())
        assert CronJob.objects.filter(pk=mine.pk, home=home.pk).exists() is not confirmed
        CronJob.objects.filter(pk=mine.pk).update(enabled=False, name="B")


def test_routines_block_deleting_their_home_even_when_disabled(person: Person, group: Session) -> None:
    home, other = group, person.session()
    mine, disabled, without = add(person, "A", home), add(person, "B", home), add(person, "C")
    remove_routine(disabled.pk)
    said = delete_session(home.pk)
    assert not said.deleted
    assert [(each.id, each.name, each.enabled) for each in said.blockers] == [
        (mine.pk, "A", True),
        (disabled.pk, "B", False),
    ]
    assert delete_session(other.pk).deleted
    assert [each.id for each in blockers_of(primary(person).pk)] == [without.pk]


def test_confirmed_deletion_removes_routines_and_their_pending_work_elsewhere(
    person: Person, group: Session
) -> None:
    home, elsewhere = group, person.session()
    mine, without = add(person, "A", home), add(person, "B")
    turn: Turn = receive(elsewhere.pk, MessageInput(content="hello"))
    RunRecord.objects.create(
        run_id=f"{mine.pk}:1000", job=mine, scheduled_for=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), turn=turn
    )
    said = delete_session(home.pk, with_dependents=True)
    assert (said.deleted, said.deleted_ids) == (True, (mine.pk,))
    assert list(CronJob.objects.values_list("pk", flat=True)) == [without.pk]
    assert list(JobClock.objects.values_list("pk", flat=True)) == [without.pk]
    assert not RunRecord.objects.exists()
    turn.refresh_from_db()
    assert turn.state == "cancelled"
    assert not any(orphans().values())


def test_routines_block_deleting_their_agent_unless_confirmed(person: Person) -> None:
    added = {add(person, "A", person.session()).pk, add(person, "B").pk}
    said = delete_agent(person.agent.pk)
    assert {each.id for each in said.blockers} == added
    said = delete_agent(person.agent.pk, with_dependents=True)
    assert (said.deleted, set(said.deleted_ids)) == (True, added)
    assert not CronJob.objects.exists()
    assert not Agent.objects.exists()


def test_a_routine_added_just_before_deletion_blocks_it(person: Person, group: Session) -> None:
    home = group
    with gate(home, UPDATE) as door:
        door.start(lambda: add(person, "A", home))
        door.start(lambda: delete_session(home.pk))
        added, said = door.open()
    assert (said.deleted, [each.id for each in said.blockers]) == (False, [added.pk])
    assert Session.objects.filter(pk=home.pk, state="open").exists()


def test_a_routine_added_after_deletion_began_is_refused(person: Person) -> None:
    home = person.session()
    with gate(home, UPDATE) as door:
        door.start(lambda: delete_session(home.pk))
        door.start(lambda: add(person, "A", home))
        said, refusal = door.open()
    assert said.deleted
    assert isinstance(refusal, NotFound | SessionClosed)
    assert not CronJob.objects.exists()
    assert not any(orphans().values())
