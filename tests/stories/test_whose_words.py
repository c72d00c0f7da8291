"""What another system posts by a hook is a turn and nothing more: no yes, reply, retry or command (rule 7.3)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_core.llm.protocol import ModelReply
from agent_core.testing import ModelServer
from agent_core.types import ToolCall
from sessions_app.hooks.edit import NewHook, add_hook
from sessions_app.hooks.tokens import token_of
from sessions_app.memory.task_state import remember
from sessions_app.models import (
    Agent,
    ConsentQuestion,
    Engine,
    ExecutionState,
    Message,
    OnBusy,
    Session,
    TaskState,
    Turn,
)
from sessions_app.turns.receive import MessageInput, receive
from tests import plugins
from tests.agent_core.planner.plans import RESPOND, ask, form, plan, says, tool
from tests.api.test_hooks import Poster
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.sessions_app.turns.test_receive import automation
from tests.talk import ended, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("2.2", "3.5", "7.3")]

PLACE = "https://ci.invalid/answers"
FROM_THERE = {"channel": "webhook", "chat_id": PLACE, "meta": {}}


class System:
    """Another system with a hook of the session's, whose answers go to PLACE."""

    def __init__(
        self, session: Session, *, as_person: bool = False, allow_tools: tuple[str, ...] = ()
    ) -> None:
        new = NewHook(
            agent_id=session.agent_id,
            session_id=session.pk,
            name="CI",
            channel="webhook",
            address=PLACE,
            as_person=as_person,
            allow_tools=allow_tools,
        )
        self.hook = hook = add_hook(new)
        self.session, self.poster, self.posted = session, Poster(id=hook.pk, token=token_of(hook)), 0

    def post(self, text: str, **more: Any) -> Turn:
        self.posted += 1
        answer = self.poster({"content": text} | more, Webhook_Id=f"{self.posted}")
        assert answer.status_code == 202, answer.content
        return Turn.objects.get(pk=answer.json()["turn"])

    def say(self, text: str) -> Turn:
        """A message, answered; the session is as it is then."""
        turn = self.post(text)
        until(lambda: ended(turn))
        self.session.refresh_from_db()
        return turn


@pytest.fixture
def planner(person_with_server: Person) -> Person:
    """Someone whose agent plans."""
    Agent.objects.update(engine=Engine.PLANNER, policy={"max_attempts": 1})
    person_with_server.agent.refresh_from_db()
    return person_with_server


def erase(name: str) -> ModelReply:
    return ModelReply(text="", calls=(ToolCall(id="1", name="erase", arguments={"name": name}),))


@pytest.mark.rule("4.9")
@pytest.mark.parametrize("as_person", [False, True])
def test_only_a_persons_post_sets_the_last_route_and_title(
    fleet: Fleet, person: Person, *, as_person: bool
) -> None:
    fleet.worker()
    session = person.session()
    turn = System(session, as_person=as_person).say("Build 7 failed.")
    assert (turn.kind, turn.state, turn.metadata["route"]) == ("message", "succeeded", FROM_THERE)
    assert session.last_route == (FROM_THERE if as_person else None)
    assert session.title == ("Build 7 failed." if as_person else "")
    said = Message.objects.filter(session=session, role="assistant").get()
    assert said.metadata["route"] == FROM_THERE, "the answer leaves by the hook's own route"
    say(session, "Good morning.")
    assert session.last_route is not None
    assert session.last_route["channel"] == "web"
    System(session, as_person=as_person).say("Build 8 failed.")
    assert session.last_route["channel"] == ("webhook" if as_person else "web")


@pytest.mark.rule("4.9")
@pytest.mark.parametrize("as_person", [False, True])
def test_a_yes_is_consent_only_if_a_person_says_it(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, tmp_path: Path, *, as_person: bool
) -> None:
    fleet.worker()
    session = person_with_server.session()
    system = System(session, as_person=as_person)
    model_server.answer_with(erase("disk"), says("May I?"), erase("disk"), says("So be it."))
    say(session, "Tidy up.")
    assert system.say("yes").state == "succeeded"
    assert plugins.calls(tmp_path, "disk") == int(as_person)
    assert ConsentQuestion.objects.get().state == ("granted" if as_person else "open")


def test_a_post_voids_the_persons_next_yes_to_earlier_questions(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, tmp_path: Path
) -> None:
    """The yes is to be the very next message; who asks again is given it."""
    fleet.worker()
    session = person_with_server.session()
    model_server.answer_with(erase("disk"), says("May I?"), says("Noted."))
    say(session, "Tidy up.")
    System(session).say("Build 7 failed.")
    model_server.answer_with(erase("disk"), says("May I?"), erase("disk"), says("Erased."))
    say(session, "yes")
    assert plugins.calls(tmp_path, "disk") == 0
    say(session, "yes")
    assert plugins.calls(tmp_path, "disk") == 1


def test_a_yes_already_sent_does_not_approve_a_posts_call(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, tmp_path: Path
) -> None:
    fleet.worker()
    session = person_with_server.session()
    waits = ModelReply(text="", calls=(ToolCall(id="2", name="wait", arguments={"name": "a"}),))
    model_server.answer_with(waits, erase("disk"), says("May I erase the disk?"))
    posted = System(session, allow_tools=("wait",)).post("Please erase the disk.")
    until(lambda: plugins.calls(tmp_path, "a"))
    early = receive(session.pk, MessageInput(content="yes", on_busy=OnBusy.INJECT))
    model_server.answer_with(erase("disk"), says("I must not."), erase("disk"), says("Erased."))
    (tmp_path / "a.go").touch()
    until(lambda: ended(posted) and ended(early))
    assert (posted.state, early.state) == ("succeeded", "succeeded")
    assert early.host_id is None, "a person is not taken along into another system's turn"
    assert plugins.calls(tmp_path, "disk") == 0
    say(session, "yes")
    assert plugins.calls(tmp_path, "disk") == 1


def test_a_waiting_post_is_not_merged_into_a_persons_turn(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, tmp_path: Path
) -> None:
    fleet.worker()
    session = person_with_server.session()
    system = System(session)
    first = receive(session.pk, MessageInput(content='use tool wait with {"name": "a"}'))
    until(lambda: plugins.calls(tmp_path, "a"))
    refused = system.poster({"on_busy": "inject"}, Webhook_Id="inject")
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_on_busy")
    posted = system.post("yes, erase it all")
    (tmp_path / "a.go").touch()
    until(lambda: ended(first) and ended(posted))
    assert (first.state, posted.state, posted.host_id) == ("succeeded", "succeeded", None)
    assert "erase it all" not in str(model_server.requests[1].body)


@pytest.mark.rule("4.9")
@pytest.mark.parametrize("said", ["yes", "the left one", "/clear", "try again"])
def test_a_post_starts_its_own_request_and_answers_no_question(
    fleet: Fleet, model_server: ModelServer, planner: Person, said: str
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(ask("Which one?", confirm=True)))
    say(session, "Take one.")
    waiting = ExecutionState.objects.get()
    before = waiting.status
    model_server.answer_with(plan(RESPOND), says("Noted."))
    assert System(session).say(said).state == "succeeded"
    waiting.refresh_from_db()
    assert (waiting.status, waiting.closed_by) == (before, "")
    own = ExecutionState.objects.exclude(pk=waiting.pk).get()
    assert (own.request, own.status, own.final_answer) == (said, "completed", "Noted.")
    model_server.answer_with(plan(RESPOND), says("Took it."))
    say(session, "yes")
    waiting.refresh_from_db()
    assert (waiting.status, waiting.final_answer) == ("completed", "Took it.")


def test_a_post_is_no_consent_to_a_planned_step(
    fleet: Fleet, model_server: ModelServer, planner: Person, tmp_path: Path
) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(plan(tool("erase", name="disk"), RESPOND))
    say(session, "Tidy up.")
    assert ExecutionState.objects.get().status == "waiting_confirmation"
    model_server.answer_with(plan(RESPOND), says("Noted."))
    System(session).say("yes")
    say(session, "yes")
    assert plugins.calls(tmp_path, "disk") == 0, "the post was answered since, so the server asks again"
    model_server.answer_with(form("revise_plan", action="continue", steps=[]), says("Erased."))
    say(session, "yes")
    assert plugins.calls(tmp_path, "disk") == 1


def test_a_post_tries_nothing_again(fleet: Fleet, model_server: ModelServer, planner: Person) -> None:
    fleet.worker()
    session = planner.session()
    model_server.answer_with(says("no plan"), says("no plan either"))
    say(session, "Do the impossible.")
    failed = ExecutionState.objects.get()
    model_server.answer_with(plan(RESPOND), says("Again what?"))
    System(session).say("try again")
    failed.refresh_from_db()
    assert failed.status == "failed"
    assert ExecutionState.objects.exclude(pk=failed.pk).get().request == "try again"


@pytest.mark.rule("4.9")
@pytest.mark.parametrize("as_person", [False, True])
def test_clear_is_a_persons_command(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, *, as_person: bool
) -> None:
    fleet.worker()
    session = person_with_server.session()
    say(session, "Hello.")
    remember(session.pk, {"current_goal": "peace"})
    asked = len(model_server.requests)
    assert System(session, as_person=as_person).say("/clear").state == "succeeded"
    assert TaskState.objects.get(session=session).current_goal == ("" if as_person else "peace")
    assert (session.window_from_seq > 1) is as_person
    assert len(model_server.requests) == asked + (0 if as_person else 1)


def test_a_yes_never_approves_calls_refused_to_posts_or_slots(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, tmp_path: Path
) -> None:
    """Neither may ask for consent, so what its answer asks says nothing of the call: a yes is to that answer."""
    fleet.worker()
    session = person_with_server.session()
    model_server.answer_with(erase("a"), says("Shall I go on with your summary?"))
    System(session).say("Erase a, and ask whether to go on with the summary.")
    model_server.answer_with(erase("a"), says("I have to ask."))
    say(session, "yes")
    assert plugins.calls(tmp_path, "a") == 0
    model_server.answer_with(erase("b"), says("Shall I go on?"))
    slot = automation(session, "Good morning", datetime.now(UTC))
    until(lambda: ended(slot))
    model_server.answer_with(erase("b"), says("I have to ask."), erase("b"), says("Erased."))
    say(session, "yes")
    assert plugins.calls(tmp_path, "b") == 0
    say(session, "yes")
    assert plugins.calls(tmp_path, "b") == 1
