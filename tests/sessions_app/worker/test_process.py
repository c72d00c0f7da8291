"""What a worker owes the others: slots for people, hung tools, hints that nobody answers (rules 1.6, 1.7, 1.12)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
import redis
from django.conf import settings
from django.db import connection as django_connection
from kombu import Connection

from automations.models import RunRecord, RunState
from sessions_app import hints
from sessions_app.hints import shard_of
from sessions_app.models import Agent, Message, OnBusy, Session, Turn, TurnState, Worker
from sessions_app.postgres.connection import connect_directly
from sessions_app.queue.receive import MessageInput, receive
from tests import plugins
from tests.automations.jobs.made import EVERY_SECOND, new
from tests.automations.messages import a_worker, run_turn
from tests.automations.turn_kinds.test_bound import bound, fire
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.inside import Inside, call, makes
from tests.model_server import ModelServer
from tests.races import backends_that, with_trigger
from tests.services import with_database
from tests.sessions_app.turns.test_receive import automation
from tests.talk import ended, fresh

pytestmark = pytest.mark.rule("1.7")


@pytest.mark.long("two workers and eighteen automations")
def test_a_storm_of_automations_takes_no_slot_of_people(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    def slots(text: str, count: int) -> list[Turn]:
        sessions = [person_with_server.session() for _ in range(count)]
        return [automation(session, f"{text} {n}", datetime.now(UTC)) for n, session in enumerate(sessions)]

    fleet.environ["RONDO_TURNS_PER_USER"] = "0"  # what one user may have is another bound
    fleet.environ["RONDO_SWEEP_SECONDS"] = "60"  # whoever waits for the sweep fails this test
    fleet.worker(4, TURN_QUEUES="auto")
    fleet.worker(1, TURN_QUEUES="turns")
    storm = slots("[[hold:storm]]", 4)
    until(lambda: model_server.held.get("storm") == 4, what="all slots for automations are taken")
    storm += slots("late", 8)
    asked = receive(person_with_server.session().pk, MessageInput(content="hello"))
    until(lambda: ended(asked))
    assert Turn.objects.filter(kind="automation", state=TurnState.RUNNING).count() == 4
    assert model_server.held == {"storm": 4}
    model_server.release("storm")
    until(lambda: all(ended(turn) for turn in storm), what="what found no slot is not forgotten")


@pytest.mark.long("the shortest time that a tool may take too long is a second")
@pytest.mark.rule("1.12")
def test_a_hanging_tool_fails_its_turn_and_frees_the_session(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    Agent.objects.filter(pk=person_with_server.agent.pk).update(policy={"tool_timeout_seconds": 0.5})
    fleet.worker(RONDO_TOOL_GRACE_SECONDS="1")
    session = person_with_server.session()
    hung = receive(session.pk, MessageInput(content='use tool wait with {"name": "for-ever"}'))
    until(lambda: plugins.calls(fleet.folder, "for-ever"))
    following = receive(session.pk, MessageInput(content="are you there?", on_busy=OnBusy.ENQUEUE))
    until(lambda: ended(hung) and ended(following))
    assert (hung.state, hung.error_code, following.state) == ("failed", "tool_hung", "succeeded")
    said = [message.content for message in Message.objects.filter(turn=hung, role="assistant")]
    assert said[-1] == "The turn failed: A tool did not return in time."
    steps = hung.steps.count()
    (fleet.folder / "for-ever.go").touch()
    fleet.processes[0].wait_for("turn_stale")
    assert hung.steps.count() == steps


@pytest.mark.full
def test_what_the_shards_workers_do_not_answer_goes_to_everyone(fleet: Fleet, person: Person) -> None:
    session = person.session()
    other = next(number for number in range(8) if number != shard_of(session.pk))
    fleet.worker(TURN_QUEUES=f"turns.{other},auto.{other},turns.any")
    turn = receive(session.pk, MessageInput(content="hello"))
    until(lambda: ended(turn))
    assert turn.hinted_at is not None


def test_a_worker_registers_sends_heartbeats_and_unregisters(fleet: Fleet) -> None:
    worker = fleet.worker()
    row = Worker.objects.get()
    assert row.pid == worker.child.pid
    until(lambda: Worker.objects.get().heartbeat_at > row.heartbeat_at)
    assert worker.stop() == 0
    assert not Worker.objects.exists()


def test_a_tools_failure_tells_the_model_and_hides_its_text(inside: Inside, session: Session) -> None:
    inside.say(session, "Break it.", makes(call("break", name="b")))
    stored = str(list(Message.objects.filter(session=session).values()))
    assert "RuntimeError" in stored
    assert "secret-from-a-tool" not in stored


@pytest.mark.rule("3.6")
def test_a_bug_in_a_turn_fails_it_visibly_and_once(inside: Inside) -> None:
    Agent.objects.update(policy={"no_such_limit": 1})
    turn = inside.say(inside.person.session(), "hello")
    assert (turn.state, turn.error_code, turn.attempt) == ("failed", "internal_error", 1)
    closure = Message.objects.get(turn=turn, role="assistant").content
    assert closure == "The turn failed: Something went wrong."
    assert "no_such_limit" in turn.error_detail


def backends() -> list[int]:
    """Who is connected to the test database."""
    return backends_that("true")


@contextmanager
def no_connections(but: list[int]) -> Iterator[None]:
    """Nobody gets into the test database, and who is in is thrown out, but for some."""
    name = django_connection.settings_dict["NAME"]
    with connect_directly(with_database(settings.DATABASE_LOCK_URL, "postgres")) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> ALL(%s)",
            [name, but],
        )
        try:
            yield
        finally:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


@contextmanager
def trapped(when: str = "true") -> Iterator[None]:
    """No message can be stored, or none of those that fit."""
    insert = f"BEFORE INSERT ON sessions_app_message FOR EACH ROW WHEN ({when})"
    with with_trigger(insert, "RAISE EXCEPTION 'trapped'"):
        yield


@pytest.mark.rule("3.6")
def test_an_unstorable_failure_leaves_its_closure_once_storage_recovers(person: Person) -> None:
    session, me = person.session(), a_worker()
    job = bound(session)
    run = fire(job)
    with trapped():
        for _ in range(2):
            turn = run_turn(session, me)
            assert (turn.state, turn.error_code) == ("running", "commit_failed")
        assert not Message.objects.exists()
    turn = run_turn(session, me)
    assert (turn.state, turn.error_code, turn.attempt) == ("failed", "commit_failed", 3)
    trigger, closure = Message.objects.filter(session=session).order_by("seq")
    assert trigger.content.startswith("Scheduled automation triggered: monitor")
    assert (closure.seq, closure.content) == (2, "The turn failed: It could not be stored.")
    assert (fresh(session).revision, session.last_seq) == (1, 2)
    assert (fresh(run).state, run.reason) == ("failed", "commit_failed")


def test_an_unstorable_input_ends_its_turn_immediately_with_a_closure(person: Person) -> None:
    session, me = person.session(), a_worker()
    receive(session.pk, MessageInput(content="hello"))
    with trapped("NEW.role = 'user'"):
        turn = run_turn(session, me)
    assert (turn.state, turn.error_code) == ("failed", "commit_failed")
    closure = Message.objects.get(session=session)
    assert (closure.role, closure.content) == ("assistant", "The turn failed: It could not be stored.")
    receive(session.pk, MessageInput(content="and now?"))
    assert run_turn(session, me).state == "succeeded"


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


@pytest.mark.full
def test_the_main_job_runs_on_rabbitmq(fleet: Fleet, person: Person) -> None:
    fleet.environ["CELERY_BROKER_URL"] = rabbitmq()
    fleet.worker()
    fleet.beat()
    new(person.session(), schedule=EVERY_SECOND)
    until(lambda: RunRecord.objects.filter(state=RunState.SUCCEEDED).count() >= 3)
    lags = [run.turn.lock_wait_ms for run in RunRecord.objects.filter(state=RunState.SUCCEEDED) if run.turn]
    assert min(lag for lag in lags if lag is not None) < 1000, "woken by hints, not by the sweep"
    for process in fleet.processes:
        assert process.stop() == 0


def _copies(client: redis.Redis) -> int:
    """How often the server has stored a message until it is acknowledged: kombu adds it to a sorted set."""
    calls: int = client.info("commandstats").get("cmdstat_zadd", {}).get("calls", 0)
    return calls


@pytest.mark.full
def test_a_full_worker_leaves_hints_in_the_broker_and_stores_none_that_it_took(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, broker: str
) -> None:
    if not broker.startswith("redis"):
        pytest.skip("RabbitMQ keeps messages until they are acknowledged by itself")
    fleet.worker(concurrency=1)
    with redis.Redis.from_url(broker) as client:
        copies = _copies(client)
        message = MessageInput(content="[[hold:all]]hello")
        turns = [receive(person_with_server.session().id, message) for _ in range(3)]
        until(lambda: model_server.held.get("all"))
        hints.flush_hints(5.0)
        names = [name for name in settings.ALL_QUEUES if client.type(name) == b"list"]
        assert sum(int(client.llen(name)) for name in names) == 2
        assert _copies(client) == copies
    model_server.release("all")
    done = Turn.objects.filter(pk__in=[turn.pk for turn in turns], state=TurnState.SUCCEEDED)
    until(lambda: done.count() == len(turns))
