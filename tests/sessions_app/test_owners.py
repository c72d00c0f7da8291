"""All work of an inactive owner stops within 10 s, visibly, and goes on by the usual rules (rule 10.0)."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.fire_messages import fire_due_messages
from automations.firing.inline_routines import (
    InlineRoutineStarter,
    agents_with_due_routines,
    start_due_routines,
)
from automations.firing.retries import queue_due_retries
from automations.jobs.explain import explain
from automations.models import CronJob, JobClock, RunRecord, RunState, ScheduledMessage
from automations.routines.reads import routine
from config.operations.checks import waiting_turns
from config.operations.status import read_status as status
from config.operations.status import status_lines
from sessions_app.deliveries import dispatcher as overdue
from sessions_app.deliveries.send import send_next
from sessions_app.exceptions import OwnerInactive
from sessions_app.limits import running_turns
from sessions_app.models import MailboxEvent, Message, OnBusy, Turn, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import claim_next
from sessions_app.turns.next_lane import next_lane
from sessions_app.worker import sweep as recover
from tests.automations.jobs.made import HOURLY, add, new
from tests.automations.messages import a_worker, claimed, due, later, run_turn
from tests.conftest import Person, new_person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer
from tests.sessions_app.deliveries.conftest import receiver
from tests.sessions_app.deliveries.receivers import Receiver
from tests.sessions_app.deliveries.test_send import handed_over, lane_of, states, told_by
from tests.talk import ended, fresh

__all__ = ["receiver"]  # a fixture
pytestmark = pytest.mark.rule("10.0")

WITHIN = 10.0  # seconds: the rule itself


def set_active(person: Person, active: bool) -> None:
    """As the admin does it."""
    person.user.is_active = active
    person.user.save()


def asleep() -> int:
    return len(recover.WAITING.all(sweep=0.0, **running_turns.bounds()))


def hourly(person: Person, **more: Any) -> CronJob:
    return new(person.session(), schedule=HOURLY, **more)


def make_due(*jobs: CronJob) -> None:
    JobClock.objects.filter(job__in=jobs).update(next_run_at=Now())


def test_running_turns_are_cancelled_and_queued_ones_resume_on_reactivation(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    """The turn of an isolated routine, too, which is told to its home."""
    fleet.worker()
    held = receive(person_with_server.session().pk, MessageInput(content="[[hold:h]] hello"))
    until(lambda: model_server.held.get("h"))
    waits = receive(held.session_id, MessageInput(content="and then?", on_busy=OnBusy.ENQUEUE))
    add(person_with_server, "long", description="[[hold:job]] work", execution_mode="isolated")
    fire_due_jobs()
    Turn.objects.filter(kind="job").update(queued_at=Now() - timedelta(minutes=1))
    until(lambda: model_server.held.get("job"))
    run = RunRecord.objects.get()
    set_active(person_with_server, False)
    until(lambda: ended(held), WITHIN)
    expected = ("cancelled", "owner_inactive", "The account is inactive.")
    assert (held.state, held.error_code, held.error) == expected
    closure = Message.objects.filter(turn=held, role="assistant").latest("seq").content
    assert closure == "Stopped: The account is inactive."
    until(lambda: RunRecord.objects.filter(pk=run.pk, state=RunState.CANCELLED).exists(), WITHIN)
    assert fresh(run).reason == "owner_inactive"
    assert [mail.event_type for mail in MailboxEvent.objects.all()] == ["job_failed"]
    with pytest.raises(OwnerInactive):
        receive(held.session_id, MessageInput(content="hello?"))
    assert (fresh(waits).state, len(model_server.requests)) == ("queued", 2)
    set_active(person_with_server, True)
    until(lambda: ended(waits), WITHIN)
    assert waits.state == "succeeded"


def test_inactive_owners_turns_are_neither_claimed_nor_hinted_nor_woken(person: Person, broker: str) -> None:
    turn, worker = receive(person.session().pk, MessageInput(content="hello")), a_worker()
    Turn.objects.update(queued_at=Now() - timedelta(minutes=9), due_at=Now() - timedelta(minutes=9))
    set_active(person, False)
    assert claim_next(turn.session_id, worker, auto_allowed=True) is None
    assert next_lane(turn.session_id) == []
    assert asleep() == 0
    assert waiting_turns().ok, "it waits for no worker"
    assert any("1 of inactive accounts" in line for line in status_lines(status()))
    set_active(person, True)
    assert not waiting_turns().ok
    assert asleep() == 1
    assert run_turn(turn.session, worker).state == "succeeded"


def test_an_orphaned_turn_is_cancelled_from_its_journal_not_resumed(person: Person, broker: str) -> None:
    """A person who cancelled it before is the one who did."""
    worker = a_worker()
    for is_cancelled, code in ((False, "owner_inactive"), (True, "")):
        turn = receive(person.session().pk, MessageInput(content="hello"))
        assert Turn.objects.hand_back(claimed(turn.session, worker))
        assert not is_cancelled or Turn.objects.request_cancel(turn.pk)
        set_active(person, False)
        if not is_cancelled:
            assert claim_next(turn.session_id, worker, auto_allowed=True) is None
            assert next_lane(turn.session_id) == []
        recover.sweep_turns(worker, list)
        set_active(person, True)  # at once: a request stands
        done = run_turn(turn.session, worker)
        assert (done.state, done.error_code) == ("cancelled", code)


def test_a_scheduled_message_waits_and_is_sent_late(person: Person, broker: str) -> None:
    message, worker = later(person.session()), a_worker()
    due(message, ago=120)
    set_active(person, False)
    assert fire_due_messages().queued == 1, "it is not in the way of what others have due"
    assert claim_next(message.session_id, worker, auto_allowed=True) is None
    assert fresh(message).status == "pending"
    set_active(person, True)
    begun = claimed(message.session, worker)
    assert Turn.objects.hand_back(begun)
    set_active(person, False)  # while it is on its way and its worker gone
    recover.sweep_turns(worker, list)
    assert claim_next(message.session_id, worker, auto_allowed=True) is None
    set_active(person, True)
    assert run_turn(message.session, worker).state == "succeeded"
    assert ScheduledMessage.objects.get(pk=message.pk).status == "sent"
    assert Message.objects.get(turn=begun, role="assistant").metadata["late"] is True


def test_every_kind_of_job_is_skipped_with_the_reason(person: Person, broker: str) -> None:
    dreamer = new_person("bob", dreams=True)
    add(dreamer, "long", execution_mode="isolated")
    hourly(dreamer)
    jobs = CronJob.objects.filter(agent=dreamer.agent)
    assert jobs.count() == 4, "a heartbeat, a dream, a routine, an automation"
    make_due(*jobs)
    set_active(dreamer, False)
    assert fire_due_jobs().queued == 0
    runs = RunRecord.objects.filter(job__in=jobs)
    assert list(runs.values_list("state", "reason")) == [("skipped", "owner_inactive")] * 4
    due_still = JobClock.objects.filter(job__in=jobs, next_run_at__lte=Now())
    assert not due_still.exists(), "none stays at the head"
    assert not Turn.objects.exists()


def test_explain_reports_inactivity_for_waiting_next_and_skipped_runs(person: Person, broker: str) -> None:
    job = hourly(person)
    set_active(person, False)
    shown = explain(person.user, job.pk)
    assert shown.now == "Not run: the owner's account is inactive."
    assert shown.next == ()
    make_due(job)
    fire_due_jobs()
    assert explain(person.user, job.pk).last[0].text == "Not run: the owner's account was inactive."
    set_active(person, True)
    make_due(job)
    fire_due_jobs()
    set_active(person, False)
    assert explain(person.user, job.pk).now == "Waits: the owner's account is inactive."


def test_a_due_retry_ends_with_a_reason_blocking_no_other(person: Person, broker: str) -> None:
    job = hourly(person, max_retry=2)
    make_due(job)
    fire_due_jobs()
    run = RunRecord.objects.get(job=job)
    Turn.objects.update(state=TurnState.FAILED, finished_at=Now())
    RunRecord.objects.update(attempt=2, not_before=Now())
    set_active(person, False)
    assert queue_due_retries(100) == []
    assert (fresh(run).state, run.reason, run.not_before) == (RunState.CANCELLED, "owner_inactive", None)
    assert queue_due_retries(100) == []


def test_an_inline_routine_stays_due_without_beat_looping(person: Person, broker: str) -> None:
    made = add(person, "water", description="the plants")
    person.agent.heartbeat["active_hours"] = [0, 24]
    person.agent.save()
    assert agents_with_due_routines([]) == [person.agent.pk]
    set_active(person, False)
    assert agents_with_due_routines([]) == []
    assert InlineRoutineStarter().step() > 1
    assert start_due_routines(person.agent.pk)[0] is None
    waits = routine(person.user, made.pk).waits_for
    assert waits is not None
    assert waits.reason == "owner_inactive"
    assert not Turn.objects.exists()
    set_active(person, True)
    assert start_due_routines(person.agent.pk)[0] is not None


def test_a_delivery_waits_and_is_sent_late(receiver: Receiver, person: Person) -> None:
    session = told_by(person, f"{receiver.url}/in")
    handed_over(session, created_at=Now() - timedelta(minutes=9))
    set_active(person, False)
    swept: list[Any] = []
    overdue.sweep_deliveries(swept.append)
    assert (swept, send_next(lane_of(session))) == ([], False)
    set_active(person, True)
    overdue.sweep_deliveries(swept.append)
    assert swept == [lane_of(session)]
    assert send_next(lane_of(session))
    assert states(session) == ["sent"]
