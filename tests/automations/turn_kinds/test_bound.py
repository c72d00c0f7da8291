"""The rules of bound automations, one by one, on real rows.

The turns are claimed and committed here, without a worker's process: tests/stories and tests/chaos have
the processes.
"""

import hashlib
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.text import fence
from agent_core.types import Ending, Entry, Role, TurnResult
from automations import selectors
from automations.firing.fire_jobs import fire_due_jobs
from automations.models import CronJob, JobClock, RunRecord
from sessions_app.journal import Journal
from sessions_app.models import Delivery, Event, Message, Session, Turn, TurnInput, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import claim_next
from sessions_app.turns.commit import commit
from sessions_app.turns.context import Prepared, prepare_turn
from sessions_app.turns.tool_calls import JournalPorts
from tests.automations import messages
from tests.automations.jobs.made import HOURLY, new
from tests.automations.messages import a_worker, claimed
from tests.conftest import Person
from tests.inside import Inside, Reply

pytestmark = pytest.mark.django_db(transaction=True)
ANSWER = TurnResult(ending=Ending.SUCCEEDED, entries=(Entry(role=Role.ASSISTANT, content="All is well."),))


def bound(session: Session, **more: Any) -> CronJob:
    return new(session, name="monitor", message="Check it.", schedule=HOURLY, **more)


def fire(job: CronJob) -> RunRecord:
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    fire_due_jobs()
    return RunRecord.objects.filter(job=job).latest("scheduled_for")


def ran(inside: Inside, job: CronJob, *replies: Reply) -> RunRecord:
    """The run of the slot that is due now, after its turn."""
    inside.model.answer_with(*replies)
    run = fire(job)
    inside.run_all()
    run.refresh_from_db()
    return run


def repeated(inside: Inside, run: RunRecord, *replies: Reply) -> RunRecord:
    """The wait for the run's next attempt is over."""
    RunRecord.objects.filter(pk=run.pk, not_before__isnull=False).update(not_before=Now())
    inside.model.answer_with(*replies)
    inside.beat()
    run.refresh_from_db()
    return run


def begin(session: Session) -> Prepared:
    turn = claimed(session)
    return prepare_turn(turn, Journal(turn))


def run_turn(session: Session, result: TurnResult = ANSWER) -> Turn:
    prepared = begin(session)
    commit(prepared, result)
    return prepared.turn


@pytest.mark.rule("4.8")
def test_the_history_holds_the_readable_trigger_and_the_hash_of_the_prompt(session: Session) -> None:
    job = bound(session)
    run = fire(job)
    run_turn(session)
    trigger, answer = Message.objects.filter(session=session).order_by("seq")
    run.refresh_from_db()
    assert (trigger.role, answer.role, answer.content) == ("user", "assistant", "All is well.")
    assert trigger.content == "Scheduled automation triggered: monitor\n\nCheck it."
    assert trigger.model_content is None, "later turns see what people see"
    about = {"automation_id": job.pk, "automation_name": "monitor", "automation_run_id": run.run_id}
    assert trigger.metadata == about | {"_automation_turn": True, "automation_prompt_ref": run.prompt_ref}
    source = {"kind": "automation", "id": job.pk, "name": "monitor", "run_id": run.run_id}
    assert answer.metadata["source"] == source
    reference = trigger.metadata["automation_prompt_ref"]
    assert (reference["id"], reference["version"] >= 1) == ("cron.agent_turn.reminder", True)
    assert reference["sha256"] == hashlib.sha256(run.rendered_prompt.encode()).hexdigest()
    assert fence.without_fences((run.prompt_variables or {})["task"]) == "Check it."
    assert "Check it." in run.rendered_prompt
    template_words = run.rendered_prompt.replace("Check it.", "").strip().splitlines()[0]
    assert len(template_words) > 10
    kept = str(list(Message.objects.filter(session=session).values()))
    assert template_words not in kept + str(list(Event.objects.values("content")))


@pytest.mark.rule("4.9")
def test_the_answer_goes_where_a_person_last_wrote(person: Person, telegram: None) -> None:
    session = person.session(key="telegram:42", channel="telegram")
    job = bound(session)
    fire(job)
    run_turn(session)
    first = Message.objects.filter(session=session).latest("seq").metadata["route"]
    assert first == {"channel": "telegram", "chat_id": "42", "meta": {}}, "nobody has written yet"
    written = {"channel": "web", "chat_id": "", "meta": {}}
    receive(session.pk, MessageInput(content="hello", about=TurnInput(route=written)))
    run_turn(session)
    session.refresh_from_db()
    assert session.last_route == written, "a person wrote from elsewhere"
    CronJob.objects.filter(pk=job.pk).update(revision=7)
    fire(job)
    run_turn(session)
    assert Message.objects.filter(session=session).latest("seq").metadata["route"] == written
    session.refresh_from_db()
    assert session.last_route == written, "an automation's turn does not change it"


def test_a_session_without_an_address_answers_on_the_web(person: Person, telegram: None) -> None:
    session = person.session(key="telegram:42")
    Session.objects.filter(pk=session.pk).update(chat_id="")
    fire(bound(session))
    run_turn(session)
    assert Message.objects.filter(session=session).latest("seq").metadata["route"]["channel"] == "web"
    assert not Delivery.objects.exists()


def test_one_failing_before_any_message_notifies_the_address(person: Person, telegram: None) -> None:
    session = person.session(key="telegram:42")
    fire(bound(session))
    Turn.objects.filter(session=session).update(metadata={})  # what its trigger is made from
    assert messages.run_turn(session).state == "failed"
    delivery = Delivery.objects.get()
    assert (delivery.channel, delivery.address) == ("telegram", "42")


@pytest.mark.rule("1.3", "2.3")
def test_an_automation_for_a_busy_session_waits_and_shows_pending(person: Person, session: Session) -> None:
    job = bound(session)
    receive(session.pk, MessageInput(content="a long question"))
    busy, run = begin(session), fire(job)
    queued = Turn.objects.get(origin_run=run.pk).state == "queued"
    assert claim_next(session.pk, a_worker(), auto_allowed=True) is None or queued
    assert Turn.objects.filter(session=session, state=TurnState.RUNNING).count() == 1
    waiting = selectors.automation(person.user, job.pk)
    assert (waiting.pending, waiting.state) == (True, "scheduled")
    again = Turn.objects.get(pk=busy.turn.pk)
    assert again.state == "running"
    receive(session.pk, MessageInput(content="and another thing"))
    busy.turn.claim = again.claim
    taken = JournalPorts(journal=busy.journal, context=busy.tool_context).injected()
    assert taken == ("and another thing",), "the running model never sees the automation"
    assert Turn.objects.get(origin_run=run.pk).host_id is None
    commit(busy, ANSWER)
    assert not Message.objects.filter(session=session, content__contains="Check it.").exists()
    following = begin(session)
    assert following.turn.pk == run.turn_id
    running = selectors.automation(person.user, job.pk)
    assert (running.pending, running.state) == (False, "running")
    commit(following, ANSWER)


@pytest.mark.rule("3.6", "4.4")
def test_a_run_follows_its_turn_to_a_closure_that_people_see(session: Session) -> None:
    job = bound(session)
    no_answer = "The model did not answer."
    failed = TurnResult(ending=Ending.FAILED, error_text=no_answer, error_detail="secret-42")
    for text, state, result in (
        ("All is well.", "succeeded", ANSWER),
        ("Finished with no output.", "succeeded", TurnResult(ending=Ending.SUCCEEDED)),
        ("The turn failed: The model did not answer.", "failed", failed),
        ("Stopped.", "cancelled", TurnResult(ending=Ending.CANCELLED)),
    ):
        run = fire(job)
        assert (run.state, run.finished_at) == ("queued", None)
        prepared = begin(session)
        run.refresh_from_db()
        assert (run.state, run.finished_at) == ("running", None)
        commit(prepared, result)
        run.refresh_from_db()
        assert (run.state, run.finished_at is None) == (state, False)
        last = Message.objects.filter(session=session).latest("seq")
        assert (last.role, last.content) == ("assistant", text)
        assert last.metadata["source"]["run_id"] == run.run_id
        told = Event.objects.filter(session=session, type="message", content__seq=last.seq).get()
        assert told.content["text"] == text, "what stands in the history was published"
    assert "secret-42" not in str(list(Message.objects.values())) + str(list(Event.objects.values("content")))
    assert RunRecord.objects.filter(job=job, error_detail="secret-42").count() == 1
