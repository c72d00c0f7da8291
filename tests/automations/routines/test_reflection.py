"""A reflection as a whole: what it is shown, what it registers, and when that runs (rule 5.6)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.llm.protocol import ModelReply
from agent_core.testing import ModelServer
from agent_core.types import ToolCall
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.removed_routines import MOST_KEPT, remember_removed_titles
from automations.models import CronJob, RemovedRoutine, RunRecord
from automations.routines.edit import NewRoutine, add_routine, agent_routines, remove_routine
from automations.turn_kinds.recollection import MOST_CONVERSATIONS
from sessions_app.agents.edit import update_agent
from sessions_app.models import Agent, MailboxEvent, Message, Session, TaskState, Turn
from sessions_app.sessions.open import primary_session
from tests.agent_core.planner.plans import says
from tests.automations.turn_kinds.test_heartbeat import beat_now, ended, heartbeat_turn
from tests.conftest import Person, new_person
from tests.fleet import Fleet, until
from tests.talk import say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("5.6")]
QUIET = says("HEARTBEAT_OK")
HELD = {
    "current_goal": "hear about PostgreSQL every morning",
    "active_flow": "",
    "open_loops": [],
    "important_facts": ["Ada likes tea"],
    "last_decision": "",
}


@pytest.fixture
def awake(model_server: ModelServer) -> Person:
    """A person on the model server, of whose system jobs only the heartbeat is left."""
    person = new_person("ada", dreams=True, model="openai-chat:test")
    CronJob.objects.exclude(system_event="heartbeat").delete()
    update_agent(person.agent.pk, {"heartbeat": {"active_hours": [0, 24]}})
    person.agent.refresh_from_db()
    return person


def beat(person: Person) -> Turn:
    assert beat_now(person) == 1
    turn = heartbeat_turn(person)
    until(lambda: ended(turn))
    return turn


def registers(**arguments: Any) -> ModelReply:
    return ModelReply(text="", calls=(ToolCall(id="a", name="add_routine", arguments=arguments),))


def shown(server: ModelServer, number: int) -> str:
    return str(server.requests[number].body["messages"][-1]["content"])


def test_a_heartbeat_registers_a_routine_once_and_runs_it_afterwards(
    fleet: Fleet, model_server: ModelServer, awake: Person
) -> None:
    fleet.worker()
    wish = {"title": "News of PostgreSQL", "description": "Look for news.", "execution_mode": "isolated"}
    model_server.answer_with(registers(**wish), QUIET)
    turn = beat(awake)
    assert turn.state == "succeeded"
    job = agent_routines(awake.agent.pk).get()
    assert (job.source, job.created_by_turn_id) == ("heartbeat_reflect", turn.pk)
    mail = MailboxEvent.objects.get()
    assert (mail.target, mail.event_type) == (primary_session(awake.agent), "routine_registered")
    until(lambda: fire_due_jobs().queued, what="it is due once the heartbeat has ended")
    run = RunRecord.objects.get(job=job)
    until(lambda: RunRecord.objects.filter(pk=run.pk, finished_at__isnull=False).exists())
    run.refresh_from_db()
    turn.refresh_from_db()
    assert run.started_at is not None
    assert turn.finished_at is not None
    assert run.started_at >= turn.finished_at
    model_server.answer_with(registers(**wish | {"allow_duplicate": True}), registers(**wish), QUIET)
    beat(awake)
    assert agent_routines(awake.agent.pk).count() == 1
    assert "News of PostgreSQL" in shown(model_server, 3)


def test_a_heartbeat_that_fails_lets_go_of_what_it_registered(
    fleet: Fleet, model_server: ModelServer, awake: Person
) -> None:
    fleet.worker()
    Agent.objects.update(policy={"max_attempts": 1, "max_tool_calls": 1})
    model_server.answer_with(registers(title="HN", execution_mode="isolated"), registers(title="Tea"), QUIET)
    assert beat(awake).state == "failed"
    until(lambda: fire_due_jobs().queued)
    assert RunRecord.objects.filter(job__name="HN").exists()


def test_a_reflection_sees_existing_and_removed_routines(
    fleet: Fleet, model_server: ModelServer, awake: Person
) -> None:
    fleet.worker()
    given: dict[str, Any] = {"agent_id": awake.agent.pk, "schedule": "0 9 * * *"}
    for title in ("Read news", "Drink tea", "Sort notes"):
        add_routine(NewRoutine(title=title, **given))
    remove_routine(CronJob.objects.get(name="Drink tea").pk)
    remove_routine(CronJob.objects.get(name="Sort notes").pk, hard=True)
    model_server.answer_with(QUIET)
    beat(awake)
    text = shown(model_server, 0)
    assert "Read news: (0 9 * * *, inline, next 20" in text
    assert "Drink tea: (0 9 * * *, inline, disabled by a person: leave it so)" in text
    assert "- sort notes (removed by a person: do not register it again)" in text


def test_recent_messages_join_the_task_state_once_before_reflection(
    fleet: Fleet, model_server: ModelServer, awake: Person
) -> None:
    fleet.worker()
    chat, other = awake.session(), awake.session()
    model_server.answer_with(says("Noted."), says("Fine."))
    say(chat, "I want to hear about PostgreSQL every morning")
    say(other, "I keep bees")
    empty = {name: type(value)() for name, value in HELD.items()}
    bees = empty | {"important_facts": ["Ada keeps bees"]}
    model_server.answer_with(says(json.dumps(HELD)), says(json.dumps(bees)), QUIET)
    turn = beat(awake)
    reads = [shown(model_server, 2), shown(model_server, 3)]
    assert ["PostgreSQL" in text for text in reads] == [True, False]
    assert ["bees" in text for text in reads] == [False, True], "each in its own context"
    prompt = shown(model_server, 4)
    for line in ("goal: hear about PostgreSQL every morning", "fact: Ada likes tea", "fact: Ada keeps bees"):
        assert f"- {line}" in prompt
    assert turn.usage["requests"] == 3
    state = TaskState.objects.get(session=chat)
    assert (state.current_goal, state.read_to_seq) == (HELD["current_goal"], 2)
    chat.refresh_from_db()
    assert chat.window_from_seq == 1, "nothing leaves the window"
    model_server.answer_with(QUIET)
    beat(awake)
    assert len(model_server.requests) == 6, "nothing new was said"
    model_server.answer_with(says("Yes."), says("no JSON"), QUIET)
    say(chat, "and about Django")
    assert beat(awake).state == "succeeded"
    assert TaskState.objects.get(session=chat).read_to_seq == 2, "what failed is left for the next heartbeat"


def test_what_begins_anew_while_it_is_read_is_not_held(
    fleet: Fleet, model_server: ModelServer, awake: Person
) -> None:
    fleet.worker()
    chat = awake.session()
    said = Turn.objects.create(
        session=chat, kind="message", lane="turns", content="x", state="succeeded", finished_at=Now()
    )
    wish = "[[hold:reading]] I want to hear about PostgreSQL every morning"
    Message.objects.create(session=chat, turn=said, seq=1, role="user", content=wish)
    Session.objects.filter(pk=chat.pk).update(last_seq=1)
    assert beat_now(awake) == 1
    until(lambda: model_server.held)
    say(chat, "/clear")
    model_server.answer_with(says(json.dumps(HELD)), QUIET)
    model_server.release("reading")
    until(lambda: ended(heartbeat_turn(awake)))
    assert not TaskState.objects.exclude(current_goal="").exists()


def test_what_no_person_said_asks_no_model(fleet: Fleet, model_server: ModelServer, awake: Person) -> None:
    fleet.worker()
    chats = [awake.session() for _ in range(MOST_CONVERSATIONS + 1)]
    TaskState.objects.create(session=chats[0], current_goal="rest")
    for chat in chats:
        Message.objects.create(session=chat, seq=1, role="assistant", content="Good morning.")
        Session.objects.filter(pk=chat.pk).update(last_seq=1)
    model_server.answer_with(QUIET)
    beat(awake)
    assert len(model_server.requests) == 1
    assert set(TaskState.objects.values_list("read_to_seq", flat=True)) == {1}
    assert TaskState.objects.count() == len(chats), "none is looked at again, and none is in another's way"
    assert TaskState.objects.get(session=chats[0]).current_goal == "rest"


def test_of_very_many_removed_titles_the_newest_are_kept(person: Person) -> None:
    jobs = [
        CronJob(agent=person.agent, name=f"T{number}", execution_mode="inline")
        for number in range(MOST_KEPT + 2)
    ]
    remember_removed_titles(jobs)
    remember_removed_titles([CronJob(agent=person.agent, name="last", execution_mode="inline")])
    assert RemovedRoutine.objects.count() == MOST_KEPT
    assert RemovedRoutine.objects.filter(title="last").exists()
