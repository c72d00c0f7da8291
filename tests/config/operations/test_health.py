"""/readyz and doctor use the broker and the database as a turn does, and name the cause (rules 10.0, 10.2)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from django.db import connection
from django.test import Client

from config.operations import doctor
from config.operations.trials import broker_fault, database_fault
from config.supervisor import valkey
from tests.config.operations.test_doctor import wrong
from tests.conftest import Person
from tests.fleet import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.0", "10.2")]


def refuse_by_memory(server: redis.Redis) -> None:
    server.config_set("maxmemory", "1")


def refuse_as_replica(server: redis.Redis) -> None:
    server.replicaof("127.0.0.1", 1)


def refuse_by_disk(server: redis.Redis) -> None:
    """It cannot save, as on a full disk: its folder takes no file."""
    Path(str(server.config_get("dir")["dir"])).chmod(0o500)
    server.config_set("save", "3600 1")
    server.bgsave()
    until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err")


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """A broker of its own, which a test may have refuse what it is sent."""
    server = valkey.prepare(data=tmp_path / "valkey", log=tmp_path / "valkey.log", password="test")
    process = server.spawn()
    until(server.answers)
    monkeypatch.setenv("CELERY_BROKER_URL", server.url)  # Celery reads it for each connection
    with redis.Redis.from_url(server.url) as client:
        yield client
    (tmp_path / "valkey").chmod(0o700)
    process.kill()
    process.wait(10)


@pytest.mark.parametrize(
    ("refuse", "words"),
    [
        (refuse_by_memory, "memory limit"),
        pytest.param(refuse_as_replica, "read-only", marks=pytest.mark.full),
        pytest.param(refuse_by_disk, "disk", marks=pytest.mark.full),
    ],
)
def test_a_broker_that_answers_and_refuses_messages_is_named_with_its_cause(
    person: Person, refusing: redis.Redis, refuse: Callable[[redis.Redis], None], words: str
) -> None:
    assert "broker: " not in str(Client().get("/readyz").json()["missing"])
    assert refusing.keys("rondo.check*") == []
    refuse(refusing)
    assert refusing.info("server"), "it answers"
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert len(answer.json()["missing"]) == 1, answer.json()["missing"]
    [missing] = answer.json()["missing"]
    assert missing.startswith("broker: ")
    assert words in missing
    assert answer.json()["checks"]["workers"]["state"] == "unknown"
    found = doctor.run_all_checks()
    assert words in wrong(found["broker"])
    assert [name for name in ("workers", "shards") if not found[name].ok] == []


def test_a_database_that_answers_and_stores_nothing_is_named_with_its_cause(person: Person) -> None:
    name = connection.settings_dict["NAME"]
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as own:
        for refuse, allow, words in (
            (
                f'ALTER DATABASE "{name}" SET default_transaction_read_only = on',
                f'ALTER DATABASE "{name}" RESET default_transaction_read_only',
                "read-only",
            ),
            (
                "ALTER TABLE sessions_app_counter RENAME TO away",
                "ALTER TABLE away RENAME TO sessions_app_counter",
                "the tables are missing",
            ),
        ):
            own.execute("SET default_transaction_read_only = off")
            own.execute(refuse)
            connection.close()
            connection.close_pool()  # type: ignore[attr-defined]
            try:
                [missing] = Client().get("/readyz").json()["missing"][:1]
                assert missing.startswith("database: ")
                assert words in missing
                connection.close()  # as a command, which begins with none
                assert words in wrong(doctor.run_all_checks()["database"])
            finally:
                own.execute(allow)
                connection.close()
                connection.close_pool()  # type: ignore[attr-defined]
    assert doctor.check_database().ok


def test_a_connection_that_fails_names_its_cause() -> None:
    connection.cursor().execute("CREATE ROLE narrow LOGIN PASSWORD 'narrow' CONNECTION LIMIT 0")
    known = connection.get_connection_params()
    causes: dict[str, dict[str, Any]] = {
        "all connections of PostgreSQL are taken": {"user": "narrow", "password": "narrow"},
        "PostgreSQL refuses the account": {"password": "wrong"},
        "PostgreSQL has no such database": {"dbname": "nowhere"},
        "the database does not answer": {"port": 1},
    }
    try:
        for cause, wrong in causes.items():
            with pytest.raises(psycopg.OperationalError) as failed:
                psycopg.connect(**{**known, **wrong}).close()
            assert database_fault(failed.value)[0].startswith(cause), failed.value
    finally:
        connection.cursor().execute("DROP ROLE narrow")
    full = psycopg.OperationalError("connection failed: FATAL:  sorry, too many clients already")
    assert database_fault(full)[0] == "all connections of PostgreSQL are taken"


def test_a_broker_that_takes_no_connection_names_its_cause() -> None:
    full = ConnectionError("max number of clients reached")
    assert broker_fault(full)[0] == "all connections of the broker are taken"
    alone = ConnectionError("MASTERDOWN Link with MASTER is down")
    assert broker_fault(alone)[0] == "the broker is a replica whose primary is down"
