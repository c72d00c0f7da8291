"""A database or broker that does not answer: 503 in bounded time at every interface, and no traceback (rule 10.0)."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.db import connection, transaction

from sessions_app.models import Turn
from tests.api.conftest import Caller, cookies_of, new_caller, web_process
from tests.fleet import Process, until
from tests.proxy import Proxy
from tests.races import selected

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.rule("10.0")]

ANSWERED, READY = 10.0, 2.0  # seconds: the rule
QUICK = """
from sessions_app.postgres import connection
connection.CHECK_SECONDS = 0.5
connection.CLIENT["connect_timeout"] = 2
import config.asgi
from interfaces.http.server import handler
handler.REQUEST_SECONDS = 1.0
"""


@dataclass(kw_only=True)
class Shaky:
    """A web process whose database and broker may fall silent, and somebody who asks it."""

    web: Process
    database: Proxy
    broker: Proxy
    http: httpx2.Client
    caller: Caller
    messages: str

    def say(self, content: str, key: str) -> httpx2.Response:
        return self.http.post(self.messages, json={"content": content}, headers={"Idempotency-Key": key})


@pytest.fixture(params=[""])
def shaky(
    request: pytest.FixtureRequest, transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shaky]:
    """`param`: what the web process runs before it serves."""
    ada = new_caller("ada")
    ada.agent()
    messages = f"/api/sessions/{ada.session()}/messages/"
    database, broker = Proxy(os.environ["DATABASE_URL"]), Proxy(os.environ["CELERY_BROKER_URL"])
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("DATABASE_LOCK_URL", database.url)
    monkeypatch.setenv("CELERY_BROKER_URL", broker.url)
    monkeypatch.setenv("RONDO_DATABASE_SECONDS", "3")
    with (
        web_process(tmp_path, request.param) as (url, web),
        httpx2.Client(base_url=url, headers={"Authorization": f"Token {ada.token}"}, timeout=30) as http,
    ):
        yield Shaky(web=web, database=database, broker=broker, http=http, caller=ada, messages=messages)
    database.end()
    broker.end()


def timed(ask: Callable[[], httpx2.Response]) -> tuple[httpx2.Response, float]:
    began = time.monotonic()
    return ask(), time.monotonic() - began


def assert_unavailable(answer: httpx2.Response) -> Any:
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "unavailable"
    return answer.json()["detail"]


@pytest.mark.parametrize(
    ("shaky", "longest"),
    [pytest.param("", ANSWERED, marks=pytest.mark.full), (QUICK, ANSWERED / 3)],
    indirect=["shaky"],
    ids=["as it is", "quick"],
)
@pytest.mark.long("a web process without its database")
def test_a_stopped_database_gives_503_everywhere_until_it_returns(shaky: Shaky, longest: float) -> None:
    assert shaky.say("before", "first").status_code == 202
    cookies = cookies_of(shaky.caller.user)
    shaky.database.stop()
    with ThreadPoolExecutor(8) as pool:
        post = pool.submit(timed, lambda: shaky.say("meanwhile", "second"))
        read = pool.submit(timed, lambda: shaky.http.get("/api/sessions/"))
        admin = f"{shaky.http.base_url}/admin/"
        page = pool.submit(timed, lambda: httpx2.get(admin, cookies=cookies, timeout=30))
        ready = [pool.submit(timed, lambda: shaky.http.get("/readyz")) for _ in range(3)]
        seen = [each.result() for each in (post, read, page)]
        looks = [each.result() for each in ready]
    assert max(seconds for _, seconds in seen) < longest
    assert "Idempotency-Key" in assert_unavailable(seen[0][0])
    assert "Idempotency-Key" not in assert_unavailable(seen[1][0])
    assert (seen[2][0].status_code, seen[2][0].text) == (503, "503 Service Unavailable\n")
    assert seen[2][0].headers["Retry-After"]
    assert max(seconds for _, seconds in looks) < READY
    assert {answer.status_code for answer, _ in looks} == {503}
    assert looks[0][0].json()["missing"][0].startswith("database:")
    log = shaky.web.text()
    assert "Traceback" not in log
    assert log.count("database_unavailable") == 3
    shaky.database.go_on()
    until(lambda: shaky.say("meanwhile", "second").status_code == 202, 20)
    assert Turn.objects.filter(content="meanwhile").count() == 1


@pytest.mark.full
def test_a_resent_request_with_an_unconfirmed_commit_is_done_once(shaky: Shaky) -> None:
    assert shaky.say("before", "first").status_code == 202
    shaky.database.lose_the_answer_to(b"COMMIT")
    answer, seconds = timed(lambda: shaky.say("once", "again"))
    assert "not known" in assert_unavailable(answer)
    assert seconds < ANSWERED
    assert Turn.objects.filter(content="once").count() == 1, "it was done, as nobody knew"
    shaky.database.lose_the_answer_to(b"")
    until(lambda: shaky.say("once", "again").status_code == 202, 20)
    assert Turn.objects.filter(content="once").count() == 1


@pytest.mark.full
def test_an_exhausted_pool_is_503_and_readyz_says_so_soon(shaky: Shaky) -> None:
    assert shaky.http.get("/api/agents/").status_code == 200
    with ThreadPoolExecutor(8) as pool:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE sessions_app_agent IN ACCESS EXCLUSIVE MODE")
            hanging = [pool.submit(timed, lambda: shaky.http.get("/api/agents/")) for _ in range(8)]
            until(lambda: _waiting_for_locks() == 4, 10, "each of the four connections is in use")
            ready, seconds = timed(lambda: shaky.http.get("/readyz"))
            assert (ready.status_code, seconds < READY) == (503, True)
            answers = [each.result() for each in hanging]
        for answer, took in answers:
            assert_unavailable(answer)
            assert took < ANSWERED
    until(lambda: shaky.http.get("/api/agents/").status_code == 200, 10)
    assert "Traceback" not in shaky.web.text()


def _waiting_for_locks() -> int:
    where = "NOT granted AND relation = 'sessions_app_agent'::regclass"
    return len(selected(f"SELECT DISTINCT pid FROM pg_locks WHERE {where}"))


@pytest.mark.full
def test_a_stopped_broker_is_reported_quickly_and_delays_no_message(shaky: Shaky) -> None:
    assert shaky.http.get("/readyz").json()["checks"]["broker"]["ok"]
    shaky.broker.stop()
    answer, seconds = timed(lambda: shaky.http.get("/readyz"))
    assert (answer.status_code, seconds < READY) == (503, True)
    assert [line for line in answer.json()["missing"] if line.startswith("broker:")]
    sent, seconds = timed(lambda: shaky.say("hello", "k"))
    assert (sent.status_code, seconds < READY) == (202, True)
    shaky.database.stop()
    both, seconds = timed(lambda: shaky.http.get("/readyz"))
    assert (both.status_code, seconds < READY) == (503, True)


@pytest.mark.full
def test_a_client_waiting_when_the_database_stops_still_gets_202(shaky: Shaky) -> None:
    shaky.say("before", "first")
    with ThreadPoolExecutor(1) as pool:
        asked: Any = {"json": {"content": "x"}, "headers": {"Idempotency-Key": "w", "Prefer": "wait=3"}}
        sent = pool.submit(timed, lambda: shaky.http.post(shaky.messages, **asked))
        until(lambda: "rondo_event_subscribers 1.0" in shaky.http.get("/metrics").text, what="it waits")
        shaky.database.stop()
        answer, seconds = sent.result()
    assert (answer.status_code, answer.json()["content"]) == (202, "x")
    assert seconds < 3 + ANSWERED
    assert "Traceback" not in shaky.web.text()


@pytest.mark.full
def test_however_many_look_at_once_each_is_answered_in_time(shaky: Shaky) -> None:
    assert shaky.http.get("/readyz").json()["checks"]["database"]["ok"]
    shaky.database.stop()
    shaky.broker.stop()

    def look(path: str) -> tuple[httpx2.Response, float]:
        return timed(lambda: shaky.http.get(path))

    with ThreadPoolExecutor(40) as pool:
        scrapes = [pool.submit(look, "/metrics") for _ in range(8)]
        looks = [pool.submit(look, "/readyz") for _ in range(24)]
        alive = [pool.submit(look, "/healthz") for _ in range(4)]
        seen = [each.result() for each in looks]
        assert {answer.status_code for answer, _ in seen} == {503}
        assert max(seconds for _, seconds in seen) < READY
        assert max(each.result()[1] for each in alive) < READY
        assert max(each.result()[1] for each in scrapes) < ANSWERED
