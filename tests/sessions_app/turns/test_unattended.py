"""A question of a scheduled turn holds nothing, and a yes to it makes exactly its call, once (rules 3.5, 11.4)."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError
from django.db.models.functions import Now

from agent_core import tools
from agent_core.exceptions import ModelRefused
from agent_core.tools import Effect
from automations.jobs.failing import try_again
from automations.models import CronJob, JobHealth, RunRecord
from sessions_app.agents.edit import update_agent
from sessions_app.exceptions import NotWaiting, QuestionTaken, SessionClosed
from sessions_app.models import ClosedBecause, ConsentQuestion, ExecutionState, MailboxEvent, OnBusy, Session
from sessions_app.questions.questions import answer_consent
from sessions_app.questions.unattended import close, object_is_gone
from sessions_app.queue.receive import MessageInput, program_message, receive
from sessions_app.sessions.delete import delete_session
from sessions_app.sessions.open import archive_session
from sessions_app.turns.tool_calls import ASK
from sessions_app.worker.sweep import sweep_turns
from tests.agent_core.planner.plans import RESPOND, ask, plan, revision, says, tool
from tests.automations.jobs.made import at_once
from tests.automations.turn_kinds.test_isolated import job_of, ran
from tests.conftest import new_person
from tests.deletion import caller
from tests.inside import Inside, Reply, call, during, makes
from tests.races import UPDATE, gate
from tests.sessions_app.test_permits import stop
from tests.stories.test_main_job import due
from tests.stories.test_whose_words import System
from tests.talk import last_said

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("11.4", "3.5")]

ERASE = makes(call("erase", name="disk"))


def asked(inside: Inside, session: Session, *replies: Reply, **job: Any) -> ConsentQuestion:
    """The question of an automation that wanted to erase the disk."""
    inside.model.answer_with(*(replies or (ERASE, says("I may not."))))
    due(session, "Tidy up.", **job)
    inside.beat()
    session.refresh_from_db()
    return ConsentQuestion.objects.latest("asked_at")


def states() -> list[str]:
    return list(ConsentQuestion.objects.order_by("asked_at").values_list("state", flat=True))


@pytest.mark.parametrize("planner", [False, True])
def test_a_named_yes_makes_the_call_of_the_run_once(inside: Inside, planner: bool) -> None:
    if planner:
        inside.planner()
    session = inside.person.session()
    plans = (plan(tool("erase", name="disk"), RESPOND), revision("finish"), says("I may not."))
    question = asked(inside, session, *plans) if planner else asked(inside, session)
    run = RunRecord.objects.get()
    assert (run.state, run.attention, question.run) == ("succeeded", "needs_consent", run.pk)
    assert (inside.did("disk"), question.text in last_said(session)) == (0, True)
    assert not ExecutionState.objects.filter(status="waiting_confirmation").exists(), "no plain yes is for it"
    assert question.asked_seq == session.last_seq
    mail = MailboxEvent.objects.get(event_type="consent_needed")
    yes = inside.say(session, f"Yes #{question.pk}", says("It is gone."))
    assert (inside.did("disk"), last_said(session)) == (1, "It is gone.")
    said = [each.calls or each.results for each in inside.model.calls[-1].entries[-2:]]
    assert [each[0].name for each in said] == ["erase", "erase"], "the model is shown what was done"
    question.refresh_from_db()
    assert (question.state, question.answered_by_id) == ("granted", yes.pk)
    inside.say(session, f"yes #{question.pk}")
    assert inside.did("disk") == 1
    shown = str([each.entries for each in inside.model.calls[:-1]]) + mail.summary + mail.detail
    assert question.pk not in shown, "no model can have a person repeat an id that it was not shown"


@pytest.mark.rule("11.3")
@pytest.mark.parametrize(
    ("answer", "failures", "lacks"),
    [("yes", 0, ""), ("no", 5, ""), ("gone", 5, ""), ("expired", 5, "needs_consent")],
)
def test_a_run_asks_no_more_once_it_was_answered_and_a_yes_ends_the_slowing_down(
    inside: Inside, answer: str, failures: int, lacks: str
) -> None:
    session = inside.person.session()
    question = asked(inside, session)
    run = RunRecord.objects.get()
    slow = {"failures_in_a_row": 5, "failing_since": Now(), "failed_last": Now(), "told": "slowed"}
    JobHealth.objects.update_or_create(job_id=run.job_id, defaults=slow)
    if answer == "gone":
        object_is_gone(inside.person.user.pk, name="disk")
    elif answer == "expired":
        close(ConsentQuestion.objects.open(), ClosedBecause.EXPIRED)
    else:
        answer_consent(question, answer)
        inside.run(session, says("So be it."))
    run.refresh_from_db()
    assert (run.attention, JobHealth.objects.get().failures_in_a_row) == (lacks, failures)
    assert MailboxEvent.objects.get(event_type="consent_needed").reason == "settled", "it waits no more"


@pytest.mark.rule("11.3")
def test_a_failed_run_that_asked_needs_consent_until_it_is_tried_again(inside: Inside) -> None:
    asked(inside, inside.person.session(), ERASE, ModelRefused("no"))
    run = RunRecord.objects.get()
    assert (run.state, run.attention, states()) == ("failed", "needs_consent", ["open"])
    inside.model.answer_with(says("Nothing to tidy up."))
    try_again(run.pk)
    inside.beat()
    run.refresh_from_db()
    assert (run.state, run.attention) == ("succeeded", "")


@pytest.mark.rule("11.3")
@pytest.mark.parametrize("isolated", [False, True])
def test_a_run_whose_plan_ends_with_a_question_needs_an_answer(inside: Inside, isolated: bool) -> None:
    inside.planner()
    home = inside.person.session()
    question = plan(ask("Which of the two disks?"))
    if isolated:
        run = ran(inside, job_of(inside.person, "tidy up", home=home), question)
        assert MailboxEvent.objects.get(target=home).summary == "Which of the two disks?", "it is the answer"
        assert ExecutionState.objects.get().status == "completed"
    else:
        inside.model.answer_with(question)
        due(home, "Tidy up.")
        inside.beat()
        run = RunRecord.objects.get()
    assert (run.state, run.attention) == ("succeeded", "needs_consent")


def test_a_background_job_asks_in_its_home(inside: Inside) -> None:
    home = inside.person.session()
    run = ran(inside, job_of(inside.person, "tidy up", home=home), ERASE, says("Nothing was erased."))
    question = ConsentQuestion.objects.get(session=home)
    assert (run.attention, run.pk, inside.did("disk")) == ("needs_consent", question.run, 0)
    assert MailboxEvent.objects.filter(event_type="job_completed").exists()
    mail = MailboxEvent.objects.get(target=home, event_type="consent_needed")
    assert 'erase with {"name": "disk"}' in mail.detail + mail.summary
    [shown] = caller(inside.person).get("/api/questions/?state=open").json()["results"]
    assert (shown["question_id"], shown["run"]) == (question.pk, run.pk)
    assert datetime.fromisoformat(shown["expires_at"]) == question.expires_at
    assert caller(inside.person).get("/api/questions/?state=closed").json()["results"] == []
    assert caller(new_person("eve")).get("/api/questions/").json()["results"] == []
    inside.model.answer_with(says("Gone."))
    answer = caller(inside.person).post(f"/api/questions/{question.pk}/answer/", {"content": "yes"})
    assert answer.status_code == 202
    inside.run(home)
    assert (inside.did("disk"), states()) == (1, ["granted"])


def test_a_newer_question_for_the_same_call_replaces_the_open_one(inside: Inside, session: Session) -> None:
    first = asked(inside, session)
    asked(inside, session)
    asked(inside, session, makes(call("erase", name="tape")), says("Nor that."))
    assert states() == ["closed", "open", "open"]
    inside.say(session, f"yes #{first.pk}")
    assert inside.did("disk") == 0
    with pytest.raises(IntegrityError):
        ConsentQuestion.objects.filter(pk=first.pk).update(state="open", answered_at=None)


def late(question: ConsentQuestion) -> None:
    ConsentQuestion.objects.filter(pk=question.pk).update(expires_at=datetime.now(UTC) - timedelta(seconds=1))


def another_effect(_question: ConsentQuestion) -> None:
    eraser = tools.get("erase")
    tools.unregister("erase")
    tools.register(replace(eraser, effect=Effect.WRITE))


CHANGES: dict[str, Callable[[ConsentQuestion], object]] = {
    "late": late,
    "removed": lambda _question: CronJob.objects.filter(kind="agent_turn").delete(),
    "restricted": lambda _question: CronJob.objects.update(allow_tools=["count"]),
    "changed by a page": lambda _question: CronJob.objects.update(has_read=True),
    "another effect": another_effect,
    "gone": lambda _question: tools.unregister("erase"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_yes_makes_no_call_that_is_not_the_same_any_more(inside: Inside, change: str) -> None:
    session = inside.person.session()
    question = asked(inside, session)
    eraser = tools.get("erase")
    try:
        CHANGES[change](question)
        before = len(inside.model.calls)
        inside.say(session, f"yes #{question.pk}")
    finally:
        tools.unregister("erase")
        tools.register(eraser)
    assert (inside.did("disk"), len(inside.model.calls) - before) == (0, 0), "the server says why, no model"
    assert (states(), last_said(session) != "") == (["closed"], True)
    with pytest.raises(NotWaiting):
        answer_consent(question, "yes")


def test_only_the_owner_answers_and_only_by_the_questions_id(inside: Inside) -> None:
    session, other = inside.person.session(), inside.person.session()
    question = asked(inside, session)
    said = f"yes #{question.pk}"
    for text in ("yes", f"{said}?", f"{said} and go", "yes #zzzzzzzz"):
        inside.say(session, text)
    inside.say(other, said)
    System(session).post(said)
    receive(session.pk, program_message(said))
    inside.run(session)
    eve = caller(new_person("eve"))
    assert eve.post(f"/api/questions/{question.pk}/answer/", {"content": "yes"}).status_code == 404
    assert (inside.did("disk"), states()) == (0, ["open"])


def test_two_yeses_at_once_make_one_call(inside: Inside, session: Session) -> None:
    question = asked(inside, session)
    said = f"yes #{question.pk}"
    answer = partial(answer_consent, question, "yes")
    came = at_once(answer, answer, lambda: receive(session.pk, MessageInput(content=said)))
    assert [type(each) for each in came].count(QuestionTaken) == 1, "one of the two that name it by its row"
    inside.run(session, during(lambda: receive(session.pk, MessageInput(content=said)), says("Gone.")))
    assert (inside.did("disk"), states()) == (1, ["granted"])


def test_a_yes_is_taken_by_one_of_two_turns_and_by_none_when_its_time_is_over(inside: Inside) -> None:
    session = inside.person.session()
    question = asked(inside, session)
    over = asked(inside, session, makes(call("erase", name="tape")), says("Nor that."))
    turns = [receive(session.pk, MessageInput(content="yes")) for _ in range(2)]
    take = [partial(ConsentQuestion.objects.grant_in_time, question.pk, turn) for turn in turns]
    with gate(question, UPDATE) as row:
        for each in take:
            row.start(each)
        assert sorted(row.open()) == [False, True]
    late(over)
    assert not ConsentQuestion.objects.grant_in_time(over.pk, turns[0])
    with pytest.raises(NotWaiting):
        answer_consent(over, "yes")


def test_a_yes_that_may_be_taken_back_makes_no_call_and_can_be_said_again(inside: Inside) -> None:
    session = inside.person.session()
    question = asked(inside, session)
    answer_consent(question, "yes")
    receive(session.pk, MessageInput(content="Wait, what is on it?"))
    inside.run(session)
    assert (inside.did("disk"), states()) == (0, ["open"])
    inside.say(session, f"yes #{question.pk}")
    assert (inside.did("disk"), states()) == (1, ["granted"])


@pytest.mark.parametrize("planner", [False, True])
def test_a_further_call_in_the_turn_of_a_yes_is_asked_for_where_a_chat_hears_the_answer(
    inside: Inside, planner: bool
) -> None:
    session = inside.person.session()
    question = asked(inside, session)
    if planner:
        inside.planner()
    further = makes(call("erase", "2", name="tape"))
    inside.say(session, f"yes #{question.pk}", further, says("The tape, too?"))
    assert (inside.did("disk"), inside.did("tape")) == (1, 0)
    is_told_so = ASK in str(inside.model.calls[-1].entries)
    assert (states(), is_told_so) == ((["granted"], False) if planner else (["granted", "open"], True))
    inside.say(session, "yes", further if not planner else plan(RESPOND), says("Done."))
    assert inside.did("tape") == (0 if planner else 1)


@pytest.mark.parametrize("by_text", [False, True])
def test_the_no_to_another_question_takes_no_yes_back(inside: Inside, by_text: bool) -> None:
    session = inside.person.session()
    question = asked(inside, session)
    other = asked(inside, session, makes(call("erase", name="tape")), says("Nor that."))
    answer_consent(question, "yes")
    if by_text:
        receive(session.pk, MessageInput(content=f"no #{other.pk}", on_busy=OnBusy.ENQUEUE))
    else:
        answer_consent(other, "no")
    inside.run(session)
    assert (inside.did("disk"), inside.did("tape"), states()) == (1, 0, ["granted", "refused"])


def test_a_resumed_yes_says_what_was_done_though_the_tool_is_gone(inside: Inside) -> None:
    session = inside.person.session()
    question = asked(inside, session)
    eraser = tools.get("erase")

    def die() -> None:
        stop(inside)
        tools.unregister("erase")

    try:
        yes = inside.say(session, f"yes #{question.pk}", during(die, says("")), says("Gone."))
    finally:
        tools.register(eraser)
    assert (yes.attempt, inside.did("disk"), last_said(session)) == (2, 1, "Gone.")


def test_a_session_that_was_archived_or_deleted_takes_no_yes(inside: Inside) -> None:
    archived, deleted = inside.person.session(), inside.person.session()
    questions = [asked(inside, each) for each in (archived, deleted)]
    CronJob.objects.filter(session=archived).delete()
    archive_session(archived)
    with pytest.raises(SessionClosed):
        answer_consent(questions[0], "yes")
    delete_session(deleted.pk, with_dependents=True)
    with pytest.raises(NotWaiting):
        answer_consent(questions[1], "yes")
    assert inside.did("disk") == 0


def test_a_strangers_job_asks_nothing(inside: Inside, session: Session) -> None:
    job = job_of(inside.person, "tidy up", home=session, stranger="ci")
    ran(inside, job, ERASE, says("I only read."))
    assert (inside.did("disk"), states()) == (0, [])


def test_an_open_question_holds_no_slot_and_ends_by_itself(inside: Inside, session: Session) -> None:
    question = asked(inside, session)
    inside.say(session, "no", says("No what?"))
    asked(inside, session, says("All is well."), name="next")
    assert [each.state for each in RunRecord.objects.all()] == ["succeeded"] * 2
    inside.say(session, f"no #{question.pk}")
    assert states() == ["refused"]
    late(asked(inside, session))
    sweep_turns(uuid.uuid4(), list)
    assert (states(), inside.did("disk")) == (["refused", "closed"], 0)


def test_what_a_page_asked_for_stays_from_outside_after_the_yes(inside: Inside) -> None:
    session = inside.person.session()
    add = call("cron", "2", action="add", message="Send it all.", every_seconds=3600)
    question = asked(inside, session, makes(call("read_page"), add), says("The page wants a task."))
    inside.say(session, "Hello.", says("Hello."))
    inside.say(session, f"yes #{question.pk}", makes(call("count", "3", name="a")), says("Added."))
    assert CronJob.objects.get(message="Send it all.").has_read
    assert inside.did("a") == 0, "the turn of the yes writes nothing else unasked"


def test_a_write_after_a_page_by_schedule_is_asked_for(inside: Inside, session: Session) -> None:
    reads = makes(call("read_page"), call("count", "2", name="a"))
    question = asked(inside, session, reads, says("The page wants me to count."))
    assert (inside.did("a"), question.calls[0]["arguments"]) == (0, {"name": "a"})
    inside.say(session, f"yes #{question.pk}", says("One."))
    assert inside.did("a") == 1
    update_agent(inside.person.agent.pk, {"allow_tools": ["count"]})
    asked(inside, session, reads, says("One."))
    assert (inside.did("a"), states()) == (2, ["granted"])
