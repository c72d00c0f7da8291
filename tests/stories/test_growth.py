"""No statement of the server reads or sorts a table that grows, however much is in it.

A quarter of a million rows of each are made once. Then everything that happens again and again is done among them,
each in a transaction that is rolled back, and every statement's plan is looked at as it was executed.
"""

import re
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

import config.urls  # noqa: F401 - the pages of the admin are loaded with the addresses
from automations.beat import Scheduler
from automations.heartbeats.briefing import briefing
from automations.models import CronJob
from automations.runs.figures import NEWEST
from automations.turn_kinds import recollection
from automations.turn_kinds.heartbeat import state_variables
from config.celery import app
from sessions_app.deliveries import dispatcher as overdue
from sessions_app.deliveries import send
from sessions_app.hints import DeliveryLane
from sessions_app.models import Agent, Turn, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.reads.usage import MOST_SUMMED
from sessions_app.retention.walk import count_batch, prune_batch, walks
from sessions_app.sessions.delete import reopen_abandoned
from sessions_app.streams import event_log
from sessions_app.turns.claim import claim_next
from sessions_app.turns.next_lane import next_lane
from sessions_app.worker import sweep as recover
from tests import many_rows
from tests.automations.messages import finish
from tests.plans import MOST_READ, Watch
from tests.services import pointing_at, with_database
from tests.tokens import token_of

pytestmark = [pytest.mark.full, pytest.mark.django_db, pytest.mark.timeout(400)]

# a template may have no other session, and what an earlier test killed may have one for a moment
_END_OTHERS = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"


@pytest.fixture(scope="module", autouse=True)
def _among_many_rows(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A database of its own, as the tests' database is before anything is in it."""
    own = connections["default"].settings_dict
    empty, full = own["NAME"], f"{own['NAME']}_full"
    _close_pool()
    with psycopg.connect(with_database(settings.DATABASE_LOCK_URL, "postgres"), autocommit=True) as server:
        server.execute(f'DROP DATABASE IF EXISTS "{full}" WITH (FORCE)')
        server.execute(_END_OTHERS, [empty])
        server.execute(f'CREATE DATABASE "{full}" TEMPLATE "{empty}"')
        try:
            with pointing_at(full):
                many_rows.fill(settings.DATABASE_LOCK_URL)
                own["NAME"] = full
                yield
        finally:
            own["NAME"] = empty
            with django_db_blocker.unblock():
                _close_pool()
            server.execute(f'DROP DATABASE "{full}" WITH (FORCE)')


def _close_pool() -> None:
    for each in connections.all():
        each.close()
        each.close_pool()  # type: ignore[attr-defined]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Nothing may be wrong with what it saw."""
    watch = Watch(growing=frozenset(many_rows.GROWING))
    yield watch
    assert watch.seen
    assert not watch.faults, f"\n{watch.report()}"


def run_turn(turn: Turn | None) -> None:
    assert turn is not None
    finish(turn)
    assert turn.state == TurnState.SUCCEEDED, (turn.error_code, turn.error, turn.error_detail)


def test_a_sweep(watch: Watch) -> None:
    with watch.scene("sweep"):
        assert recover.sweep_turns(uuid.uuid4(), list)
        assert reopen_abandoned()
        assert overdue.sweep_deliveries(lambda _: None)


def test_a_turn(watch: Watch) -> None:
    for name, number in (("busy", 1), ("quiet", 2), ("thread", 50_000)):
        session = many_rows.session(number)
        with watch.scene(f"turn in a {name} session"):
            receive(session, MessageInput(content="Hello"))
            run_turn(claim_next(session, uuid.uuid4(), auto_allowed=True))
            next_lane(session)


def test_a_tick_and_the_turns_that_it_made(watch: Watch) -> None:
    before = Turn.objects.order_by("-pk").values_list("pk", flat=True)[0]
    beat = Scheduler(app=app, lazy=True)
    with watch.scene("tick"):
        beat._fire_due()
    made = {turn.kind: turn.session_id for turn in Turn.objects.filter(pk__gt=before).order_by("pk")}
    assert {"automation", "job", "heartbeat", "scheduled_message"} <= set(made)
    for kind, session in made.items():
        with watch.scene(kind):
            run_turn(claim_next(session, uuid.uuid4(), auto_allowed=True))


def test_what_background_turns_are_told(watch: Watch) -> None:
    """The tick's job and heartbeat may be those of anybody."""
    for number in (1, 2):
        agent = Agent.objects.get(pk=number)
        heartbeat = Turn(session=agent.sessions.get(type="heartbeat"), kind="heartbeat")
        with watch.scene(f"briefing of {number}"):
            assert "conversation: " in briefing(agent)
            assert "conversation: " in state_variables(agent)["briefing"]
            assert recollection._with_news(heartbeat)


def test_the_post(watch: Watch) -> None:
    number = ((many_rows.ROWS - 10) * 7919) % many_rows.SESSIONS + 1
    lane = DeliveryLane(session_id=many_rows.session(number), channel="email")
    with watch.scene("post"):
        send.receiver_of(lane)
        assert send.send_next(lane)


def test_what_operators_look_at(watch: Watch) -> None:
    client = Client()
    # counts of what is open: an index holds just these rows
    with watch.scene("operators", most_read=20_000):
        assert client.get("/metrics").status_code == 200
        client.get("/readyz")


def operator() -> Client:
    client = Client()
    client.force_login(User.objects.get(pk=1))
    return client


def test_the_dashboard(watch: Watch) -> None:
    client = operator()
    used = {"requests": 1, "input_tokens": 100, "output_tokens": 10}
    Turn.objects.filter(pk__gt=many_rows.ROWS - 25_000).update(usage=used)
    with watch.scene("dashboard", most_read=NEWEST + 1_000):  # the newest runs, turns and deliveries
        assert client.get("/admin/").status_code == 200


def test_streams(watch: Watch) -> None:
    with watch.scene("streams"):
        now = event_log.now()
        event_log.horizon()
        positions = [
            event_log.Position(session_id=session, agent_id=agent, cursor=now)
            for session in (many_rows.session(1), many_rows.session(2), None)
            for agent in (1, 2)
        ]
        event_log.read_events(positions)


def test_pruning(watch: Watch) -> None:
    for walk in walks():
        with watch.scene(walk.name, most_read=600_000):
            for _ in range(3):
                prune_batch(walk)
            count_batch(walk)


def test_every_list_of_the_api(watch: Watch) -> None:
    for number in (1, 2, 3):  # of a busy, a quiet and a unified agent
        client = Client(headers={"Authorization": f"Token {token_of(User.objects.get(pk=number))}"})
        schema = client.get("/api/schema/", headers={"Accept": "application/json"}).json()
        routines = CronJob.objects.filter(agent__owner_id=number, execution_mode__in=["inline", "isolated"])
        ids = {"name": "demo", "document": "USER.md", "session_id": many_rows.session(number)}
        job = CronJob.objects.filter(session__owner_id=number)[0]
        ids |= {"job_id": job.pk, "routine_id": routines[0].pk}
        for path, operations in schema["paths"].items():
            is_known = not path.endswith(("/events/", "/export/")) and set(
                re.findall(r"{(\w+)}", path)
            ) <= set(ids)
            for query in _queries(operations["get"]) if "get" in operations and is_known else ():
                most = MOST_SUMMED if path == "/api/usage/" else MOST_READ
                with watch.scene(f"GET {path}?{urlencode(query)} by {number}", most):
                    _read_pages(client, path.format(**ids), query)


def _queries(operation: Any) -> Iterator[dict[str, str]]:
    yield {}
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query" and "enum" in parameter["schema"]:
            yield from ({parameter["name"]: value} for value in parameter["schema"]["enum"])


def _read_pages(client: Client, address: str, query: dict[str, str]) -> None:
    """Three pages; the last of them far behind none, which does not matter to an index."""
    next_page: str | None = f"{address}?{urlencode(query)}"
    for _ in range(3):
        if next_page is not None:
            answer = client.get(next_page)
            assert answer.status_code == 200, (next_page, answer.content[:500])
            found = answer.json()
            is_list = isinstance(found, dict) and {"next", "previous", "results"} <= set(found)
            next_page = found["next"] if is_list else None


def test_every_list_of_the_admin(watch: Watch) -> None:
    client = operator()
    for model, page in admin.site._registry.items():
        if model._meta.db_table not in many_rows.GROWING:
            continue
        queries = ["", "p=2", "o=1", "o=-2"]
        if any("session" in name or "target" in name for name in page.search_fields):
            queries += [f"q={many_rows.session(number)}" for number in (2, 50_000)]
        if all(name.startswith("=") for name in page.search_fields):  # else parts of a text are compared
            queries.append("q=sub:50000")
        for query in queries:
            address = f"/admin/{model._meta.app_label}/{model._meta.model_name}/?{query}"
            with watch.scene(address):
                assert client.get(address).status_code == 200
