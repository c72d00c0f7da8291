"""A long conversation: older messages become task state, requests stay short enough, and nothing is deleted."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.conf import settings

from agent_core.llm import tokens
from agent_core.text import fence
from agent_core.types import Ended, StepKind
from sessions_app.memory import history
from sessions_app.memory.task_state import remember
from sessions_app.models import Message, Session, TaskState, TurnStep
from sessions_app.turns.context import read_context
from tests.admin.conftest import make_job
from tests.agent_core.planner.plans import says
from tests.conftest import Person
from tests.inside import Inside, during
from tests.sessions_app.turns.test_receive import automation
from tests.talk import fresh

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("7.1", "7.6")]
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


@pytest.fixture
def short_of_tokens(settings: Any) -> None:
    settings.RONDO_CONTEXT_TOKENS, settings.RONDO_WINDOW_MESSAGES = 6000, 10


def long_session(person: Person, messages: int = 60, size: int = 200) -> Session:
    """A session with so many messages of so many characters."""
    session: Session = person.session()
    texts = {n: f"message {n} ".ljust(size, "x") for n in range(1, messages + 1)}
    Message.objects.bulk_create(
        Message(session=session, seq=n, role="user" if n % 2 else "assistant", content=text)
        for n, text in texts.items()
    )
    Session.objects.filter(pk=session.pk).update(last_seq=messages)
    return fresh(session)


def shown(inside: Inside, number: int) -> list[str]:
    return [entry.content for entry in inside.model.calls[number].entries]


@pytest.mark.usefixtures("short_of_tokens")
def test_older_messages_become_task_state_and_stay(inside: Inside) -> None:
    session = long_session(inside.person)
    turn = inside.say(session, "hi", says("hello"), KEPT)
    state = TaskState.objects.get(session=session)
    expected = ("build a shed", [f"Ada likes red [person {TODAY}]"])
    assert (state.current_goal, state.important_facts) == expected
    assert session.window_from_seq > 40
    assert Message.objects.filter(session=session).count() == 62
    assert Message.objects.get(session=session, seq=session.window_from_seq).role == "user"
    [step] = TurnStep.objects.filter(turn=turn, kind=str(StepKind.MEMORY))
    assert step.data["window_from_seq"] == session.window_from_seq
    assert "message 1 x" in inside.model.shown(1)
    inside.say(session, "and now?")
    first = shown(inside, 2)[0]
    assert first.startswith("## Task State")
    [block] = fence.blocks(first)
    assert block.text == f"Goal: build a shed\nFact: Ada likes red [person {TODAY}]"
    assert "message 1 x" not in str(shown(inside, 2))


@pytest.mark.usefixtures("short_of_tokens")
def test_a_compression_that_fails_changes_nothing(inside: Inside) -> None:
    for answer in (
        "no JSON",
        '{"other": true}',
        '{"important_facts": "likes red"}',
        '{"last_decision": "x"}',
        replace(KEPT, ended_by=Ended.LENGTH),
    ):
        session = long_session(inside.person)
        remember(session.pk, {"current_goal": "build a boat"})
        turn = inside.say(session, "hi", says("hello"), says(answer) if isinstance(answer, str) else answer)
        assert (turn.state, session.window_from_seq) == ("succeeded", 1), answer
        state = TaskState.objects.get(session=session)
        assert (state.current_goal, state.revision) == ("build a boat", 1), answer
        [step] = TurnStep.objects.filter(turn=turn, kind=str(StepKind.MEMORY))
        assert step.data == {"failed": True}, answer


@pytest.mark.usefixtures("short_of_tokens")
def test_the_window_moves_only_past_messages_the_model_saw(inside: Inside) -> None:
    session = long_session(inside.person, size=2500)
    inside.say(session, "hi", says("hello"), KEPT)
    seen = inside.model.shown(1)
    assert 5 < session.window_from_seq < 40  # the longest that fit; the rest comes later
    for number in range(1, session.window_from_seq):
        assert f"person: message {number} " in seen or f"agent: message {number} " in seen
    assert f": message {session.window_from_seq} " not in seen
    assert Message.objects.get(session=session, seq=session.window_from_seq).role == "user"
    inside.model.answer_with(says("hello"), KEPT)
    before = session.window_from_seq
    inside.say(session, "again")
    assert f": message {before} " in inside.model.shown(3)
    assert session.window_from_seq > before


@pytest.mark.usefixtures("short_of_tokens")
def test_a_failed_compression_retries_only_after_half_a_window(inside: Inside) -> None:
    session = long_session(inside.person)
    inside.say(session, "one", says("hello"), says("no JSON"))
    assert len(inside.model.calls) == 2
    for number, text in enumerate(("two", "three"), 3):
        inside.say(session, text, says("hello"))
        assert len(inside.model.calls) == number
    inside.say(session, "four", says("hello"), KEPT)
    assert len(inside.model.calls) == 6
    assert session.window_from_seq > 1


def test_many_short_messages_are_compressed_before_leaving_the_window(inside: Inside) -> None:
    session = long_session(inside.person, history.WINDOW, size=20)
    inside.say(session, "hi", says("hello"), KEPT)
    assert session.window_from_seq > history.WINDOW // 2
    assert ": message 1 " in inside.model.shown(1)


@pytest.mark.usefixtures("short_of_tokens")
def test_what_a_person_corrects_meanwhile_holds(inside: Inside) -> None:
    session = long_session(inside.person)
    corrected = partial(remember, session.pk, {"current_goal": "build a boat"})
    inside.say(session, "hi", says("hello"), during(corrected, KEPT))
    assert len(inside.model.calls) == 2
    assert TaskState.objects.get(session=session).current_goal == "build a boat"
    assert session.window_from_seq == 1


def test_a_live_state_request_does_not_see_held_task_state(inside: Inside, session: Session) -> None:
    remember(session.pk, {"current_goal": "the automation at nine"})
    inside.say(session, "Which automations are there?")
    assert "at nine" not in str(shown(inside, 0))
    inside.say(session, "Tell me a story.")
    assert "the automation at nine" in shown(inside, -1)[0]


def test_a_thousand_messages_stay_within_the_limit_of_tokens(person: Person) -> None:
    session = long_session(person, 1000, size=2000)
    messages = read_context(session.pk).messages
    assert len(messages) == 100, "what is read does not grow with the history"
    read = history.fitting_entries(messages, settings.RONDO_CONTEXT_TOKENS)
    assert sum(map(tokens.of_entry, read)) <= settings.RONDO_CONTEXT_TOKENS
    assert read[-1].content.startswith("message 1000 ")
    assert Message.objects.filter(session=session).count() == 1000


def test_a_short_conversation_is_left_alone(inside: Inside) -> None:
    assert settings.RONDO_WINDOW_MESSAGES > 30
    session = long_session(inside.person, 30, size=5000)
    inside.say(session, "hi")
    assert len(inside.model.calls) == 1


@pytest.mark.rule("7.5")
def test_an_automation_about_live_state_sees_current_state_and_facts(inside: Inside) -> None:
    session = inside.person.session()
    job = make_job(session)
    facts = ["The dentist is on 3 May"]
    remember(session.pk, {"current_goal": "the automation at nine", "important_facts": facts})
    automation(session, "Say which reminders there are, and when the dentist is.", NOW)
    inside.run(session)
    asked = shown(inside, 0)
    assert [block.text for block in fence.blocks(asked[0])] == ["Fact: The dentist is on 3 May"]
    assert asked[-2].startswith("## Current State")
    [automations, *_] = fence.blocks(asked[-2])
    assert automations.name == "automations"
    assert job.pk in automations.text


@pytest.mark.usefixtures("short_of_tokens")
def test_pages_and_other_sessions_add_no_facts_about_the_person(inside: Inside) -> None:
    """Compression is shown what people and the agent said, by whom and when; no output, no update, no stranger."""
    session = long_session(inside.person)
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
    inside.say(session, "hi", says("hello"), KEPT)
    asked = inside.model.shown(1)
    for unwanted in ("PAGE", "CLOCK", "UPDATE", "HOOK", "SECRET"):
        assert unwanted not in asked
    told = [line.partition("] ")[2] for line in asked.splitlines()]
    assert "person: the price was 300000" in told
    for line in ("agent: (fetch_url is called)", "outside: The page says things.", "outside: It was said."):
        assert line in told
    assert "automation: Scheduled automation triggered: tea" in told
    assert "agent: Tea is ready." in told
