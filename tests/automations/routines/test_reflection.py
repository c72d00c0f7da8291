"""A reflection as a whole: what it is shown, what it registers, and when that runs (rule 5.6)."""

import json
from functools import partial
from typing import Any

import pytest

from agent_core.llm.protocol import ModelReply
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.inline_routines import InlineRoutineStarter
from automations.jobs.removed_routines import MOST_KEPT, remember_removed_titles
from automations.models import CronJob, RemovedRoutine, RunRecord
from automations.routines.edit import agent_routines, remove_routine
from automations.turn_kinds.recollection import MOST_CONVERSATIONS
from sessions_app.models import Agent, MailboxEvent, Message, Session, TaskState
from sessions_app.sessions.open import primary_session
from tests.automations.jobs.made import add
from tests.automations.turn_kinds.test_heartbeat import QUIET, again, awake, beat, inside, says
from tests.conftest import Person
from tests.fleet import until
from tests.inside import Inside, call, during, makes

__all__ = ["awake", "inside"]  # fixtures

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("5.6")]
HELD = {"current_goal": "hear about PostgreSQL every morning", "active_flow": "", "open_loops": []}
HELD |= {"important_facts": ["Ada likes tea"], "last_decision": ""}


def registers(**arguments: Any) -> ModelReply:
    return makes(call("add_routine", **arguments))


def test_a_heartbeat_registers_a_routine_once_and_runs_it_afterwards(inside: Inside) -> None:
    person = inside.person
    wish = {"title": "News of PostgreSQL", "description": "Look for news.", "execution_mode": "isolated"}
    seen: list[int] = []
    inside.model.answer_with(registers(**wish), during(lambda: seen.append(fire_due_jobs().queued), QUIET))
    turn = beat(inside)
    assert (turn.state, seen) == ("succeeded", [0])
    job = agent_routines(person.agent.pk).get()
    assert (job.source, job.created_by_turn_id) == ("heartbeat_reflect", turn.pk)
    mail = MailboxEvent.objects.get()
    assert (mail.target, mail.event_type) == (primary_session(person.agent), "routine_registered")
    assert until(lambda: fire_due_jobs().queued, what="it is due once the heartbeat has ended")
    inside.run_all()
    assert RunRecord.objects.get(job=job).finished_at is not None
    inside.model.answer_with(registers(**wish | {"allow_duplicate": True}), registers(**wish), QUIET)
    beat(inside)
    assert agent_routines(person.agent.pk).count() == 1
    assert "News of PostgreSQL" in inside.model.shown(3)


@pytest.mark.parametrize("mode", ["isolated", "inline"])
@pytest.mark.parametrize("plan", [{}, {"schedule": "1s"}])
def test_a_new_routine_waits_for_its_heartbeat_to_end(inside: Inside, mode: str, plan: Any) -> None:
    def fire() -> int:
        again(agent_routines(inside.person.agent.pk).get())
        fire_due_jobs()
        InlineRoutineStarter().step()
        return RunRecord.objects.filter(job__name="HN").exclude(state="skipped").count()

    seen: list[int] = []
    asked_for = registers(title="HN", execution_mode=mode, **plan)
    inside.model.answer_with(asked_for, during(lambda: seen.append(fire()), QUIET))
    beat(inside)
    assert seen == [0]
    assert fire() == 1


def test_a_heartbeat_that_fails_lets_go_of_what_it_registered(inside: Inside) -> None:
    Agent.objects.update(policy={"max_attempts": 1, "max_tool_calls": 1})
    inside.model.answer_with(registers(title="HN", execution_mode="isolated"), registers(title="Tea"))
    assert beat(inside).state == "failed"
    assert until(lambda: fire_due_jobs().queued)
    assert RunRecord.objects.filter(job__name="HN").exists()


def test_a_reflection_sees_existing_and_removed_routines(inside: Inside) -> None:
    for title in ("Read news", "Drink tea", "Sort notes"):
        add(inside.person, title, schedule="0 9 * * *")
    remove_routine(CronJob.objects.get(name="Drink tea").pk)
    remove_routine(CronJob.objects.get(name="Sort notes").pk, hard=True)
    beat(inside)
    text = inside.model.shown()
    assert "Read news: (0 9 * * *, inline, next 20" in text
    assert "Drink tea: (0 9 * * *, inline, disabled by a person: leave it so)" in text
    assert "- sort notes (removed by a person: do not register it again)" in text


def test_recent_messages_join_the_task_state_once_before_reflection(inside: Inside) -> None:
    chat, other = inside.person.session(), inside.person.session()
    inside.say(chat, "I want to hear about PostgreSQL every morning")
    inside.say(other, "I keep bees")
    bees = {name: type(value)() for name, value in HELD.items()} | {"important_facts": ["Ada keeps bees"]}
    inside.model.answer_with(says(json.dumps(HELD)), says(json.dumps(bees)), QUIET)
    turn = beat(inside)
    reads = [inside.model.shown(2), inside.model.shown(3)]
    assert ["PostgreSQL" in text for text in reads] == [True, False]
    assert ["bees" in text for text in reads] == [False, True], "each in its own context"
    for line in ("goal: hear about PostgreSQL every morning", "fact: Ada likes tea", "fact: Ada keeps bees"):
        assert f"- {line}" in inside.model.shown(4)
    assert turn.usage["requests"] == 3
    state = TaskState.objects.get(session=chat)
    assert (state.current_goal, state.read_to_seq) == (HELD["current_goal"], 2)
    chat.refresh_from_db()
    assert chat.window_from_seq == 1, "nothing leaves the window"
    inside.model.answer_with(QUIET)
    beat(inside)
    assert len(inside.model.calls) == 6, "nothing new was said"
    inside.model.answer_with(says("Yes."), says("no JSON"), QUIET)
    inside.say(chat, "and about Django")
    assert beat(inside).state == "succeeded"
    assert TaskState.objects.get(session=chat).read_to_seq == 2, "what failed is left for the next heartbeat"


def test_what_begins_anew_while_it_is_read_is_not_held(inside: Inside) -> None:
    chat = inside.person.session()
    inside.say(chat, "I want to hear about PostgreSQL every morning")
    inside.model.answer_with(during(partial(inside.say, chat, "/clear"), says(json.dumps(HELD))), QUIET)
    assert beat(inside).state == "succeeded"
    assert len(inside.model.calls) == 3
    assert not TaskState.objects.exclude(current_goal="").exists()


def test_what_no_person_said_asks_no_model(inside: Inside) -> None:
    chats = [inside.person.session() for _ in range(MOST_CONVERSATIONS + 1)]
    TaskState.objects.create(session=chats[0], current_goal="rest")
    for chat in chats:
        Message.objects.create(session=chat, seq=1, role="assistant", content="Good morning.")
        Session.objects.filter(pk=chat.pk).update(last_seq=1)
    inside.model.answer_with(QUIET)
    beat(inside)
    assert len(inside.model.calls) == 1
    assert set(TaskState.objects.values_list("read_to_seq", flat=True)) == {1}
    assert TaskState.objects.count() == len(chats), "none is looked at again, and none is in another's way"
    assert TaskState.objects.get(session=chats[0]).current_goal == "rest"


def test_of_very_many_removed_titles_the_newest_are_kept(person: Person) -> None:
    gone = partial(CronJob, agent=person.agent, execution_mode="inline")
    remember_removed_titles([gone(name=f"T{number}") for number in range(MOST_KEPT + 2)])
    remember_removed_titles([gone(name="last")])
    assert RemovedRoutine.objects.count() == MOST_KEPT
    assert RemovedRoutine.objects.filter(title="last").exists()
