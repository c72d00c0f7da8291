"""A delete meets all that may come between its steps (rule 4.11), through both interfaces, on connections of their own.

After each race the session is whole or gone, and nothing is left without what it belongs to.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.retries import queue_due_retries
from automations.models import CronJob, JobClock, RunRecord
from sessions_app.agents.edit import update_agent
from sessions_app.exceptions import NotFound, SessionBusy
from sessions_app.models import (
    Agent,
    Delivery,
    DeliveryState,
    Event,
    Message,
    Session,
    SessionState,
    Turn,
    TurnStep,
)
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions import delete
from sessions_app.sessions.delete import delete_session
from tests.admin.conftest import make_job
from tests.automations.jobs.made import EVERY, at_once, new
from tests.chaos.test_locks import connected
from tests.conftest import Person, new_person
from tests.deletion import BLOCKED, BUSY, DELETED, GONE, Interface, caller, interface_of
from tests.fleet import Fleet, until
from tests.model_server import ModelServer
from tests.races import KEY_SHARE, SHARE, UPDATE, backends_that, gate, in_line, in_thread, orphans
from tests.sessions_app.deliveries.test_send import handed_over
from tests.talk import ended

pytestmark = pytest.mark.rule("4.11")

PAST = "2026-01-01T00:00:00Z"


@pytest.fixture(params=["api", pytest.param("admin", marks=pytest.mark.full)])
def interface(request: pytest.FixtureRequest, person: Person) -> Interface:
    return interface_of(request.param, person)


@pytest.fixture(autouse=True)
def _nothing_is_orphaned(transactional_db: None) -> Iterator[None]:
    yield
    assert orphans() == {}


def due(session: Session, **given: Any) -> CronJob:
    job = new(session, schedule=EVERY, **given)
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    return job


@contextmanager
def held_by_a_worker(session: Session) -> Iterator[None]:
    """The session's lock is in other hands: a turn runs, as far as a delete can see."""
    locks = connected()
    try:
        assert locks.try_hold(session.pk)
        yield
    finally:
        locks.close()


def trying() -> int:
    """How many have asked for a session's lock and go on asking."""
    asking = "application_name = 'rondo lock' AND query LIKE 'SELECT pg_try_advisory_lock%'"
    return len(backends_that(asking))


def bind(person: Person, session: Session) -> int:
    """POST an automation; the status."""
    asked = {"message": "bound in between", "schedule": EVERY}
    return int(caller(person).post(f"/api/sessions/{session.pk}/automations/", asked).status_code)


def send(person: Person, session: Session) -> int:
    """POST a message; the status."""
    return int(caller(person).post(f"/api/sessions/{session.pk}/messages/", {"content": "x"}).status_code)


def state(session: Session) -> str | None:
    return Session.objects.filter(pk=session.pk).values_list("state", flat=True).first()


def nothing_is_left_of(session: Session) -> bool:
    rows = (Turn, Message, Event, CronJob, RunRecord)
    left = [model.__name__ for model in rows if model.objects.filter(session_id=session.pk).exists()]
    assert left == []
    return state(session) is None


def test_a_job_bound_after_the_look_blocks_a_delete_unless_jobs_go_along(
    interface: Interface, person: Person
) -> None:
    for together, outcome in ((False, BLOCKED), (True, DELETED)):
        session = person.session()
        asked = partial(interface.delete, session, together=together)  # it has looked, and found nothing
        assert in_line(session, SHARE, partial(bind, person, session), asked) == [201, outcome]
        if together:
            assert nothing_is_left_of(session)
        else:
            assert state(session) == SessionState.OPEN
            assert CronJob.objects.get().session_id == session.pk


def test_who_comes_after_the_session_was_closed_binds_nothing(interface: Interface, person: Person) -> None:
    session = person.session()
    binds = partial(bind, person, session)  # it has seen the session open
    deleted, status = in_line(session, SHARE, partial(interface.delete, session), binds)
    assert deleted == DELETED
    assert status in {404, 409}
    assert nothing_is_left_of(session)


def test_an_accepted_message_is_deleted_and_a_later_one_refused(interface: Interface, person: Person) -> None:
    session = person.session()
    sends = partial(send, person, session)  # at its COMMIT
    assert in_line(session, UPDATE, sends, partial(interface.delete, session)) == [202, DELETED]
    assert nothing_is_left_of(session)
    other = person.session()
    with gate(other, KEY_SHARE) as held:
        held.start(partial(interface.delete, other))  # closed, and about to remove the rows
        assert send(person, other) == 409
        assert held.open() == [DELETED]
    assert send(person, other) == 404
    assert nothing_is_left_of(other)


def test_a_batch_of_beat_that_came_first_leaves_nothing_behind(interface: Interface, person: Person) -> None:
    session = person.session()
    due(session)
    kept = due(person.session())
    deletes = partial(interface.delete, session, together=True)
    fired, deleted = in_line(session, UPDATE, fire_due_jobs, deletes)  # at its COMMIT, with the clocks locked
    assert (fired.claimed, fired.queued, deleted) == (2, 2, DELETED)
    assert nothing_is_left_of(session)
    assert RunRecord.objects.get().job_id == kept.pk


def test_a_later_beat_batch_skips_a_session_being_deleted(interface: Interface, person: Person) -> None:
    session = person.session()
    due(session)
    kept = due(person.session())
    with gate(session, KEY_SHARE) as held:
        held.start(partial(interface.delete, session, together=True))  # it holds the clock
        assert fire_due_jobs().queued == 1
        assert held.open() == [DELETED]
    assert nothing_is_left_of(session)
    assert RunRecord.objects.get().job_id == kept.pk


def test_slots_due_while_turns_are_stopping_are_skipped_without_fault(
    interface: Interface, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete, "LOCK_WAIT", 1.0)
    session = person.session()
    job = due(session)
    with held_by_a_worker(session):
        thread, came = in_thread(partial(interface.delete, session, together=True))
        until(lambda: state(session) == SessionState.DELETING)
        fire_due_jobs()
        thread.join(30)
    assert came == [BUSY]
    assert state(session) == SessionState.OPEN
    run, job = RunRecord.objects.get(), CronJob.objects.get(pk=job.pk)
    assert (run.state, run.reason, job.enabled, job.fault) == ("skipped", "session_closed", True, "")
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    assert fire_due_jobs().queued == 1
    assert interface.delete(session, together=True) == DELETED
    assert nothing_is_left_of(session)


def waits_for_a_retry(session: Session) -> RunRecord:
    """A run whose first attempt has failed: queued, its turn ended, the next one due."""
    job = due(session, max_retry=2)
    fire_due_jobs()
    run = RunRecord.objects.get(job=job)
    Turn.objects.filter(runs=run).update(state="failed", finished_at=Now())
    RunRecord.objects.filter(pk=run.pk).update(attempt=2, not_before=PAST)
    return run


def test_a_run_waiting_for_a_retry_goes_along_also_if_it_is_queued_now(
    interface: Interface, person: Person
) -> None:
    session, other = person.session(), person.session()
    for each in (session, other):
        waits_for_a_retry(each)
    assert interface.delete(other) == BLOCKED
    assert interface.delete(other, together=True) == DELETED
    retries = partial(queue_due_retries, 10)  # it has the clock, and waits for the session
    hints, deleted = in_line(session, UPDATE, retries, partial(interface.delete, session, together=True))
    assert deleted == DELETED
    assert len(hints) <= 1  # it was queued, or gave up because the session was closed by then
    assert queue_due_retries(10) == []
    assert nothing_is_left_of(session)
    assert nothing_is_left_of(other)


def test_concurrent_edits_and_deletes_find_a_job_intact_or_gone(interface: Interface, person: Person) -> None:
    session = person.session()
    job = due(session)
    fire_due_jobs()
    user = caller(person)
    with gate(session, KEY_SHARE) as held:
        held.start(partial(interface.delete, session, together=True))
        held.start(lambda: user.patch(f"/api/automations/{job.pk}/", {"enabled": False}).status_code)
        held.start(lambda: caller(person).delete(f"/api/automations/{job.pk}/").status_code)
        assert held.open() == [DELETED, 404, 404]
    assert nothing_is_left_of(session)


def test_a_late_delete_undoes_no_other(
    interface: Interface, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = person.session()
    since = Session.objects.filter(pk=session.pk).values_list("deleting_since", flat=True)
    with held_by_a_worker(session):
        monkeypatch.setattr(delete, "LOCK_WAIT", 1.0)
        first, came = in_thread(partial(interface.delete, session))
        until(lambda: trying() == 2)  # the worker, and the first delete: it knows how long it will
        monkeypatch.setattr(delete, "LOCK_WAIT", 30.0)
        before = since.get()
        second, came_second = in_thread(partial(interface.delete, session))
        until(lambda: since.get() != before)
        first.join(30)
        assert came == [BUSY]
        assert state(session) == SessionState.DELETING
        assert send(person, session) == 409
    second.join(30)
    assert came_second == [DELETED]
    assert nothing_is_left_of(session)


def test_a_delete_presumed_dead_deletes_nothing_when_it_resumes(interface: Interface, person: Person) -> None:
    session = person.session()
    job = new(session)
    with held_by_a_worker(session):
        thread, came = in_thread(partial(interface.delete, session, together=True))
        until(lambda: state(session) == SessionState.DELETING)
        at_work = person.session()
        Session.objects.filter(pk=at_work.pk).update(state=SessionState.DELETING, deleting_since=Now())
        Session.objects.filter(pk=session.pk).update(deleting_since=PAST)
        assert delete.reopen_abandoned() == 1
        assert state(at_work) == SessionState.DELETING
        Session.objects.filter(pk=at_work.pk).update(state=SessionState.OPEN, deleting_since=None)
        assert send(person, session) == 202
    thread.join(30)
    assert came == [BUSY]
    assert state(session) == SessionState.OPEN
    assert CronJob.objects.get() == job
    assert Turn.objects.get().session_id == session.pk


def test_deliveries_outlive_their_session_and_what_was_not_sent_is_closed(
    interface: Interface, person: Person
) -> None:
    session, other = person.session(), person.session()
    for each in (session, other):
        turn = receive(each.pk, MessageInput(content="x"))
        Message.objects.create(session=each, seq=1, role="assistant", content="y", turn=turn)
        _waits, sent = handed_over(each, 2, address="42", next_attempt_at=PAST)
        Delivery.objects.filter(pk=sent.pk).update(state="sent", ended_at=PAST, next_attempt_at=None)
    assert interface.delete(session) == DELETED
    assert nothing_is_left_of(session)
    closed, sent = Delivery.objects.filter(session_key=session.key).order_by("id")
    assert (closed.state, closed.reason, closed.next_attempt_at) == ("closed", "session_deleted", None)
    assert closed.ended_at is not None
    assert (sent.state, sent.reason) == ("sent", "")
    assert [closed.message_id, sent.message_id, closed.session_id, sent.session_id] == [None] * 4
    kept = Delivery.objects.filter(session=other, message__isnull=False)
    assert set(kept.values_list("state", flat=True)) == {DeliveryState.PENDING, DeliveryState.SENT}


def everything_of(agent: Agent) -> dict[str, int]:
    rows: dict[str, Any] = {
        "agents": Agent.objects.filter(pk=agent.pk),
        "sessions": Session.objects.filter(agent=agent),
        "jobs": CronJob.objects.filter(agent=agent),
        "turns": Turn.objects.filter(session__agent=agent),
        "events": Event.objects.filter(agent_id=agent.pk),
        "steps": TurnStep.objects.filter(turn__session__agent=agent),
    }
    return {name: found.count() for name, found in rows.items() if found.exists()}


def test_deleting_an_agent_removes_its_queue_and_spares_other_agents(
    interface: Interface, person: Person
) -> None:
    neighbour = new_person("bob")
    for each in (person.session(), person.session(), neighbour.session()):
        due(each)
        receive(each.pk, MessageInput(content="x"))
    update_agent(person.agent.pk, {"unified_session": True})
    fire_due_jobs()
    before = everything_of(neighbour.agent)
    assert interface.delete(person.agent) == BLOCKED
    assert interface.delete(person.agent, together=True) == DELETED
    assert everything_of(person.agent) == {}
    assert everything_of(neighbour.agent) == before


def test_a_new_session_is_refused_or_blocks_its_agents_delete(interface: Interface, person: Person) -> None:
    def open_another() -> int:
        return int(caller(person).post("/api/sessions/", {"agent": "demo"}).status_code)

    session = person.session()
    deletes = partial(interface.delete, person.agent)  # it holds the agent
    assert in_line(session, KEY_SHARE, deletes, open_another) == [DELETED, 404]
    another = new_person("bob", unified_session=True)
    theirs = interface_of("api", another)
    session = another.session()
    with gate(session, SHARE) as held:
        held.start(partial(theirs.delete, another.agent))  # it has read which sessions there are
        another.session()
        assert held.open() == [BUSY]
    assert set(Session.objects.filter(agent=another.agent).values_list("state", flat=True)) == {"open"}
    assert theirs.delete(another.agent) == DELETED


def test_concurrent_agent_and_session_deletes_leave_nothing(interface: Interface, person: Person) -> None:
    session = person.session()
    due(session)
    with gate(session, SHARE) as held:
        held.start(partial(interface.delete, person.agent, together=True))
        held.start(partial(interface_of("api", person).delete, person.agent, together=True))
        held.start(partial(interface_of("admin", person).delete, session, together=True))
        came = held.open()
    assert DELETED in came
    assert set(came) <= {DELETED, GONE, BUSY}
    if Agent.objects.exists():  # the session was deleted under both
        assert interface.delete(person.agent, together=True) == DELETED
    assert everything_of(person.agent) == {}


def test_an_agent_delete_removes_legacy_jobs_even_while_beat_fires(
    interface: Interface, person: Person
) -> None:
    session = person.session()
    legacy = new(session)
    CronJob.objects.filter(pk=legacy.pk).update(session=None, session_key="cron:old", deliver=False)
    JobClock.objects.update(next_run_at=Now())
    with gate(session, KEY_SHARE) as held:
        held.start(partial(interface.delete, person.agent))
        assert fire_due_jobs().claimed == 0, "its clock is locked"
        assert held.open() == [DELETED]
    assert everything_of(person.agent) == {}


def test_a_session_opens_again_as_what_it_was(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete, "LOCK_WAIT", 0.5)
    session = person.session()
    new(session)
    Session.objects.filter(pk=session.pk).update(state=SessionState.ARCHIVED)
    with held_by_a_worker(session):
        came = at_once(*[partial(delete_session, session.pk, with_dependents=True)] * 2)
    assert [type(each) for each in came] == [SessionBusy] * 2
    assert state(session) == SessionState.ARCHIVED


def test_cancelling_a_queued_run_during_a_session_delete_never_deadlocks(person: Person) -> None:
    for _ in range(4):
        session = person.session()
        due(session)
        fire_due_jobs()
        turn = Turn.objects.get(session=session)
        deletes = partial(delete_session, session.pk, with_dependents=True)
        cancelled, deleted = at_once(partial(cancel_turn, turn.pk), deletes)
        assert isinstance(cancelled, Turn | NotFound)
        assert deleted.deleted


@pytest.mark.long("a worker whose turn is stopped")
def test_running_turns_stop_and_commit_before_the_session_is_deleted(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    worker = fleet.worker()
    session = person_with_server.session()
    make_job(session, "[[hold:h]] x")
    JobClock.objects.update(next_run_at=Now())
    assert fire_due_jobs().queued == 1
    until(lambda: model_server.held.get("h"))
    receive(session.pk, MessageInput(content="waits behind it"))
    interface = interface_of("api", person_with_server)
    assert interface.delete(session) == BLOCKED
    assert RunRecord.objects.get().state == "running"
    assert interface.delete(session, together=True) == DELETED
    assert nothing_is_left_of(session)
    [last] = [line for line in worker.text().splitlines() if "turn_end" in line]
    assert "state=cancelled" in last
    other = receive(person_with_server.session().pk, MessageInput(content="hello"))
    until(lambda: ended(other))
    assert nothing_is_left_of(session), "nothing recreates it"


@pytest.mark.full
def test_a_turn_claimed_while_the_session_closes_is_also_stopped(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    session = person_with_server.session()
    turn = receive(session.pk, MessageInput(content="[[hold:h]] x"))
    with gate(turn, UPDATE) as held:
        # its claim waits for the row, and has seen the session open; in a small fleet another claim would follow it
        fleet.worker(concurrency=64)
        until(lambda: backends_that("cardinality(pg_blocking_pids(pid)) > 0 AND query LIKE '%claimed%'"))
        locks_of_worker = lock_connections()
        held.start(partial(interface_of("api", person_with_server).delete, session), waits=False)
        # the delete has asked the running turns to stop before it asks for the lock
        until(lambda: lock_connections(answered=True) - locks_of_worker)
        assert state(session) == SessionState.DELETING
        assert held.open() == [DELETED]
    assert nothing_is_left_of(session)


def lock_connections(*, answered: bool = False) -> set[int]:
    """The connections that hold session locks; `answered`: those whose last request for a lock was answered."""
    idle = "AND state = 'idle' AND query LIKE '%pg_try_advisory_lock%'" if answered else ""
    return set(backends_that(f"application_name = 'rondo lock' {idle}"))
