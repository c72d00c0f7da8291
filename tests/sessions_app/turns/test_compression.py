"""A long conversation: older messages become task state, within the budget, and nothing is deleted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings

from agent_core.llm import tokens
from agent_core.testing import ModelServer
from agent_core.text import fence
from agent_core.types import StepKind
from automations.jobs.edit import NewJob, create_job
from sessions_app.agents.documents import put_document
from sessions_app.memory import history
from sessions_app.memory.task_state import remember
from sessions_app.models import Message, Session, TaskState, TurnStep
from sessions_app.turns.context_statement import read_context
from sessions_app.turns.receive import MessageInput, receive
from tests.agent_core.planner.plans import says
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.sessions_app.turns.test_receive import automation
from tests.talk import ended, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("7.1", "7.6")]
BUDGET = {"RONDO_CONTEXT_TOKENS": "6000", "RONDO_WINDOW_MESSAGES": "10"}
WHOLE = {
    "current_goal": "build a shed",
    "active_flow": "",
    "open_loops": [],
    "important_facts": [{"fact": "Ada likes red", "message": 1}, "The price is 777 EUR"],
    "last_decision": "",
}
NOW = datetime.now(UTC).replace(microsecond=0)
TODAY = NOW.date().isoformat()
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
    assert (state.current_goal, state.important_facts) == (
        "build a shed",
        [f"Ada likes red [person {TODAY}]"],
    )
    assert session.window_from_seq > 40
    assert Message.objects.filter(session=session).count() == 62
    assert Message.objects.get(session=session, seq=session.window_from_seq).role == "user"
    [step] = TurnStep.objects.filter(turn=turn, kind=str(StepKind.MEMORY))
    assert step.data["window_from_seq"] == session.window_from_seq
    assert "message 1 x" in shown(model_server, 1)[1]["content"]
    say(session, "and now?")
    first = shown(model_server, 2)[1]["content"]
    assert first.startswith("## Task State")
    [block] = fence.blocks(first)
    assert block.text == f"Goal: build a shed\nFact: Ada likes red [person {TODAY}]"
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


def test_the_window_moves_only_past_messages_the_model_saw(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    short_of_tokens(fleet)
    session = long_session(person_with_server, size=2500)
    model_server.answer_with(says("hello"), KEPT)
    say(session, "hi")
    seen = shown(model_server, 1)[1]["content"]
    assert 5 < session.window_from_seq < 40  # the longest that fit; the rest comes later
    for number in range(1, session.window_from_seq):
        assert f"person: message {number} " in seen or f"agent: message {number} " in seen
    assert f": message {session.window_from_seq} " not in seen
    assert Message.objects.get(session=session, seq=session.window_from_seq).role == "user"
    model_server.answer_with(says("hello"), KEPT)
    before = session.window_from_seq
    say(session, "again")
    assert f": message {before} " in shown(model_server, 3)[1]["content"]
    assert session.window_from_seq > before


def test_a_failed_compression_retries_only_after_half_a_window(
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


def test_many_short_messages_are_compressed_before_leaving_the_window(
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
    turn = receive(session.pk, MessageInput(content="hi"))
    until(lambda: model_server.held.get("memory"))
    remember(session.pk, {"current_goal": "build a boat"})
    model_server.answer_with(KEPT)
    model_server.release("memory")
    until(lambda: ended(turn))
    session.refresh_from_db()
    assert TaskState.objects.get(session=session).current_goal == "build a boat"
    assert session.window_from_seq == 1


def test_a_live_state_request_does_not_see_held_task_state(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    remember(session.pk, {"current_goal": "the automation at nine"})
    say(session, "Which automations are there?")
    messages = [message["content"] for message in shown(model_server, 0) if message["role"] != "system"]
    assert not any("Holds On To" in message for message in messages)
    say(session, "Tell me a story.")
    assert "the automation at nine" in shown(model_server, -1)[1]["content"]


def test_a_thousand_messages_stay_within_the_budget(person: Person) -> None:
    session = long_session(person, 1000, size=2000)
    messages = read_context(session.pk, {}).messages
    read = history.fitting_entries(messages, settings.RONDO_CONTEXT_TOKENS)
    assert sum(map(tokens.of_entry, read)) <= settings.RONDO_CONTEXT_TOKENS
    assert read[-1].content.startswith("message 1000 ")
    assert Message.objects.filter(session=session).count() == 1000


def test_the_number_of_messages_read_does_not_grow_with_history(person: Person) -> None:
    reads = [read_context(long_session(person, number, size=20).pk, {}) for number in (100, 1000)]
    assert [len(read.messages) for read in reads] == [100, 100]


def test_a_short_conversation_is_left_alone(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    assert settings.RONDO_WINDOW_MESSAGES > 30
    session = long_session(person_with_server, 30, size=5000)
    say(session, "hi")
    assert len(model_server.requests) == 1


@pytest.mark.rule("7.5")
def test_an_automation_after_a_compression_knows_what_was_said_before(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    """Its prompt speaks of automations whatever its job's message is about."""
    short_of_tokens(fleet)
    session = long_session(person_with_server)
    fact = {"fact": "my favourite colour is blue", "message": 1}
    model_server.answer_with(says("hello"), says(json.dumps(WHOLE | {"important_facts": [fact]})))
    say(session, "hi")
    assert session.window_from_seq > 40
    turn = automation(session, "Tell me my favourite colour.", NOW)
    until(lambda: ended(turn))
    answer = Message.objects.get(turn=turn, role="assistant")
    assert "Your favourite colour is blue" in answer.content


@pytest.mark.rule("7.5")
def test_an_automation_about_live_state_sees_current_state_and_facts(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    job = create_job(
        NewJob(session_id=session.pk, message="water", schedule={"kind": "every", "seconds": 86400})
    )
    remember(
        session.pk, {"current_goal": "the automation at nine", "important_facts": ["The dentist is on 3 May"]}
    )
    turn = automation(session, "Say which reminders there are, and when the dentist is.", NOW)
    until(lambda: ended(turn))
    asked = [message["content"] for message in shown(model_server, 0)]
    assert [block.text for block in fence.blocks(asked[1])] == ["Fact: The dentist is on 3 May"]
    assert asked[-2].startswith("## Current State")
    [automations, *_] = fence.blocks(asked[-2])
    assert automations.name == "automations"
    assert job.pk in automations.text


def test_pages_and_other_sessions_add_no_facts_about_the_person(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    """Compression is shown what people and the agent said, by whom and when; no output, no update, no stranger."""
    short_of_tokens(fleet)
    session = long_session(person_with_server)
    result = {"id": "1", "name": "fetch_url", "output": "PAGE", "outcome": "ok", "foreign": True}
    own = {"id": "2", "name": "current_time", "output": "CLOCK", "outcome": "ok"}
    call = {"id": "1", "name": "fetch_url", "arguments": {"url": "SECRET"}}
    rows: dict[int, dict[str, Any]] = {
        1: {
            "content": "the price was 300000",
            "model_content": "## Background Updates\n- [x] UPDATE\n\nhello",
        },
        2: {"content": "", "parts": {"calls": [call]}},
        3: {"role": "tool", "content": "", "parts": {"results": [result, own]}},
        4: {"content": "The page says things."},
        5: {"content": "HOOK", "metadata": {"via": {"hook": "x", "as_person": False}}},
        6: {"content": "It was said."},
        7: {"content": "Scheduled automation triggered: tea", "metadata": {"_automation_turn": True}},
        8: {"content": "Tea is ready."},
    }
    for seq, values in rows.items():
        Message.objects.filter(session=session, seq=seq).update(**values)
    model_server.answer_with(says("hello"), KEPT)
    say(session, "hi")
    asked = shown(model_server, 1)[1]["content"]
    for unwanted in ("PAGE", "CLOCK", "UPDATE", "HOOK", "SECRET"):
        assert unwanted not in asked
    told = [line.partition("] ")[2] for line in asked.splitlines()]
    assert "person: the price was 300000" in told
    for line in ("agent: (fetch_url is called)", "outside: The page says things.", "outside: It was said."):
        assert line in told
    assert "automation: Scheduled automation triggered: tea" in told
    assert "agent: Tea is ready." in told


def test_a_turn_is_sent_no_more_than_the_budget(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    """Documents, history, tools and message together: 6,000 tokens set are 6,000 tokens sent."""
    short_of_tokens(fleet)
    put_document(person_with_server.agent.pk, "MEMORY.md", "word " * 30_000)
    session = long_session(person_with_server, 9, size=4000)
    say(session, "hi")
    body = model_server.requests[0].body
    spent = sum(tokens.of_text(str(message["content"])) + 4 for message in body["messages"])
    spent += sum(tokens.of_text(json.dumps(tool["function"])) for tool in body["tools"])
    assert spent <= 6000 * 1.25
    assert body["messages"][-1]["content"] == "hi"
