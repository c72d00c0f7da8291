"""What another system posts by a hook is a turn and nothing more: no yes, reply, retry or command (rule 7.3)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_core.llm.protocol import ModelReply
from sessions_app.hooks.edit import NewHook, add_hook, token_of
from sessions_app.memory.task_state import remember
from sessions_app.models import ConsentQuestion, Delivery, ExecutionState, OnBusy, Session, TaskState, Turn
from sessions_app.queue.receive import MessageInput, receive
from tests.agent_core.planner.plans import RESPOND, ask, form, plan, says, tool
from tests.api.test_hooks import Poster
from tests.inside import Inside, call, listening, makes
from tests.sessions_app.turns.test_receive import automation

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("2.2", "3.5", "7.3")]

PLACE = "https://ci.invalid/answers"
FROM_THERE = {"channel": "webhook", "chat_id": PLACE, "meta": {}}


class System:
    """Another system with a hook of the session's, whose answers go to PLACE."""

    def __init__(self, session: Session, **may: Any) -> None:
        """`may`: `as_person` and `allow_tools`."""
        about: Any = {"agent_id": session.agent_id, "session_id": session.pk}
        about |= {"name": "CI", "channel": "webhook", "address": PLACE}
        self.hook = hook = add_hook(NewHook(**about, **may))
        self.session, self.poster, self.posted = session, Poster(id=hook.pk, token=token_of(hook)), 0

    def post(self, text: str, **more: Any) -> Turn:
        self.posted += 1
        answer = self.poster({"content": text} | more, Webhook_Id=f"{self.posted}")
        assert answer.status_code == 202, answer.content
        return Turn.objects.get(pk=answer.json()["turn"])


def erase(name: str) -> ModelReply:
    return makes(call("erase", name=name))


def post(inside: Inside, system: System, text: str) -> Turn:
    """A post, answered; the session is as it is then."""
    turn = system.post(text)
    inside.run(system.session)
    turn.refresh_from_db()
    return turn


@pytest.mark.rule("4.9")
@pytest.mark.parametrize("as_person", [False, True])
def test_only_a_persons_post_sets_the_last_route_and_title(inside: Inside, *, as_person: bool) -> None:
    session = inside.person.session()
    system = System(session, as_person=as_person)
    turn = post(inside, system, "Build 7 failed.")
    assert (turn.kind, turn.state, turn.input.route) == ("message", "succeeded", FROM_THERE)
    assert session.last_route == (FROM_THERE if as_person else None)
    assert session.title == ("Build 7 failed." if as_person else "")
    said = turn.messages.get(role="assistant")
    assert said.metadata["route"] == FROM_THERE, "the answer leaves by the hook's own route"
    inside.say(session, "Good morning.")
    assert (session.last_route or {})["channel"] == "web"
    post(inside, system, "Build 8 failed.")
    assert session.last_route["channel"] == ("webhook" if as_person else "web")


@pytest.mark.rule("4.9")
@pytest.mark.parametrize("as_person", [False, True])
def test_a_yes_is_consent_only_if_a_person_says_it(inside: Inside, *, as_person: bool) -> None:
    session = inside.person.session()
    inside.model.answer_with(erase("disk"), says("May I?"))
    inside.say(session, "Tidy up.", route=FROM_THERE)
    earlier = datetime.now(UTC) - timedelta(seconds=5)  # the stamp of a post tells whole seconds
    ConsentQuestion.objects.update(asked_at=earlier)
    Delivery.objects.update(state="sent", ended_at=earlier)
    inside.model.answer_with(erase("disk"), says("So be it."))
    assert post(inside, System(session, as_person=as_person), "yes").state == "succeeded"
    assert inside.did("disk") == int(as_person)
    assert ConsentQuestion.objects.get().state == ("granted" if as_person else "open")


def test_a_post_voids_the_persons_next_yes_to_earlier_questions(inside: Inside, session: Session) -> None:
    """The yes is to be the very next message; who asks again is given it."""
    inside.model.answer_with(erase("disk"), says("May I?"))
    inside.say(session, "Tidy up.")
    inside.model.answer_with(says("Noted."))
    post(inside, System(session), "Build 7 failed.")
    inside.model.answer_with(erase("disk"), says("May I?"))
    inside.say(session, "yes")
    assert inside.did("disk") == 0
    inside.model.answer_with(erase("disk"), says("Erased."))
    inside.say(session, "yes")
    assert inside.did("disk") == 1


def test_a_yes_already_sent_does_not_approve_a_posts_call(inside: Inside, session: Session) -> None:

    def agree() -> None:
        receive(session.pk, MessageInput(content="yes", on_busy=OnBusy.INJECT))

    replies = erase("disk"), says("May I erase the disk?"), erase("disk"), says("I must not.")
    inside.model.answer_with(makes(call("listen")), *replies)
    with listening(agree):
        posted = post(inside, System(session, allow_tools=("listen",)), "Please erase the disk.")
    early = Turn.objects.get(content="yes")
    assert (posted.state, early.state) == ("succeeded", "succeeded")
    assert early.host_id is None, "a person is not taken along into another system's turn"
    assert inside.did("disk") == 0
    inside.model.answer_with(erase("disk"), says("Erased."))
    inside.say(session, "yes")
    assert inside.did("disk") == 1


def test_a_waiting_post_is_not_merged_into_a_persons_turn(inside: Inside, session: Session) -> None:
    system = System(session)
    refused = system.poster({"on_busy": "inject"}, Webhook_Id="inject")
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_on_busy")
    inside.model.answer_with(makes(call("listen")), says("Done."))
    with listening(lambda: system.post("yes, erase it all")):
        first = inside.say(session, "Look around.")
    posted = Turn.objects.get(content="yes, erase it all")
    assert (first.state, posted.state, posted.host_id) == ("succeeded", "succeeded", None)
    assert "erase it all" not in str(inside.model.calls[1])


@pytest.mark.rule("4.9")
@pytest.mark.parametrize("said", ["yes", "the left one", "/clear", "try again"])
def test_a_post_starts_its_own_request_and_answers_no_question(inside: Inside, said: str) -> None:
    inside.planner()
    session = inside.person.session()
    inside.model.answer_with(plan(ask("Which one?", confirm=True)))
    inside.say(session, "Take one.")
    waiting = ExecutionState.objects.get()
    before = waiting.status
    inside.model.answer_with(plan(RESPOND), says("Noted."))
    assert post(inside, System(session), said).state == "succeeded"
    waiting.refresh_from_db()
    assert (waiting.status, waiting.closed_by) == (before, "")
    own = ExecutionState.objects.exclude(pk=waiting.pk).get()
    assert (own.request, own.status, own.final_answer) == (said, "completed", "Noted.")
    inside.model.answer_with(plan(RESPOND), says("Took it."))
    inside.say(session, "yes")
    waiting.refresh_from_db()
    assert (waiting.status, waiting.final_answer) == ("completed", "Took it.")


def test_a_post_is_no_consent_to_a_planned_step(inside: Inside, session: Session) -> None:
    inside.planner()
    inside.model.answer_with(plan(tool("erase", name="disk"), RESPOND))
    inside.say(session, "Tidy up.")
    assert ExecutionState.objects.get().status == "waiting_confirmation"
    inside.model.answer_with(plan(RESPOND), says("Noted."))
    post(inside, System(session), "yes")
    inside.say(session, "yes")
    assert inside.did("disk") == 0, "the post was answered since, so the server asks again"
    inside.model.answer_with(form("revise_plan", action="continue", steps=[]), says("Erased."))
    inside.say(session, "yes")
    assert inside.did("disk") == 1


def test_a_post_tries_nothing_again(inside: Inside, session: Session) -> None:
    inside.planner()
    inside.model.answer_with(says("no plan"), says("no plan either"))
    inside.say(session, "Do the impossible.")
    failed = ExecutionState.objects.get()
    inside.model.answer_with(plan(RESPOND), says("Again what?"))
    post(inside, System(session), "try again")
    failed.refresh_from_db()
    assert failed.status == "failed"
    assert ExecutionState.objects.exclude(pk=failed.pk).get().request == "try again"


@pytest.mark.rule("4.9")
@pytest.mark.parametrize("as_person", [False, True])
def test_clear_is_a_persons_command(inside: Inside, session: Session, *, as_person: bool) -> None:
    inside.say(session, "Hello.")
    remember(session.pk, {"current_goal": "peace"})
    asked = len(inside.model.calls)
    assert post(inside, System(session, as_person=as_person), "/clear").state == "succeeded"
    assert TaskState.objects.get(session=session).current_goal == ("" if as_person else "peace")
    assert (session.window_from_seq > 1) is as_person
    assert len(inside.model.calls) == asked + (0 if as_person else 1)


def test_a_yes_never_approves_calls_refused_to_posts_or_slots(inside: Inside, session: Session) -> None:
    """Neither may ask for consent, so what its answer asks says nothing of the call: a yes is to that answer."""
    inside.model.answer_with(erase("a"), says("Shall I go on with your summary?"))
    post(inside, System(session), "Erase a, and ask whether to go on with the summary.")
    inside.model.answer_with(erase("a"), says("I have to ask."))
    inside.say(session, "yes")
    assert inside.did("a") == 0
    inside.model.answer_with(erase("b"), says("Shall I go on?"))
    automation(session, "Good morning", datetime.now(UTC))
    inside.run(session)
    inside.model.answer_with(erase("b"), says("I have to ask."))
    inside.say(session, "yes")
    assert inside.did("b") == 0
    inside.model.answer_with(erase("b"), says("Erased."))
    inside.say(session, "yes")
    assert inside.did("b") == 1
