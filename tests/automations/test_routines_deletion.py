"""Deleting a session or an agent is blocked by routines like by automations, and takes them along (rule 4.11)."""

from __future__ import annotations

from datetime import UTC, datetime

from automations.models import CronJob, JobClock, RunRecord
from automations.routines import NewRoutine, add_routine, remove_routine
from sessions_app.delete import blockers_of, delete_agent, delete_session
from sessions_app.exceptions import NotFound, SessionClosed
from sessions_app.models import Agent, Session, SessionType, Turn
from sessions_app.receive import Input, receive
from tests.conftest import Person
from tests.races import UPDATE, gate, orphans


def add(person: Person, title: str, session: Session | None = None) -> CronJob:
    return add_routine(
        NewRoutine(
            agent_id=person.agent.pk, title=title, schedule="1h", session_id=session.pk if session else None
        )
    )


def primary(person: Person) -> Session:
    return Session.objects.get(agent=person.agent, type=SessionType.PRIMARY)


def test_a_session_is_blocked_by_the_routines_whose_home_it_is_disabled_ones_too(person: Person) -> None:
    home, other = person.session(), person.session()
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


def test_confirmed_the_routines_go_along_with_what_waits_of_them_elsewhere(person: Person) -> None:
    home, elsewhere = person.session(), person.session()
    mine, without = add(person, "A", home), add(person, "B")
    turn: Turn = receive(elsewhere.pk, Input(content="hello"))
    RunRecord.objects.create(
        run_id=f"{mine.pk}:1000", job=mine, scheduled_for=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), turn=turn
    )
    said = delete_session(home.pk, delete_automations=True)
    assert (said.deleted, said.deleted_ids) == (True, (mine.pk,))
    assert list(CronJob.objects.values_list("pk", flat=True)) == [without.pk]
    assert list(JobClock.objects.values_list("pk", flat=True)) == [without.pk]
    assert not RunRecord.objects.exists()
    turn.refresh_from_db()
    assert turn.state == "cancelled"
    assert not any(orphans().values())


def test_an_agent_is_blocked_by_all_its_routines_and_takes_them_along(person: Person) -> None:
    added = {add(person, "A", person.session()).pk, add(person, "B").pk}
    said = delete_agent(person.agent.pk)
    assert {each.id for each in said.blockers} == added
    said = delete_agent(person.agent.pk, delete_automations=True)
    assert (said.deleted, set(said.deleted_ids)) == (True, added)
    assert not CronJob.objects.exists()
    assert not Agent.objects.exists()


def test_a_routine_that_is_added_just_before_the_delete_is_in_its_way(person: Person) -> None:
    home = person.session()
    with gate(home, UPDATE) as door:
        door.start(lambda: add(person, "A", home))
        door.start(lambda: delete_session(home.pk))
        added, said = door.open()
    assert (said.deleted, [each.id for each in said.blockers]) == (False, [added.pk])
    assert Session.objects.filter(pk=home.pk, state="open").exists()


def test_a_routine_that_is_added_just_after_the_delete_began_is_refused(person: Person) -> None:
    home = person.session()
    with gate(home, UPDATE) as door:
        door.start(lambda: delete_session(home.pk))
        door.start(lambda: add(person, "A", home))
        said, refusal = door.open()
    assert said.deleted
    assert isinstance(refusal, NotFound | SessionClosed)
    assert not CronJob.objects.exists()
    assert not any(orphans().values())
