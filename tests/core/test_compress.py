"""A long conversation: older messages become task state, within the budget, and nothing is deleted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings

from agent_core import tokens
from agent_core.testing import ModelServer
from agent_core.types import StepKind
from sessions_app import history
from sessions_app.memory import remember
from sessions_app.models import Message, Session, TaskState, TurnStep
from sessions_app.receive import Input, receive
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.planner.plans import says
from tests.talk import ended, say

pytestmark = pytest.mark.django_db(transaction=True)
BUDGET = {"RONDO_CONTEXT_TOKENS": "2000", "RONDO_WINDOW_MESSAGES": "10"}
WHOLE = {
    "current_goal": "build a shed",
    "active_flow": "",
    "open_loops": [],
    "important_facts": ["Ada likes red", "The price is 5 EUR"],
    "last_decision": "",
}
KEPT = says(json.dumps(WHOLE))


def short_of_tokens(fleet: Fleet) -> None:
    fleet.environ |= BUDGET
    fleet.worker()


def long_session(person: Person, messages: int = 60, size: int = 200) -> Session:
    """A session with so many messages of so many characters."""
    session: Session = person.session()
    rows = [
        Message(
            session=session,
            seq=n,
            role="user" if n % 2 else "assistant",
            content=f"message {n} ".ljust(size, "x"),
        )
        for n in range(1, messages + 1)
    ]
    Message.objects.bulk_create(rows)
    Session.objects.filter(pk=session.pk).update(last_seq=messages)
    session.refresh_from_db()
    return session


def shown(server: ModelServer, number: int) -> list[dict[str, Any]]:
    return list(server.requests[number].body["messages"])


def test_older_messages_become_task_state_and_stay(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    short_of_tokens(fleet)
    session = long_session(person_with_server)
    model_server.answer_with(says("hello"), KEPT)
    turn = say(session, "hi")
    state = TaskState.objects.get(session=session)
    assert (state.current_goal, state.important_facts) == ("build a shed", ["Ada likes red"])
    assert session.window_from_seq > 40
    assert Message.objects.filter(session=session).count() == 62
    assert Message.objects.get(session=session, seq=session.window_from_seq).role == "user"
    [step] = TurnStep.objects.filter(turn=turn, kind=str(StepKind.MEMORY))
    assert step.data["window_from_seq"] == session.window_from_seq
    assert "message 1 x" in shown(model_server, 1)[1]["content"]
    say(session, "and now?")
    first = shown(model_server, 2)[1]["content"]
    assert first.startswith("## What This Conversation Holds On To")
    assert "Fact: Ada likes red" in first
    assert not any("message 1 x" in message["content"] for message in shown(model_server, 2))


@pytest.mark.parametrize(
    "answer", ["no JSON", '{"other": true}', '{"important_facts": "likes red"}', '{"last_decision": "x"}']
)
def test_a_compression_that_fails_changes_nothing(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, answer: str
) -> None:
    short_of_tokens(fleet)
    session = long_session(person_with_server)
    remember(session.pk, {"current_goal": "build a boat"})
    model_server.answer_with(says("hello"), says(answer))
    turn = say(session, "hi")
    assert turn.state == "succeeded"
    assert session.window_from_seq == 1
    state = TaskState.objects.get()
    assert (state.current_goal, state.revision) == ("build a boat", 1)
    assert TurnStep.objects.get(turn=turn, kind=str(StepKind.MEMORY)).data == {"failed": True}


def test_the_window_moves_past_nothing_that_the_model_was_not_shown(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    short_of_tokens(fleet)
    session = long_session(person_with_server, size=2500)
    model_server.answer_with(says("hello"), KEPT)
    say(session, "hi")
    seen = shown(model_server, 1)[1]["content"]
    assert 10 < session.window_from_seq < 40  # the longest that fit; the rest comes later
    for number in range(1, session.window_from_seq):
        assert f": message {number} " in seen
    assert f": message {session.window_from_seq} " not in seen
    assert Message.objects.get(session=session, seq=session.window_from_seq).role == "user"
    model_server.answer_with(says("hello"), KEPT)
    before = session.window_from_seq
    say(session, "again")
    assert f": message {before} " in shown(model_server, 3)[1]["content"]
    assert session.window_from_seq > before


def test_a_failed_compression_is_tried_again_only_after_half_a_window(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    short_of_tokens(fleet)
    session = long_session(person_with_server)
    model_server.answer_with(says("hello"), says("no JSON"))
    say(session, "one")
    assert len(model_server.requests) == 2
    for number, text in enumerate(("two", "three"), 3):
        model_server.answer_with(says("hello"))
        say(session, text)
        assert len(model_server.requests) == number
    model_server.answer_with(says("hello"), KEPT)
    say(session, "four")
    assert len(model_server.requests) == 6
    assert session.window_from_seq > 1


def test_many_short_messages_become_task_state_before_they_leave_the_view(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = long_session(person_with_server, history.WINDOW, size=20)
    model_server.answer_with(says("hello"), KEPT)
    say(session, "hi")
    assert session.window_from_seq > history.WINDOW // 2
    assert ": message 1 " in shown(model_server, 1)[1]["content"]


def test_what_a_person_corrects_meanwhile_holds(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    short_of_tokens(fleet)
    session = long_session(person_with_server)
    remember(session.pk, {"current_goal": "build [[hold:memory]] something"})
    model_server.answer_with(says("hello"))
    turn = receive(session.pk, Input(content="hi"))
    until(lambda: model_server.held.get("memory"))
    remember(session.pk, {"current_goal": "build a boat"})
    model_server.answer_with(KEPT)
    model_server.release("memory")
    until(lambda: ended(turn))
    session.refresh_from_db()
    assert TaskState.objects.get(session=session).current_goal == "build a boat"
    assert session.window_from_seq == 1


def test_a_request_for_live_state_is_not_shown_what_was_held(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    remember(session.pk, {"current_goal": "the automation at nine"})
    say(session, "Which automations are there?")
    assert not any("Holds On To" in message["content"] for message in shown(model_server, 0))
    say(session, "Tell me a story.")
    assert "the automation at nine" in shown(model_server, -1)[1]["content"]


def test_a_thousand_messages_stay_within_the_budget(person: Person) -> None:
    session = long_session(person, 1000, size=2000)
    read = history.read(session.pk, 1)
    assert sum(map(tokens.of_entry, read)) <= settings.RONDO_CONTEXT_TOKENS
    assert read[-1].content.startswith("message 1000 ")
    assert Message.objects.filter(session=session).count() == 1000


def test_no_more_messages_are_read_of_a_long_conversation_than_of_a_short_one(person: Person) -> None:
    reads = [history.read(long_session(person, number, size=20).pk, 1) for number in (100, 1000)]
    assert [len(read) for read in reads] == [100, 100]


def test_a_short_conversation_is_left_alone(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    assert settings.RONDO_WINDOW_MESSAGES > 30
    session = long_session(person_with_server, 30, size=5000)
    say(session, "hi")
    assert len(model_server.requests) == 1
