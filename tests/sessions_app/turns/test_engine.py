"""Planned turns in real workers: stored after each step, resumed after a SIGKILL, asked and answered."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db.models import QuerySet
from django.db.models.functions import Now

from agent_core.execution import Status
from agent_core.llm.protocol import ModelReply
from agent_core.testing import ModelServer
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import NewJob, create_job
from automations.models import JobClock, RunRecord
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
from sessions_app.turns.cancel import cancel_turn
from sessions_app.turns.engine import CLOSED
from sessions_app.turns.questions import answer_question
from sessions_app.turns.receive import MessageInput, receive
from tests import plugins
from tests.agent_core.planner.plans import RESPOND, ask, plan, revision, says, tool
from tests.automations.turn_kinds.test_isolated import job_of
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.talk import ended, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("7.1", "7.6")]


@pytest.fixture
def planner(person_with_server: Person) -> Person:
    """Someone whose agent plans."""
    Agent.objects.filter(pk=person_with_server.agent.pk).update(
        engine=Engine.PLANNER, policy={"max_attempts": 1}
    )
    person_with_server.agent.refresh_from_db()
    return person_with_server


def last_answer(session: Session) -> str:
    return Message.objects.filter(session=session, role="assistant").latest("seq").content


def prompts(server: ModelServer) -> list[str]:
    return [received.body["messages"][-1]["content"] for received in server.requests]


@pytest.mark.rule("7.4")
def test_a_question_outlives_the_worker_that_asked_it(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    worker = fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(ask("Which colour, 红 or blue?"), RESPOND))
    say(session, "Paint the shed.")
    assert last_answer(session) == "Which colour, 红 or blue?"
    waiting = ExecutionState.objects.get()
    assert (waiting.status, waiting.question) == (Status.WAITING_USER, "Which colour, 红 or blue?")
    worker.kill()
    fleet.worker()
    model_server.answer_with(plan(RESPOND), says("Painted it red."))
    say(session, "是, the first one")
    assert "Question: Which colour, 红 or blue?\nReply: 是, the first one" in prompts(model_server)[1]
    assert last_answer(session) == "Painted it red."
    done = ExecutionState.objects.get()
    assert (done.pk, done.status, done.final_answer) == (waiting.pk, Status.COMPLETED, "Painted it red.")


@pytest.mark.rule("7.2")
def test_a_plan_resumes_at_the_step_a_killed_worker_reached(
    fleet: Fleet, model_server: ModelServer, planner: Person, tmp_path: Path
) -> None:
    worker = fleet.worker()
    session = planner.session()
    model_server.answer_with(
        plan(tool("count", name="one"), tool("wait", name="two"), RESPOND), revision("continue")
    )
    turn = receive(session.pk, MessageInput(content="Count and wait."))
    until(lambda: plugins.calls(tmp_path, "two"))
    stored = ExecutionState.objects.get()
    assert [step["status"] for step in stored.steps] == ["done", "running", "pending"]
    worker.kill()
    model_server.answer_with(revision("continue"), says("All counted."))
    fleet.worker()
    until(lambda: ended(turn))
    assert (turn.state, turn.attempt) == (TurnState.SUCCEEDED, 2)
    assert last_answer(session) == "All counted."
    assert (plugins.calls(tmp_path, "one"), plugins.calls(tmp_path, "two")) == (1, 1)
    assert [step["status"] for step in ExecutionState.objects.get().steps] == ["done", "failed", "done"]
    assert Event.objects.filter(turn_id=turn.pk, type="plan").count() == 1


@pytest.mark.rule("7.3")
def test_an_unavailable_planner_on_a_reply_keeps_the_question(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(ask("Which one?")))
    say(session, "Take one.")
    failed = say(session, "[[fail:503]] the left one")
    assert (failed.state, failed.error_code) == (TurnState.FAILED, "model_unavailable")
    assert ExecutionState.objects.get().status == Status.WAITING_USER
    model_server.answer_with(plan(RESPOND), says("Took the left one."))
    say(session, "the left one")
    assert "Question: Which one?\nReply: the left one" in prompts(model_server)[-2]
    assert ExecutionState.objects.get().status == Status.COMPLETED


def test_a_failed_plan_is_retried_with_what_it_knows(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(says("no plan"), says("no plan either"))
    turn = say(session, "Do the impossible.")
    assert turn.error_code == "invalid_plan"
    failed = ExecutionState.objects.get()
    assert (failed.status, failed.last_error) == (Status.FAILED, "The model did not make a valid plan.")
    model_server.answer_with(plan(RESPOND), says("It works now."))
    say(session, "try again")
    done = ExecutionState.objects.get()
    assert (done.pk, done.status, done.final_answer) == (failed.pk, Status.COMPLETED, "It works now.")
    assert "Do the impossible." in prompts(model_server)[2]


@pytest.mark.rule("7.3")
@pytest.mark.parametrize("word", ["是", "好", "继续", "ok"])
def test_a_short_word_is_a_reply_only_while_something_waits(
    fleet: Fleet, model_server: ModelServer, planner: Person, word: str
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(RESPOND), says("Yes?"))
    say(session, word)
    assert f"# Request\n\n{word}" in prompts(model_server)[0]
    assert "# Resume" not in prompts(model_server)[0]
    ExecutionState.objects.all().delete()
    model_server.answer_with(plan(ask("Shall I?", confirm=True)), plan(RESPOND), says("Did it."))
    say(session, "Do it.")
    say(session, word)
    assert f"Question: Shall I?\nReply: {word}" in prompts(model_server)[-2]


@pytest.mark.rule("7.4")
def test_two_messages_at_once_are_one_turn_that_hears_both(
    fleet: Fleet, model_server: ModelServer, planner: Person, tmp_path: Path
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(tool("wait", name="a"), RESPOND))
    first = receive(session.pk, MessageInput(content="Look."))
    until(lambda: plugins.calls(tmp_path, "a"))
    second = receive(session.pk, MessageInput(content="And hurry."))
    model_server.answer_with(revision("continue"), says("Looked in a hurry."))
    (tmp_path / "a.go").touch()
    until(lambda: ended(first))
    until(lambda: ended(second))
    assert (first.state, second.state) == (TurnState.SUCCEEDED, TurnState.MERGED)
    assert "And hurry." in prompts(model_server)[1]
    told = Message.objects.filter(session=session).order_by("seq").values_list("role", "content")
    assert list(told) == [("user", "Look."), ("user", "And hurry."), ("assistant", "Looked in a hurry.")]


@pytest.mark.rule("7.3")
def test_clear_empties_only_its_own_conversation(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session, other = planner.session(), planner.session()
    for each in (session, other):
        model_server.answer_with(plan(ask("Which?")))
        say(each, "Take one.")
        remember(each.pk, {"current_goal": "take one"})
    say(session, "/clear")
    assert last_answer(session).startswith("Conversation cleared.")
    assert [each.status for each in session.executions.all()] == [Status.CANCELLED]
    assert session.executions.get().closed_by == "clear"
    assert TaskState.objects.get(session=session).current_goal == ""
    assert Message.objects.filter(session=session).count() == 4
    model_server.answer_with(plan(RESPOND), says("Hello."))
    say(session, "Hello")
    assert [message["content"] for message in model_server.requests[-1].body["messages"][1:-1]] == []
    assert other.executions.get().status == Status.WAITING_USER
    assert TaskState.objects.get(session=other).current_goal == "take one"


def test_a_reply_answers_the_newest_question_unless_another_is_named(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(ask("Which cake?")))
    say(session, "Bake a cake.")
    old = ExecutionState.objects.get()
    ExecutionState.objects.create(
        id="newer222",
        session=session,
        source="message",
        status=Status.WAITING_USER,
        request="Sing.",
        question="Which song?",
        asked_at=Now(),
    )
    model_server.answer_with(plan(RESPOND), says("Sung."))
    say(session, "the sad one")
    assert "Question: Which song?" in prompts(model_server)[1]
    ExecutionState.objects.filter(pk="newer222").update(status=Status.WAITING_USER)
    model_server.answer_with(plan(RESPOND), says("Baked."))
    say(session, f"lemon, for #{old.pk}")
    assert "Question: Which cake?" in prompts(model_server)[3]
    old.refresh_from_db()
    assert old.status == Status.COMPLETED


def test_a_cancelled_turn_ends_its_execution_and_leaves_the_others(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(ask("Which?")))
    say(session, "Take one.")
    turn = receive(session.pk, MessageInput(content="[[hold:plan]] Please list my automations and wait."))
    until(lambda: model_server.held.get("plan"))
    cancel_turn(turn.pk)
    until(lambda: ended(turn))
    assert turn.state == TurnState.CANCELLED
    assert ExecutionState.objects.filter(status__in=["planning", "running"]).count() == 0


def test_an_unreadable_end_of_a_turn_leaves_nothing_at_work(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    """The database holds it: one at work for each session, and only in a turn."""
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(RESPOND), ModelReply(text=""))
    turn = say(session, "Say nothing.")
    assert turn.error_code == "no_answer"
    assert ExecutionState.objects.get().status == Status.FAILED


@pytest.mark.rule("7.4")
def test_an_automation_starts_its_own_and_leaves_what_waits_alone(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(ask("Which?")))
    say(session, "Take one.")
    waiting = ExecutionState.objects.get()
    job = create_job(
        NewJob(session_id=session.pk, message="yes", schedule={"kind": "every", "seconds": 3600})
    )
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    model_server.answer_with(plan(RESPOND), says("All quiet."))
    fire_due_jobs()
    until(lambda: RunRecord.objects.filter(job=job, finished_at__isnull=False).first())
    waiting.refresh_from_db()
    assert waiting.status == Status.WAITING_USER
    own = ExecutionState.objects.exclude(pk=waiting.pk).get()
    assert (own.source, own.status, own.final_answer) == ("automation", Status.COMPLETED, "All quiet.")


@pytest.mark.rule("7.4")
def test_a_background_question_is_the_answer_and_is_mailed_home(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    home = planner.session()
    job_of(planner, "write the report", home=home)
    model_server.answer_with(plan(ask("For which month?")))
    fire_due_jobs()
    until(lambda: MailboxEvent.objects.filter(target=home).first())
    assert MailboxEvent.objects.get(target=home).summary == "For which month?"
    assert ExecutionState.objects.get().status == Status.COMPLETED


@pytest.mark.rule("7.5")
def test_live_state_is_read_anew_and_memory_is_ignored(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    remember(session.pk, {"important_facts": ["the old automation was at nine"]})
    create_job(
        NewJob(session_id=session.pk, name="tea", message="tea", schedule={"kind": "every", "seconds": 3600})
    )
    model_server.answer_with(plan(RESPOND), says("One."))
    say(session, "Which automations are there?")
    assert "'tea'" in prompts(model_server)[0]
    assert "at nine" not in prompts(model_server)[0]
    model_server.answer_with(plan(RESPOND), says("Hello."))
    say(session, "Hello")
    assert "at nine" in prompts(model_server)[2]
    assert TaskState.objects.get().important_facts == ["the old automation was at nine"]


@pytest.mark.rule("3.5", "7.3", "7.4")
@pytest.mark.parametrize(
    ("question", "status"),
    [
        (tool("erase", name="disk"), Status.WAITING_CONFIRMATION),
        (ask("Which cake?"), Status.WAITING_USER),
    ],
)
def test_a_message_before_the_question_is_not_its_answer(
    fleet: Fleet,
    model_server: ModelServer,
    planner: Person,
    tmp_path: Path,
    question: dict[str, Any],
    status: Status,
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(tool("wait", name="a"), question))
    first = receive(session.pk, MessageInput(content="Tidy up."))
    until(lambda: plugins.calls(tmp_path, "a"))
    early = receive(session.pk, MessageInput(content="ok", on_busy=OnBusy.ENQUEUE))
    model_server.answer_with(revision("continue"), plan(RESPOND), says("Hello."))
    (tmp_path / "a.go").touch()
    until(lambda: ended(first))
    until(lambda: ended(early))
    assert plugins.calls(tmp_path, "disk") == 0
    assert ExecutionState.objects.filter(status=status).count() == 1


@pytest.mark.rule("3.5")
def test_a_second_answer_to_one_question_answers_no_other(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(ask("Which cake?")))
    say(session, "Bake.")
    cake = ExecutionState.objects.get()
    other = ExecutionState.objects.create(
        id="other222", session=session, source="message", status=Status.WAITING_USER, request="Sing.",
        question="Which song?", asked_at=Now(),
    )  # fmt: skip
    model_server.answer_with(plan(RESPOND), says("Baked."))
    first = answer_question(cake, "lemon")
    until(lambda: ended(first))
    second = say(session, f"yes #{cake.pk}")
    assert (second.state, second.error_code) == (TurnState.FAILED, "question_closed")
    assert CLOSED in last_answer(session)
    other.refresh_from_db()
    assert other.status == Status.WAITING_USER


def _are(rows: QuerySet[RunRecord], number: int) -> bool:
    return rows.count() == number


def test_a_job_that_asks_at_each_slot_has_one_question(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    job = create_job(
        NewJob(session_id=session.pk, message="ask", schedule={"kind": "every", "seconds": 3600})
    )
    over = RunRecord.objects.filter(job=job, finished_at__isnull=False)
    for number in (1, 2):
        JobClock.objects.filter(job=job).update(next_run_at=Now())
        model_server.answer_with(plan(ask(f"Question {number}?")))
        fire_due_jobs()
        until(partial(_are, over, number))
    waiting = ExecutionState.objects.get(status=Status.WAITING_USER)
    assert waiting.question == "Question 2?"
    assert ExecutionState.objects.get(status=Status.CANCELLED).closed_by == "newer"


def test_a_question_is_answerable_however_much_ran_since(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(ask("Which cake?")))
    say(session, "Bake.")
    ExecutionState.objects.bulk_create(
        ExecutionState(
            id=f"more{n}", session=session, source="automation", status=Status.COMPLETED, request="x"
        )
        for n in range(30)
    )
    model_server.answer_with(plan(RESPOND), says("Baked."))
    say(session, "lemon")
    assert "Question: Which cake?" in prompts(model_server)[1]


def test_switching_the_engine_during_a_turn_keeps_the_session_usable(
    fleet: Fleet, model_server: ModelServer, planner: Person, tmp_path: Path
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(tool("wait", name="a")))
    turn = receive(session.pk, MessageInput(content="Wait."))
    until(lambda: plugins.calls(tmp_path, "a"))
    Agent.objects.filter(pk=planner.agent.pk).update(engine=Engine.CHAT)
    model_server.answer_with(says("no form"), says("no form"))
    (tmp_path / "a.go").touch()
    until(lambda: ended(turn))
    assert not ExecutionState.objects.filter(status__in=["planning", "running"]).exists()
    Agent.objects.filter(pk=planner.agent.pk).update(engine=Engine.PLANNER)
    model_server.answer_with(plan(RESPOND), says("Hello."))
    assert say(session, "Hello").state == TurnState.SUCCEEDED


def test_after_clear_nothing_old_is_taken_up_again(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(RESPOND), says("Planned."))
    say(session, "Plan the surprise.")
    say(session, "/clear")
    model_server.answer_with(plan(RESPOND), says("Hello."))
    say(session, "again, hello")
    assert "surprise" not in prompts(model_server)[2]


def test_clear_leaves_mail_for_a_turn_that_shows_it(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    MailboxEvent.objects.create(target=session, event_type="job_completed", summary="the news")
    say(session, "/clear")
    assert MailboxEvent.objects.get().acknowledged_at is None
    model_server.answer_with(plan(RESPOND), says("News."))
    say(session, "Hello")
    assert "the news" in prompts(model_server)[0]
    assert MailboxEvent.objects.get().acknowledged_at is not None


def test_an_unavailable_planner_on_a_new_request_keeps_the_question(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(ask("Which one?")))
    say(session, "Take one.")
    say(session, "[[fail:503]] nothing")  # a reply: nothing came of it
    say(session, "List my automations [[fail:503]]")
    assert ExecutionState.objects.get(question="Which one?").status == Status.WAITING_USER


def test_try_again_is_about_what_the_person_asked(
    fleet: Fleet, model_server: ModelServer, planner: Person
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(says("no form"), says("no form"))
    say(session, "Book the flight.")
    ExecutionState.objects.create(
        id="auto2222", session=session, source="automation", status=Status.COMPLETED, request="Water report."
    )
    model_server.answer_with(plan(RESPOND), says("Booked."))
    say(session, "try again")
    assert "# Request\n\nBook the flight." in prompts(model_server)[2]
