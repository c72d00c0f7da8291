"""What the tests share: the fleet, the model server, a person with an agent and a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from django.conf import settings

from tests import services
from tests.fleet import Fleet

if TYPE_CHECKING:
    from sessions_app.worker.process import WorkerProcess

# `make test` always looks at the same examples; RONDO_EXPLORE=1 at others each time
hypothesis.settings.register_profile(
    "rondo", derandomize="RONDO_EXPLORE" not in os.environ, deadline=None, database=None
)
hypothesis.settings.load_profile("rondo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that share a server run one after another, then those that start processes, then the quick ones.

    So no long one is left to the end.
    """
    order = {item.path: 3 for item in items}
    for item in items:
        order[item.path] = min(order[item.path], _place(item))
    items.sort(key=lambda item: order[item.path])


def _place(item: Any) -> int:
    fixtures = item._fixtureinfo.name2fixturedefs
    for place, shared in enumerate(("served", "processes")):
        if shared in fixtures:
            return place
    return 2 if "fleet" in fixtures or any(each[-1].scope == "module" for each in fixtures.values()) else 3


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test shows the logs of its processes."""
    outcome: Any = yield
    report = outcome.get_result()
    fleet = getattr(item, "funcargs", {}).get("fleet")
    if report.when == "call" and report.failed and isinstance(fleet, Fleet):
        report.sections.append(("fleet", fleet.logs()))


@pytest.fixture(scope="session")
def django_db_setup(request: pytest.FixtureRequest) -> Iterator[None]:
    """The embedded server's database has been migrated; in a server that was named, pytest-django makes one."""
    if os.environ.get(services.EMBEDDED):
        yield
        return
    from django.db import connections

    request.getfixturevalue("django_db_setup")
    settings_dict = connections["default"].settings_dict
    with services.pointing_at(settings_dict["TEST"]["NAME"] or f"test_{settings_dict['NAME']}"):
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_connection_outlives_the_tests(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    yield
    from django.db import connections

    from sessions_app import metrics
    from sessions_app.postgres.notify import publisher
    from sessions_app.streams.hub import hub

    metrics.flush_counters()
    if hub()._thread is not None:
        hub().stop()
        hub()._listener._thread.join(5.0)
    publisher().flush(2.0)
    publisher().close()
    with django_db_blocker.unblock():
        for each in connections.all():
            each.close()
            each.close_pool()  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def _tables_are_emptied_quickly() -> Iterator[None]:
    from django.test import TransactionTestCase

    from tests.reset import empty_tables

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _case: empty_tables())
        yield


@pytest.fixture
def broker() -> str:
    """The broker's address, with nothing in it."""
    import redis

    url = os.environ["CELERY_BROKER_URL"]
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            client.flushdb()
    return url


@pytest.fixture
def fleet(transactional_db: None, broker: str, tmp_path: Path) -> Iterator[Fleet]:
    """Starts real workers and beats; kills what is left of them."""
    fleet = Fleet(folder=tmp_path)
    try:
        yield fleet
    finally:
        fleet.end()


@pytest.fixture
def inside(transactional_db: None, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Someone whose agent's turns run in this process, with a scripted model: see `tests/inside.py`."""
    from tests.inside import begun

    return begun(tmp_path, monkeypatch)


@pytest.fixture
def model_server(fleet: Fleet) -> Iterator[Any]:
    """A model over HTTP that the fleet's workers and this process's agents use."""
    from tests.model_server import ModelServer

    with ModelServer() as server:
        fleet.environ |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test-key"}
        yield server


def channel(made: Any) -> Iterator[None]:
    """Serves its addresses meanwhile, in this process; another test may have loaded another one of its name."""
    from sessions_app.channels import base

    before = base.known()[made.name]
    base.register(made)
    try:
        yield
    finally:
        base.register(before)


@pytest.fixture
def telegram() -> Iterator[None]:
    """The channel of `tests/plugins.py`."""
    from tests.plugins import FileChannel

    yield from channel(FileChannel())


@pytest.fixture
def real_telegram() -> Iterator[None]:
    """The server's own channel."""
    from interfaces.telegram.channel import Telegram

    yield from channel(Telegram())


@dataclass(frozen=True, kw_only=True)
class Person:
    """A user with an agent; opens sessions."""

    user: Any
    agent: Any

    def session(self, **fields: Any) -> Any:
        from sessions_app.sessions.open import open_session

        return open_session(self.agent, **fields)


@pytest.fixture
def person(transactional_db: None) -> Person:
    """Someone with an agent on the offline model."""
    return new_person("ada")


@pytest.fixture
def person_with_server(model_server: Any) -> Person:
    """Someone with an agent on the model server."""
    return new_person("ada", model="openai-chat:test")


def new_person(name: str, *, dreams: bool = False, **fields: Any) -> Person:
    """A user with an agent. Without `dreams` the agent has no system job: none is due in the middle of a test."""
    from django.contrib.auth import get_user_model

    from automations.models import CronJob
    from sessions_app.agents.edit import create_agent
    from sessions_app.models.agent import heartbeat_defaults

    if dreams:
        fields = {"heartbeat": heartbeat_defaults() | {"enabled": True}} | fields
    user = get_user_model().objects.create_user(name, password="pw")
    agent = create_agent(user, "demo", **({"model": "offline"} | fields))
    if not dreams:
        CronJob.objects.filter(agent=agent).delete()
    assert settings.DATABASE_LOCK_URL
    return Person(user=user, agent=agent)


@pytest.fixture
def worker(transactional_db: None, broker: str) -> Iterator[WorkerProcess]:
    """One whose threads are not started: the test itself runs the turns."""
    from sessions_app.worker.process import WorkerProcess

    worker = WorkerProcess(["turns.0"], slots=2)
    worker.locks.reconnect()
    yield worker
    worker.end()
