"""Planned turns: stored after each step, resumed after a SIGKILL, asked and answered; whose question is answered."""

import re
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.db.models.functions import Now
from django.urls import reverse

from agent_core.execution import Status
from agent_core.turn.consent import question_of
from automations.models import JobClock
from sessions_app.exceptions import NotWaiting, QuestionTaken
from sessions_app.memory.task_state import remember
from sessions_app.models import (
    Agent,
    ConsentQuestion,
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
from sessions_app.questions.questions import answer_consent, answer_question
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.engine import CLOSED
from tests.admin.conftest import make_job
from tests.agent_core.planner.plans import RESPOND, ask, plan, revision, says, tool
from tests.automations.jobs.made import at_once
from tests.automations.web.test_addresses import signed_in
from tests.inside import Inside, during
from tests.sessions_app.test_permits import stop
from tests.sessions_app.turns.test_receive import automation
from tests.talk import fresh, last_said

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.5", "7.1", "7.6")]


def waiting_song(session: Session, execution_id: str) -> ExecutionState:
    """Another execution of the session, which has asked later."""
    asked = {"status": Status.WAITING_USER, "question": "Which song?", "asked_at": Now()}
    asked |= {"source": "message", "request": "Sing."}
    return ExecutionState.objects.create(id=execution_id, session=session, **asked)


@pytest.mark.rule("7.2", "7.4")
def test_a_plan_goes_on_from_its_rows_after_it_was_broken_off(planner: Inside, session: Session) -> None:
    asks = ask("Which colour, 红 or blue?")
    first = plan(tool("count", name="one"), tool("count", name="two"), asks, RESPOND)
    broken = during(partial(stop, planner), revision("continue"))
    turn = planner.say(session, "Count.", first, broken, revision("continue"), revision("continue"))
    assert (turn.state, turn.attempt, planner.did("one"), planner.did("two")) == ("succeeded", 2, 1, 1)
    assert Event.objects.filter(turn_id=turn.pk, type="plan").count() == 1
    stored = ExecutionState.objects.get()
    assert (stored.status, stored.question) == (Status.WAITING_USER, last_said(session))
    planner.say(session, "是, the first one", plan(RESPOND), says("Painted it red."))
    assert "Question: Which colour, 红 or blue?\nReply: 是, the first one" in planner.model.shown(-2)
    assert (fresh(stored).status, stored.final_answer) == (Status.COMPLETED, "Painted it red.")


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


@pytest.mark.rule("7.3", "7.4")
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


ERASE = plan(tool("erase", name="disk"), RESPOND)


def slot(planner: Inside, session: Session, *replies: Any) -> None:
    """An automation's turn, in which the model says this."""
    planner.model.answer_with(*replies)
    automation(session, "look after it", datetime.now(UTC))
    planner.run(session)


def test_a_plan_stores_its_question_and_uses_a_yes_once(planner: Inside, session: Session) -> None:
    asked_in = planner.say(session, "Tidy up.", ERASE)
    execution, asked = ExecutionState.objects.get(), ConsentQuestion.objects.get()
    assert (asked.pk, asked.execution, asked.turn_id) == (execution.question_id, execution.pk, asked_in.pk)
    assert asked.text == execution.question == last_said(session)
    assert asked.asked_seq == execution.asked_seq == session.last_seq
    [call] = asked.calls
    assert (call["id"], call["name"], call["arguments"]) == (f"{execution.pk}.1.1", "erase", {"name": "disk"})
    yes = planner.say(session, "yes", revision("replace_remaining", tool("erase", name="disk"), RESPOND))
    assert planner.did("disk") == 1
    first, second = ConsentQuestion.objects.order_by("asked_seq")
    assert (first.state, first.answered_by_id, first.calls[0]["used"]) == ("granted", yes.pk, call["id"])
    expected = ("open", execution.pk)
    assert (second.state, second.execution) == expected  # the same call again is another question
    planner.say(session, "no", revision("finish"), says("It stays."))
    assert (fresh(second).state, planner.did("disk")) == ("refused", 1)


def test_another_reply_closes_the_question(planner: Inside, session: Session) -> None:
    planner.say(session, "Tidy up.", ERASE)
    planner.say(session, "what would be left?", plan(RESPOND), says("Nothing would be left."))
    assert ConsentQuestion.objects.get().state == "closed"
    assert planner.did("disk") == 0


@pytest.mark.rule("7.3", "7.4")
def test_a_reply_answers_the_latest_question_not_the_latest_plan(planner: Inside, session: Session) -> None:
    planner.say(session, "Bake a cake.", plan(ask("How large?")))
    cake = ExecutionState.objects.get()
    slot(planner, session, plan(ask("Shall I go on with the build?", confirm=True)))
    build = ExecutionState.objects.exclude(pk=cake.pk).get()
    planner.model.answer_with(plan(ask("With nuts?", confirm=True)))
    answered = answer_question(cake, "large")
    planner.run(session)
    answered.refresh_from_db()
    planner.say(session, "yes", plan(RESPOND), says("Baked."))
    build.refresh_from_db()
    assert (fresh(cake).status, cake.final_answer) == (Status.COMPLETED, "Baked.")
    assert build.status == Status.WAITING_CONFIRMATION


def test_a_plain_yes_after_other_messages_repeats_the_question(planner: Inside) -> None:
    for number, request in enumerate(("Tidy up.", "整理一下")):
        session = planner.person.session()
        planner.say(session, request, ERASE)
        before = ConsentQuestion.objects.get(session=session)
        slot(planner, session, plan(RESPOND), says("Shall I order milk?"))
        MailboxEvent.objects.create(target=session, event_type="job_completed", summary="the news")
        asked = len(planner.model.calls)
        planner.say(session, "yes")
        assert (planner.did("disk"), len(planner.model.calls)) == (number, asked)
        question = ConsentQuestion.objects.get(session=session)
        again = question_of(question.calls, question_id=question.pk, like=request, again=True)
        assert last_said(session) == again == question.text
        assert (question.pk, question.asked_seq) == (before.pk, session.last_seq)
        news = MailboxEvent.objects.filter(target=session, event_type="job_completed")
        assert not news.filter(acknowledged_at__isnull=False).exists()
        planner.say(session, "好", revision("continue"), says("Gone."))
        assert planner.did("disk") == number + 1


def test_a_yes_naming_its_question_counts_despite_later_messages(planner: Inside) -> None:
    for number, name in enumerate(("pk", "execution"), 1):
        session = planner.person.session()
        planner.say(session, "Tidy up.", ERASE)
        asked = ConsentQuestion.objects.get(session=session)
        slot(planner, session, plan(RESPOND), says("Shall I order milk?"))
        planner.say(session, f"yes #{getattr(asked, name)}", revision("continue"), says("Gone."))
        assert planner.did("disk") == number, name


def test_a_yes_does_not_answer_the_same_plans_next_question(planner: Inside, session: Session) -> None:
    planner.say(session, "Tidy up.", plan(ask("Shall I look first?", confirm=True)))
    execution = ExecutionState.objects.get()
    planner.model.answer_with(ERASE)
    first = receive(session.pk, MessageInput(content="yes", on_busy=OnBusy.ENQUEUE))
    late = receive(session.pk, MessageInput(content=f"yes #{execution.pk}", on_busy=OnBusy.ENQUEUE))
    planner.run(session)
    late.refresh_from_db()
    assert (fresh(first).state, late.state, late.error_code) == ("succeeded", "failed", "question_closed")
    assert planner.did("disk") == 0
    assert ConsentQuestion.objects.get().state == "open"


@pytest.mark.rule("7.3", "7.4")
def test_one_answer_at_a_time(planner: Inside, session: Session) -> None:
    planner.say(session, "Tidy up.", ERASE)
    execution, asked = ExecutionState.objects.get(), ConsentQuestion.objects.get()
    first = answer_question(execution, "yes", "key")
    with pytest.raises(QuestionTaken):
        answer_consent(asked, "no")
    planner.run(session, revision("continue"), says("Gone."))
    assert planner.did("disk") == 1
    assert answer_question(execution, "yes", "key").pk == first.pk
    with pytest.raises(NotWaiting):
        answer_consent(asked, "yes")


@pytest.mark.rule("7.3", "7.4")
def test_an_answer_is_an_answer_and_no_command(planner: Inside) -> None:
    """Sent to its question by id, or said while it waits; outside a question it is the command."""
    for word, by_id in (("清空", True), ("/clear", True), ("清空", False)):
        session = planner.person.session()
        remember(session.pk, {"current_goal": "peace"})
        planner.model.answer_with(plan(ask("Delete one, or clear all?")), plan(RESPOND), says("All gone."))
        planner.say(session, "Tidy up.")
        execution = session.executions.get()
        if by_id:
            answered = answer_question(execution, word)
            planner.run(session)
        else:
            answered = planner.say(session, word)
        assert (fresh(execution).reply, execution.final_answer) == (word, "All gone.")
        assert answered.input.command == ""
        assert TaskState.objects.get(session=session).current_goal == "peace"
        planner.say(session, word)
        assert TaskState.objects.get(session=session).current_goal == ""


@pytest.mark.rule("7.4")
def test_an_answer_that_is_sent_twice_is_one_and_goes_to_no_other_question(
    planner: Inside, session: Session
) -> None:
    planner.say(session, "Paint the door.", plan(ask("Which colour?")))
    client, execution = signed_in(planner.person), ExecutionState.objects.get()
    page = client.get(f"/sessions/{session.pk}/").content.decode()
    [question] = re.findall(r'name="question" value="(\w+)"', page)

    def send(content: str, to: str) -> int:
        address = reverse("answer-plan", args=[execution.pk])
        given = {"content": content, "question": to}
        return int(client.post(address, given, headers={"HX-Request": "true"}).status_code)

    assert [send("red", other) for other in ("", "another")] == [409, 409]
    assert at_once(*[partial(send, "blue", question)] * 2) == [204, 204]
    planner.run(session, plan(RESPOND), says("It is blue."))
    said = Message.objects.filter(session=session, role="user").values_list("content", flat=True)
    assert list(said) == ["Paint the door.", "blue"]


def test_a_plan_that_read_a_page_asks_before_each_write(planner: Inside, session: Session) -> None:
    planner.model.answer_with(plan(tool("read_page"), ask("Shall I go on?", confirm=True)))
    planner.say(session, "Read that page, then count.")
    assert ExecutionState.objects.get().has_read
    for done, request in enumerate(("yes", "try again")):
        planner.say(session, request, plan(tool("count", name="a"), RESPOND))
        asked = ConsentQuestion.objects.get(state="open")
        assert (planner.did("a"), asked.calls[0]["name"], last_said(session)) == (done, "count", asked.text)
        planner.say(session, "yes", revision("continue"), says("One."))
        assert planner.did("a") == done + 1
    planner.model.answer_with(plan(tool("count", name="a"), RESPOND), revision("continue"), says("One."))
    planner.say(session, "Count now.")
    assert planner.did("a") == 3
