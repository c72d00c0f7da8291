"""Planned turns: stored after each step, resumed after a SIGKILL, asked and answered."""

from __future__ import annotations

import pytest
from django.db.models.functions import Now

from agent_core.execution import Status
from automations.models import JobClock
from sessions_app.memory.task_state import remember
from sessions_app.models import (
    Agent,
    Engine,
    Event,
    ExecutionState,
    MailboxEvent,
    Message,
    OnBusy,
    Session,
    TaskState,
    TurnState,
)
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.engine import CLOSED
from tests import plugins
from tests.admin.conftest import make_job
from tests.agent_core.planner.plans import RESPOND, ask, plan, revision, says, tool
from tests.automations.turn_kinds.test_isolated import job_of
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.inside import Inside, during
from tests.model_server import ModelServer
from tests.talk import ended, last_said, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("7.1", "7.6")]


def waiting_song(session: Session, execution_id: str) -> ExecutionState:
    """Another execution of the session, which has asked later."""
    asked = {"status": Status.WAITING_USER, "question": "Which song?", "asked_at": Now()}
    asked |= {"source": "message", "request": "Sing."}
    return ExecutionState.objects.create(id=execution_id, session=session, **asked)


@pytest.mark.long("two workers are killed, and a server that has just started rescues no turn for 15 s")
@pytest.mark.rule("7.2", "7.4")
def test_a_plan_outlives_workers_that_are_killed_at_a_step_and_at_its_question(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    Agent.objects.update(engine=Engine.PLANNER, policy={"max_attempts": 1})
    worker = fleet.worker()
    session = person_with_server.session()
    asks = ask("Which colour, 红 or blue?")
    first = plan(tool("count", name="one"), tool("wait", name="two"), asks, RESPOND)
    model_server.answer_with(first, revision("continue"))
    turn = receive(session.pk, MessageInput(content="Count and wait."))
    until(lambda: plugins.calls(fleet.folder, "two"))
    stored = ExecutionState.objects.get()
    assert [step["status"] for step in stored.steps] == ["done", "running", "pending", "pending"]
    worker.kill()
    model_server.answer_with(revision("continue"))
    worker = fleet.worker()
    until(lambda: ended(turn))
    assert (turn.state, turn.attempt) == (TurnState.SUCCEEDED, 2)
    assert (plugins.calls(fleet.folder, "one"), plugins.calls(fleet.folder, "two")) == (1, 1)
    stored.refresh_from_db()
    assert [step["status"] for step in stored.steps][:2] == ["done", "failed"]
    assert Event.objects.filter(turn_id=turn.pk, type="plan").count() == 1
    assert (stored.status, stored.question) == (Status.WAITING_USER, last_said(session))
    worker.kill()
    fleet.worker()
    asked = len(model_server.requests)
    model_server.answer_with(plan(RESPOND), says("Painted it red."))
    say(session, "是, the first one")
    prompt = model_server.requests[asked].body["messages"][-1]["content"]
    assert "Question: Which colour, 红 or blue?\nReply: 是, the first one" in prompt
    done = ExecutionState.objects.get()
    assert (done.pk, done.status, done.final_answer) == (stored.pk, Status.COMPLETED, last_said(session))


def test_a_failed_plan_is_retried_with_what_the_person_asked(planner: Inside, session: Session) -> None:
    planner.model.answer_with(says("no plan"), says("no plan either"))
    assert planner.say(session, "Do the impossible.").error_code == "invalid_plan"
    failed = ExecutionState.objects.get()
    assert (failed.status, failed.last_error) == (Status.FAILED, "The model did not make a valid plan.")
    ExecutionState.objects.create(
        id="auto2222", session=session, source="automation", status=Status.COMPLETED, request="Water report."
    )
    planner.say(session, "try again", plan(RESPOND), says("It works now."))
    failed.refresh_from_db()
    assert (failed.status, failed.final_answer) == (Status.COMPLETED, "It works now.")
    assert "# Request\n\nDo the impossible." in planner.model.shown(2)


@pytest.mark.rule("7.3")
def test_clear_empties_only_its_own_conversation_and_leaves_mail(planner: Inside) -> None:
    session, other = planner.person.session(), planner.person.session()
    for each in (session, other):
        planner.say(each, "Plan the surprise.", plan(RESPOND), says("Planned."), plan(ask("Which?")))
        planner.say(each, "Take one.")
        remember(each.pk, {"current_goal": "take one"})
    MailboxEvent.objects.create(target=session, event_type="job_completed", summary="the news")
    planner.say(session, "/clear")
    assert last_said(session).startswith("Conversation cleared.")
    expected = [Status.COMPLETED, Status.CANCELLED]
    assert [each.status for each in session.executions.order_by("created_at")] == expected
    assert session.executions.get(status=Status.CANCELLED).closed_by == "clear"
    assert TaskState.objects.get(session=session).current_goal == ""
    assert Message.objects.filter(session=session).count() == 6
    assert MailboxEvent.objects.get().acknowledged_at is None
    planner.say(session, "again, hello", plan(RESPOND), says("Hello."))
    assert [entry.content for entry in planner.model.calls[-1].entries[:-1]] == []
    assert "surprise" not in planner.model.shown(-2)
    assert "the news" in planner.model.shown(-2)
    assert MailboxEvent.objects.get().acknowledged_at is not None
    assert other.executions.get(question="Which?").status == Status.WAITING_USER
    assert TaskState.objects.get(session=other).current_goal == "take one"


@pytest.mark.rule("3.5")
def test_a_reply_answers_the_newest_question_unless_another_is_named(planner: Inside) -> None:
    session = planner.person.session()
    planner.say(session, "Bake a cake.", plan(ask("Which cake?")))
    cake = ExecutionState.objects.get()
    song = waiting_song(session, "newer222")
    ran = {"session": session, "source": "automation", "status": Status.COMPLETED, "request": "x"}
    ExecutionState.objects.bulk_create(ExecutionState(id=f"more{n}", **ran) for n in range(30))  # since then
    planner.say(session, "the sad one", plan(RESPOND), says("Sung."))
    assert "Question: Which song?" in planner.model.shown(-2)
    waiting_song(session, "other222")
    planner.say(session, f"lemon, for #{cake.pk}", plan(RESPOND), says("Baked."))
    assert "Question: Which cake?" in planner.model.shown(-2)
    again = planner.say(session, f"yes #{cake.pk}")
    assert (again.state, again.error_code) == (TurnState.FAILED, "question_closed")
    assert CLOSED in last_said(session)
    states = {each.pk: each.status for each in session.executions.filter(source="message")}
    assert states == {cake.pk: Status.COMPLETED, song.pk: Status.COMPLETED, "other222": Status.WAITING_USER}


def test_a_cancelled_turn_ends_its_execution_and_leaves_the_others(planner: Inside, session: Session) -> None:
    planner.say(session, "Take one.", plan(ask("Which?")))

    def cancel() -> None:
        cancel_turn(planner.handles[-1].turn_id or 0)
        planner.handles[-1].control.cancel()

    turn = planner.say(session, "Please list my automations and wait.", during(cancel, plan(RESPOND)))
    assert turn.state == TurnState.CANCELLED
    assert ExecutionState.objects.filter(status__in=["planning", "running"]).count() == 0
    assert ExecutionState.objects.get(question="Which?").status == Status.WAITING_USER


@pytest.mark.rule("7.4")
def test_an_automation_asks_one_question_and_leaves_what_waits_alone(planner: Inside) -> None:
    session = planner.person.session()
    planner.say(session, "Take one.", plan(ask("Which?")))
    job = make_job(session, "yes")
    for reply in (plan(RESPOND), plan(ask("Question 1?")), plan(ask("Question 2?"))):
        JobClock.objects.filter(job=job).update(next_run_at=Now())
        planner.model.replies = [reply]
        planner.beat()
    own = ExecutionState.objects.filter(source="automation").order_by("created_at")
    assert [(each.status, each.question, each.closed_by) for each in own] == [
        (Status.COMPLETED, "", ""),
        (Status.CANCELLED, "Question 1?", "newer"),
        (Status.WAITING_USER, "Question 2?", ""),
    ]
    assert own[0].final_answer == "Hello."
    assert ExecutionState.objects.get(question="Which?").status == Status.WAITING_USER


@pytest.mark.rule("7.4")
def test_a_background_question_is_the_answer_and_is_mailed_home(planner: Inside) -> None:
    home = planner.person.session()
    job_of(planner.person, "write the report", home=home)
    planner.beat(plan(ask("For which month?")))
    assert MailboxEvent.objects.get(target=home).summary == "For which month?"
    assert ExecutionState.objects.get().status == Status.COMPLETED


@pytest.mark.rule("3.5", "7.3", "7.4")
def test_a_message_before_the_question_is_not_its_answer(planner: Inside) -> None:
    for question, status in (
        (tool("erase", name="disk"), Status.WAITING_CONFIRMATION),
        (ask("Which cake?"), Status.WAITING_USER),
    ):
        session = planner.person.session()
        for text in ("Tidy up.", "ok"):
            receive(session.pk, MessageInput(content=text, on_busy=OnBusy.ENQUEUE))
        planner.run(session, plan(question), plan(RESPOND), says("Hello."))
        assert planner.did("disk") == 0
        assert session.executions.filter(status=status).count() == 1


def test_switching_the_engine_during_a_turn_keeps_the_session_usable(planner: Inside) -> None:
    session = planner.person.session()

    def switch() -> None:
        Agent.objects.update(engine=Engine.CHAT)

    planner.model.answer_with(during(switch, plan(tool("count", name="a"))), says("no form"), says("no form"))
    planner.say(session, "Count.")
    assert not ExecutionState.objects.filter(status__in=["planning", "running"]).exists()
    Agent.objects.update(engine=Engine.PLANNER)
    assert planner.say(session, "Hello", plan(RESPOND), says("Hello.")).state == TurnState.SUCCEEDED
