"""What no other test would miss: figures, other agents' work, what prompts hold, clocks, locks, workers, addresses."""

import time
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.types import Ending, Entry, Role, TurnResult
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.inline_routines import InlineRoutineStarter
from automations.firing.placement import heartbeat_session
from automations.models import CronJob, RunRecord
from sessions_app import metrics
from sessions_app.agents.documents import put_preference
from sessions_app.deliveries import outbox
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Counter, Delivery, Engine, Message, Session, Turn, TurnKind, Worker
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.open import primary_session
from sessions_app.worker.process import WorkerProcess
from sessions_app.worker.sweep import sweep_turns
from tests.agent_core.planner.plans import RESPOND, plan, says
from tests.automations.messages import a_worker
from tests.automations.turn_kinds.test_bound import begin, run_turn
from tests.automations.turn_kinds.test_heartbeat import awake, beat_now, routine
from tests.automations.turn_kinds.test_isolated import job_of
from tests.chaos.test_locks import connected, cut_lock_connections
from tests.conftest import Person, new_person
from tests.inside import Inside

__all__ = ["awake"]  # a fixture
pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "my secret colour is mauve"


@pytest.fixture(autouse=True)
def _nothing_gathered(transactional_db: None) -> None:
    metrics._gathered.reset()


def value(name: Counted) -> int:
    metrics.flush_counters()
    found = Counter.objects.filter(name=name).first()
    return found.value if found else 0


def says_in(session: Session, text: str) -> None:
    entry = Entry(role=Role.ASSISTANT, content=text)
    run_turn(session, TurnResult(ending=Ending.SUCCEEDED, entries=(entry,)))


@pytest.mark.rule("10.1")
def test_heartbeats_are_counted_as_what_became_of_them(awake: Person) -> None:
    session = heartbeat_session(awake.agent)
    for reply in ("HEARTBEAT_OK", "The milk is out."):
        assert beat_now(awake) == 1
        says_in(session, reply)
    counted = [Counted.HEARTBEAT_SUPPRESS, Counted.HEARTBEAT_DELIVER, Counted.HEARTBEAT_SKIPPED]
    assert [value(each) for each in counted] == [1, 1, 0]
    assert beat_now(awake) == 1
    assert beat_now(awake) == 0, "the one before is still open"
    assert [value(each) for each in counted] == [1, 1, 1]


@pytest.mark.rule("10.1")
def test_each_session_of_an_isolated_routine_is_counted(person: Person) -> None:
    job_of(person, "say what is new")
    fire_due_jobs()
    assert value(Counted.JOB_SESSION_CREATED) == 1


@pytest.mark.rule("5.3", "5.5")
def test_one_agents_broken_routine_blocks_no_other_agent(awake: Person) -> None:
    others = [new_person(name, dreams=True) for name in ("bob", "eve")]
    CronJob.objects.exclude(system_event="heartbeat").delete()
    everyone = [others[0], awake, others[1]]
    jobs = [routine(each, "tea") for each in everyone]
    for each in everyone:
        Agent.objects.filter(pk=each.agent.pk).update(
            heartbeat={**each.agent.heartbeat, "active_hours": [0, 24]},
            policy={"nonsense": 1} if each is awake else {},
        )
    InlineRoutineStarter().step()
    started = [RunRecord.objects.filter(job=job, turn__isnull=False).exists() for job in jobs]
    assert started == [True, False, True]


@pytest.mark.rule("3.3", "3.4", "4.8")
def test_what_is_said_in_a_chat_stays_out_of_heartbeats(awake: Person) -> None:
    chat = primary_session(awake.agent)
    receive(chat.pk, MessageInput(content=SECRET))
    says_in(chat, "Mauve it is.")
    assert beat_now(awake) == 1
    request = begin(heartbeat_session(awake.agent)).request
    shown = [request.system_prompt, request.message, *(entry.content for entry in request.history)]
    assert not [text for text in shown if "mauve" in text.lower()]
    receive(chat.pk, MessageInput(content="What is it?"))
    assert SECRET in [entry.content for entry in begin(chat).request.history]


@pytest.mark.rule("3.3", "3.4", "4.8")
@pytest.mark.parametrize("engine", [Engine.CHAT, Engine.PLANNER])
def test_preferences_and_history_reach_the_model(inside: Inside, session: Session, engine: str) -> None:
    put_preference(inside.person.agent, inside.person.user.pk, "Always answer in rhymes.")
    inside.model.answer_with(says("Noted: the colour of heather."))
    inside.say(session, SECRET)
    if engine == Engine.PLANNER:
        inside.planner()
        inside.model.answer_with(plan(RESPOND), says("Mauve."))
    assert inside.say(session, "What is it?").state == "succeeded"
    _, *requests = map(str, inside.model.calls)
    assert len(requests) == (2 if engine == Engine.PLANNER else 1)
    for text in ("Always answer in rhymes.", SECRET, "Noted: the colour of heather.", "What is it?"):
        assert all(text in request for request in requests), text


@pytest.mark.rule("1.8")
def test_the_sweep_removes_only_long_dead_workers(transactional_db: None) -> None:
    me, lately, long_ago = a_worker(), a_worker(), a_worker()
    Worker.objects.filter(pk=me).update(heartbeat_at=Now() - timedelta(hours=3))
    Worker.objects.filter(pk=lately).update(heartbeat_at=Now() - timedelta(minutes=55))
    Worker.objects.filter(pk=long_ago).update(heartbeat_at=Now() - timedelta(minutes=65))
    sweep_turns(me, list)
    assert set(Worker.objects.values_list("pk", flat=True)) == {me, lately}


@pytest.mark.rule("1.8")
def test_a_briefly_stolen_lock_is_retaken_at_the_next_check(transactional_db: None) -> None:
    worker, passing, other = WorkerProcess([], 1), connected(), connected()
    worker.locks.reconnect()
    session_id = uuid.uuid4()
    handle = worker.locks.try_hold(session_id)
    assert handle is not None
    handle.turn_id = 1
    cut_lock_connections()
    passing.reconnect()
    looked = passing.try_hold(session_id)
    assert looked is not None
    worker.locks.reconnect()  # it cannot be taken again yet
    passing.release(looked)
    worker._keep_locks(time.monotonic() + 60)
    other.reconnect()
    assert other.try_hold(session_id) is None
    for each in (worker.locks, passing, other):
        each.close()


@pytest.mark.rule("9.3")
def test_each_address_is_answered_once_for_several_messages(person: Person) -> None:
    session = person.session()
    turn = Turn.objects.create(session=session, kind=TurnKind.MESSAGE, lane="turns", content="x")
    answer = Message.objects.create(session=session, seq=1, role="assistant", content="Hello.", turn=turn)

    def to(channel: str, address: str) -> dict[str, Any]:
        return {"channel": channel, "chat_id": address, "meta": {}}

    routes = [to("chat", "7"), None, to("web", "x"), to("chat", "7"), to("chat", "8"), to("mail", "7")]
    outbox.enqueue_deliveries(session, answer, routes)
    places = Delivery.objects.order_by("id").values_list("channel", "address")
    assert list(places) == [("chat", "7"), ("chat", "8"), ("mail", "7")]
    assert len(set(Delivery.objects.values_list("idempotency_key", flat=True))) == 3
