"""What a worker owes the others: slots for people, hung tools, hints that nobody answers (rules 1.6, 1.7, 1.12)."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from kombu import Connection

from agent_core.testing import ModelServer
from automations.edit import NewJob, create_job
from automations.models import RunRecord, RunState
from sessions_app.models import Agent, Message, OnBusy, Turn, TurnState, Worker
from sessions_app.receive import Input, receive
from sessions_app.wake import shard_of
from tests import plugins
from tests.conftest import Person
from tests.core.test_busy import automation
from tests.core.test_main_job import ended
from tests.fleet import Fleet, until


def test_a_storm_of_automations_leaves_slots_for_people(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker(5)
    storm = [
        automation(person_with_server.session(), f"[[hold:storm]] {n}", datetime.now(UTC)) for n in range(12)
    ]
    until(lambda: model_server.held.get("storm") == 4, what="80 % of five slots")
    asked = receive(person_with_server.session().pk, Input(content="hello"))
    until(lambda: ended(asked))
    assert model_server.held.get("storm") == 4
    assert Turn.objects.filter(kind="automation", state=TurnState.RUNNING).count() == 4
    model_server.release("storm")
    until(lambda: all(ended(turn) for turn in storm), what="what found no slot is not forgotten")


def test_a_tool_that_hangs_fails_its_turn_and_frees_the_session(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    Agent.objects.filter(pk=person_with_server.agent.pk).update(policy={"tool_timeout_seconds": 0.5})
    fleet.worker(RONDO_TOOL_GRACE_SECONDS="1")
    session = person_with_server.session()
    hung = receive(session.pk, Input(content='use tool wait with {"name": "for-ever"}'))
    until(lambda: plugins.calls(fleet.folder, "for-ever"))
    following = receive(session.pk, Input(content="are you there?", on_busy=OnBusy.ENQUEUE))
    until(lambda: ended(hung) and ended(following))
    assert (hung.state, hung.error_code, following.state) == ("failed", "tool_hung", "succeeded")
    said = [message.content for message in Message.objects.filter(turn=hung, role="assistant")]
    assert said[-1] == "This did not work: A tool did not come back."
    steps = hung.steps.count()
    (fleet.folder / "for-ever.go").touch()
    fleet.processes[0].wait_for("turn_stale")
    assert hung.steps.count() == steps


def test_what_the_shards_workers_do_not_answer_goes_to_everyone(fleet: Fleet, person: Person) -> None:
    session = person.session()
    other = next(number for number in range(8) if number != shard_of(session.pk))
    fleet.worker(TURN_QUEUES=f"turns.{other},auto.{other},turns.any")
    turn = receive(session.pk, Input(content="hello"))
    until(lambda: ended(turn))
    assert turn.hinted_at is not None


def test_a_worker_signs_in_gives_signs_of_life_and_signs_out(fleet: Fleet) -> None:
    worker = fleet.worker()
    row = Worker.objects.get()
    assert row.pid == worker.child.pid
    until(lambda: Worker.objects.get().heartbeat_at > row.heartbeat_at)
    assert worker.stop() == 0
    assert not Worker.objects.exists()


def test_a_tools_failure_tells_the_model_and_hides_its_text(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    session = person.session()
    turn = receive(session.pk, Input(content='use tool break with {"name": "b"}'))
    until(lambda: ended(turn))
    stored = str(list(Message.objects.filter(session=session).values()))
    assert "RuntimeError" in stored
    assert "secret-from-a-tool" not in stored


def test_a_bug_in_a_turn_fails_it_visibly_and_once(fleet: Fleet, person: Person) -> None:
    Agent.objects.filter(pk=person.agent.pk).update(policy={"no_such_limit": 1})
    fleet.worker()
    session = person.session()
    turn = receive(session.pk, Input(content="hello"))
    until(lambda: ended(turn))
    assert (turn.state, turn.error_code, turn.attempt) == ("failed", "internal_error", 1)
    closure = Message.objects.get(turn=turn, role="assistant").content
    assert closure == "This did not work: Something went wrong."
    assert "no_such_limit" in turn.error_detail


def rabbitmq() -> str:
    """The address of a RabbitMQ that answers, or the test is skipped and says so."""
    url = os.environ.get("RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:5672//")
    try:
        with Connection(url, connect_timeout=2) as connection:
            connection.ensure_connection(max_retries=0, timeout=2)
    except Exception as error:  # noqa: BLE001 - whatever the client raises
        where = urlsplit(url)
        pytest.skip(f"no RabbitMQ at {where.hostname}:{where.port} ({type(error).__name__})")
    return url


def test_the_main_job_runs_on_rabbitmq(fleet: Fleet, person: Person) -> None:
    fleet.environ["CELERY_BROKER_URL"] = rabbitmq()
    fleet.worker()
    fleet.beat()
    session = person.session()
    create_job(NewJob(session_id=session.pk, message="tick", schedule={"kind": "every", "seconds": 1}))
    until(lambda: RunRecord.objects.filter(state=RunState.SUCCEEDED).count() >= 3)
    lags = [run.turn.lock_wait_ms for run in RunRecord.objects.filter(state=RunState.SUCCEEDED) if run.turn]
    assert min(lag for lag in lags if lag is not None) < 1000, "woken by hints, not by the sweep"
    for process in fleet.processes:
        assert process.stop() == 0
