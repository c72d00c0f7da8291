"""Which question an answer is for, what a yes lets happen, and what a plan stays bound by (rules 3.5, 7.3, 7.4)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent_core.execution import Status
from agent_core.turn.consent import question_of
from sessions_app.exceptions import NotWaiting, QuestionTaken
from sessions_app.memory.task_state import remember
from sessions_app.models import ConsentQuestion, ExecutionState, MailboxEvent, OnBusy, Session, TaskState
from sessions_app.questions.questions import answer_consent, answer_question
from sessions_app.queue.receive import MessageInput, receive
from tests.agent_core.planner.plans import RESPOND, ask, plan, revision, says, tool
from tests.inside import Inside
from tests.sessions_app.turns.test_receive import automation
from tests.talk import fresh, last_said

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.5")]

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


def test_a_slot_waits_for_no_consent_and_informs_its_home(planner: Inside) -> None:
    """Whatever the type of the session: a person's plain yes lets nothing of it happen."""
    for session in (Session.objects.get(key="unified:default"), planner.person.session()):
        slot(planner, session, ERASE, revision("finish"), says("I may not."))
        assert not ExecutionState.objects.filter(session=session, status="waiting_confirmation").exists()
        assert MailboxEvent.objects.filter(target=session, event_type="consent_needed").count() == 1
        planner.say(session, "yes", plan(RESPOND), says("Hello."))
    assert planner.did("disk") == 0
    assert list(ConsentQuestion.objects.values_list("state", flat=True)) == ["open"] * 2


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
