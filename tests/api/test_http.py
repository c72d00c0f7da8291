"""What only shows over real HTTP: waiting, two requests at once, huge bodies, ids of requests, CORS, health."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from django.contrib.auth.models import User
from django.db import connection

from sessions_app.models import IdempotencyKey, Session, Turn
from tests.api.conftest import Site, Window, connected, cookies_of, for_each, start_web, web_process
from tests.fleet import Process, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


def test_who_prefers_to_wait_is_answered_with_the_finished_turn(window: Window) -> None:
    began = time.monotonic()
    response = window.send("my favourite colour is blue", Prefer="respond-async, wait=20")
    assert response.status_code == 200
    assert response.headers["Preference-Applied"] == "wait=20"
    turn = response.json()
    assert (turn["state"], turn["error"]) == ("succeeded", None)
    assert turn["reply"]
    assert turn["finished_at"].endswith("Z")
    assert time.monotonic() - began < 10
    assert window.http.get(response.headers["Location"]).json() == turn
    history = window.http.get(f"{window.address}/messages/").json()["results"]
    expected = [(1, "user", turn["id"]), (2, "assistant", turn["id"])]
    assert [(each["seq"], each["role"], each["turn"]) for each in history] == expected
    assert history[1]["content"] == turn["reply"]


def test_who_waits_too_short_is_told_where_to_look(window: Window) -> None:
    began = time.monotonic()
    response = window.send("[[hold:long]] x", Prefer="wait=2")
    assert response.status_code == 202
    assert 1.9 < time.monotonic() - began < 8
    assert response.json()["state"] == "running"
    assert response.json()["started_at"]
    window.site.model.release("long")
    until(lambda: window.http.get(response.headers["Location"]).json()["state"] == "succeeded")


@pytest.mark.full  # without news of its turn, a request reads the row after five seconds
def test_a_bug_while_a_request_waits_is_a_problem(window: Window) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(window.send, "[[hold:bug]] x", Prefer="wait=20")
        until(lambda: window.site.metric("rondo_event_subscribers") == 1, 20)
        with without("django_session"):  # which the check of access reads
            window.site.model.release("bug")
            answer = waiting.result()
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["code"]) == (500, "server_error")


def test_a_body_that_is_compressed_is_refused_as_such(window: Window) -> None:
    body, as_json = gzip.compress(b"{}"), {"Content-Type": "application/json"}
    messages = f"{window.address}/messages/"
    for path in (messages, "/v1/chat/completions", "/mcp", "/ag-ui/demo/", "/api/hooks/x/messages/"):
        for coding in ("gzip", "GZIP", "br", "zstd", "deflate", "gzip, identity"):
            answer = window.http.post(path, content=body, headers=as_json | {"Content-Encoding": coding})
            found = answer.status_code, answer.json()["code"]
            assert found == (415, "unsupported_media_type"), (path, coding)
            assert coding.lower() in answer.json()["detail"]
    plain = window.http.post(messages, json={"content": "x"}, headers={"Content-Encoding": "identity"})
    assert plain.status_code == 202


def test_thirty_who_wait_leave_room_for_others(window: Window) -> None:
    """The web process has four database connections; who waits holds none of them."""
    sessions = [window.http.post("/api/sessions/", json={"agent": "demo"}).json()["id"] for _ in range(30)]
    windows = [replace(window, session=each) for each in sessions]
    with ThreadPoolExecutor(30) as pool:
        waiting = [pool.submit(each.send, "[[hold:all]] x", Prefer="wait=20") for each in windows]
        until(lambda: window.site.metric("rondo_event_subscribers") == 30, 20)
        began = time.monotonic()
        for _ in range(10):
            assert window.http.get("/api/agents/").status_code == 200
        assert time.monotonic() - began < 3
        window.site.model.release("all")
        assert [each.result().status_code for each in waiting] == [200] * 30


def test_who_hangs_up_while_waiting_holds_up_nobody(window: Window) -> None:
    body = json.dumps({"content": "[[hold:gone]] x"})
    head = (
        f"POST {window.address}/messages/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Token {window.token}\r\n"
        f"Prefer: wait=60\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with connected(window.site.url) as caller:
        caller.sendall((head + body).encode())
        until(lambda: window.site.metric("rondo_event_subscribers") == 1, 10)
    until(lambda: window.site.metric("rondo_event_subscribers") == 0, 10)
    window.site.model.release("gone")


def test_of_equal_creates_at_once_one_creates(window: Window) -> None:
    def four(call: Callable[[str], httpx2.Response], key: str) -> list[httpx2.Response]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(call, [key] * 4))

    def create(key: str) -> httpx2.Response:
        return window.http.post("/api/sessions/", json={"agent": "demo"}, headers={"Idempotency-Key": key})

    def send(key: str) -> httpx2.Response:
        return window.send("hello", Idempotency_Key=key)

    before = Session.objects.count()
    for number in range(5):
        made, sent = four(create, f"key {number}"), four(send, f"key {number}")
        assert {each.status_code for each in made} == {201}
        assert len({each.text for each in made}) == 1
        assert {each.status_code for each in sent} == {202}
        assert len({each.json()["id"] for each in sent}) == 1
    assert Session.objects.count() == before + 5
    assert IdempotencyKey.objects.count() == 5
    assert Turn.objects.count() == 5


def test_a_small_body_in_chunks_is_read(window: Window) -> None:
    content = iter([b'{"content": ', b'"hello"}'])
    headers = {"Content-Type": "application/json"}
    response = window.http.post(f"{window.address}/messages/", content=content, headers=headers)
    assert response.status_code == 202, response.text


def test_a_length_that_lies_stores_nothing(window: Window) -> None:
    head = (
        f"POST {window.address}/messages/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Token {window.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n"
    )
    with connected(window.site.url) as caller:
        caller.sendall(head.encode() + b'{"content": "x"}' + b" " * 1_500_000)
        assert b"400" in caller.recv(100).split(b"\r\n")[0]
    assert not Turn.objects.exists()


def test_a_web_process_stops_with_windows_open_and_people_waiting(
    window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, web = start_web(tmp_path)
    monkeypatch.setattr(window.site, "url", url)
    with window.site.client(window.token) as http, ThreadPoolExecutor(1) as pool, window.stream() as stream:
        here = Window(site=window.site, token=window.token, session=window.session, http=http)
        waiting = pool.submit(here.send, "[[hold:stop]] x", Prefer="wait=60")
        until(lambda: window.site.metric("rondo_event_subscribers") == 2, 10)
        began = time.monotonic()
        web.stop(10)
        assert time.monotonic() - began < 6
        until(lambda: stream.ended, 5)
        refused = waiting.result(5)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert refused.headers["Retry-After"]
        assert refused.headers["X-Request-Id"]
    window.site.model.release("stop")


@pytest.mark.full
def test_ready_names_what_is_missing(site: Site) -> None:
    assert httpx2.get(f"{site.url}/healthz").text == "ok\n"
    until(lambda: httpx2.get(f"{site.url}/readyz").status_code == 200)
    ready = httpx2.get(f"{site.url}/readyz").json()
    assert set(ready["checks"]) == {"database", "broker", "workers", "shards", "beat"}
    assert ready["ready"] is True
    assert ready["checks"]["beat"]["state"] == "unknown"
    assert "no beat is seen" in ready["checks"]["beat"]["detail"]
    assert {check["state"] for name, check in ready["checks"].items() if name != "beat"} == {"ok"}
    beat = site.fleet.beat()
    until(lambda: httpx2.get(f"{site.url}/readyz").json()["checks"]["beat"]["state"] == "ok", 10)
    assert beat.stop() == 0
    until(lambda: httpx2.get(f"{site.url}/readyz").json()["checks"]["beat"]["state"] == "unknown", 10)
    assert httpx2.get(f"{site.url}/readyz").status_code == 200
    assert site.worker.stop() == 0
    missing = httpx2.get(f"{site.url}/readyz")
    assert missing.status_code == 503
    assert [line.split(":")[0] for line in missing.json()["missing"]] == ["workers", "shards"]
    assert missing.json()["checks"]["workers"]["state"] == "missing"
    assert site.metric("rondo_workers") == 0


CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}


def raw(site: Site, *lines: bytes) -> bytes:
    """What the server says to these lines before it closes the connection."""
    with connected(site.url) as caller:
        caller.sendall(b"\r\n".join([*lines, b"", b""]))
        answer = b""
        while data := caller.recv(65_536):
            answer += data
    return answer


def test_every_response_has_an_id_of_its_own(window: Window) -> None:
    http, seen = window.http, []
    answers = [
        http.get("/api/agents/"),
        http.get("/api/nothing/"),
        http.patch(f"{window.address}/", content=b"x" * 1_100_000),  # refused before Django sees it
        http.get("/v1/models"),
        http.post("/v1/chat/completions", json={}),
        *(http.post("/v1/chat/completions", json=CHAT | {"stream": stream}) for stream in (False, True)),
        http.post("/mcp", json={}),
        httpx2.get(f"{window.site.url}/api/agents/"),
        httpx2.get(f"{window.site.url}/sign-in/"),
        httpx2.get(f"{window.site.url}/healthz"),
        httpx2.get(f"{window.site.url}/static/rondo/rondo.css"),
    ]
    for answer in answers:
        assert answer.headers.get_list("X-Request-Id")[1:] == [], answer.request.url
        seen.append(answer.headers["x-request-id"])
    assert all(each.startswith("req_") for each in seen)
    assert len(set(seen)) == len(seen)


def test_what_is_no_request_is_refused_with_an_id(site: Site) -> None:
    long = b"X-Long: " + b"x" * 20_000
    for lines in ([b"this is not HTTP"], [b"GET / HTTP/1.1", b"Host: localhost", long]):
        answer = raw(site, *lines)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"\r\nX-Request-Id: req_" in answer
        assert b"\r\nConnection: close\r\n" in answer


@contextmanager
def without(table: str) -> Iterator[None]:
    """The database, broken."""
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_away"')
        try:
            yield
        finally:
            cursor.execute(f'ALTER TABLE "{table}_away" RENAME TO "{table}"')


def test_the_page_of_a_bug_shows_the_id(window: Window) -> None:
    cookies = cookies_of(User.objects.get(username="ada"))
    with without("sessions_app_message"):
        headers = {"Accept": "text/html", "X-Request-Id": "seen-by-ada"}
        page = httpx2.get(f"{window.site.url}/sessions/{window.session}/", cookies=cookies, headers=headers)
    assert page.status_code == 500
    assert "tell the administrator this id: seen-by-ada" in page.text
    assert "sessions_app" not in page.text


def test_an_invalid_id_is_replaced_and_none_of_several_chosen(site: Site) -> None:
    for given in ("a" * 65, "", "a b", "a\tb", "x=1", "é"):
        answer = httpx2.get(f"{site.url}/healthz", headers={b"X-Request-Id": given.encode()})
        assert answer.headers["X-Request-Id"].startswith("req_"), given
    ids = [b"X-Request-Id: one", b"X-Request-Id: two", b"Connection: close"]
    said = raw(site, b"GET /healthz HTTP/1.1", b"Host: localhost", *ids)
    assert b"x-request-id: req_" in said.lower()


def test_a_doubled_or_broken_header_is_no_bug(window: Window) -> None:
    token = b"Authorization: Token " + window.token.encode()
    doubled = [b"If-None-Match: \xff\xfe", b"If-None-Match: x", b"Accept: application/json"]
    line, host = b"GET /api/agents/ HTTP/1.1", b"Host: localhost"
    assert b" 200 " in raw(window.site, line, host, b"Connection: close", token, *doubled).split(b"\r\n")[0]


def test_the_lines_of_the_request_and_of_its_turn_have_the_id(window: Window, tmp_path: Path) -> None:
    with web_process(tmp_path, LOG_FORMAT="json") as (url, web):
        given = {"X-Request-Id": "order-17.a_B", "Prefer": "wait=20"}
        given["Authorization"] = f"Token {window.token}"
        answer = httpx2.post(f"{url}{window.address}/messages/", json={"content": "hello"}, headers=given)
    assert answer.headers["X-Request-Id"] == "order-17.a_B"
    assert answer.json()["state"] == "succeeded"
    assert "order-17" not in answer.text
    [access] = [line for line in web.text().splitlines() if f"POST {window.address}/messages/" in line]
    assert json.loads(access)["request"] == "order-17.a_B"
    worker = window.site.worker
    turn = f" turn={answer.json()['id']} "
    for event in ("turn_start", "turn_end"):
        until(lambda event=event: any(event in line for line in lines_of(worker, turn)))  # type: ignore[misc]
    assert all("request=order-17.a_B" in line for line in lines_of(worker, turn))


def lines_of(process: Process, words: str) -> list[str]:
    return [line for line in process.text().splitlines() if words in line]


APP = "https://app.example"
READABLE = [
    *("ETag", "Location", "Preference-Applied", "Retry-After", "RateLimit", "RateLimit-Policy"),
    *("WWW-Authenticate", "Allow", "X-Should-Retry", "X-Request-Id", "Rondo-Version"),
]
PREFLIGHT = {
    "Access-Control-Request-Method": "PATCH",
    "Access-Control-Request-Headers": "authorization, if-match, x-stainless-lang",
}


@pytest.fixture(scope="module")
def open_to_app(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A web process beside that of the module, with CORS for one origin."""
    origins = f"{APP},http://localhost:5173"
    with web_process(tmp_path_factory.mktemp("cors"), RONDO_CORS_ORIGINS=origins) as (url, _):
        yield url


def allowed(answer: httpx2.Response) -> str | None:
    assert "Access-Control-Allow-Credentials" not in answer.headers
    found: str | None = answer.headers.get("Access-Control-Allow-Origin")
    return found


def test_a_named_origin_is_told_that_it_may(open_to_app: str) -> None:
    def check(path: str) -> None:
        answer = httpx2.options(f"{open_to_app}{path}", headers=PREFLIGHT | {"Origin": APP})
        assert (answer.status_code, allowed(answer)) == (200, APP)
        assert "PATCH" in answer.headers["Access-Control-Allow-Methods"]
        assert answer.headers["Access-Control-Allow-Headers"] == PREFLIGHT["Access-Control-Request-Headers"]
        assert "Origin" in answer.headers["Vary"]
        assert answer.headers["X-Request-Id"]

    for_each(["/api/agents/demo/", "/v1/chat/completions", "/mcp", "/ag-ui/demo/"], check)


def test_its_scripts_can_read_responses_and_refusals(open_to_app: str, window: Window) -> None:
    headers = {"Origin": APP, "Authorization": f"Token {window.token}"}
    with httpx2.Client(base_url=open_to_app, headers=headers) as http:
        huge = http.post("/api/agents/", content=b"x" * 1_100_000)
        for answer in (http.get("/api/agents/"), http.get("/api/nothing/"), huge):
            assert allowed(answer) == APP
            assert "Origin" in answer.headers["Vary"]
            exposed = answer.headers["Access-Control-Expose-Headers"]
            assert exposed.split(", ") == READABLE
        assert huge.status_code == 413
        with http.stream("GET", f"{window.address}/events/") as stream:
            assert (stream.status_code, allowed(stream)) == (200, APP)


def test_other_origins_are_refused_and_all_without_the_setting(open_to_app: str, window: Window) -> None:
    answer = window.http.get("/api/agents/", headers={"Origin": APP})
    assert (answer.status_code, allowed(answer)) == (200, None)
    assert allowed(window.http.options("/api/agents/", headers=PREFLIGHT | {"Origin": APP})) is None

    def check(origin: str) -> None:
        answer = httpx2.options(f"{open_to_app}/api/agents/", headers=PREFLIGHT | {"Origin": origin})
        assert (answer.status_code, allowed(answer)) == (400, None)
        headers = {"Origin": origin, "Authorization": f"Token {window.token}"}
        assert allowed(httpx2.get(f"{open_to_app}/api/agents/", headers=headers)) is None

    others = ["https://other.example", "http://app.example", f"{APP}.evil.example", "null", "*"]
    for_each(others, check)


def test_pages_have_no_cors(open_to_app: str) -> None:
    def check(path: str) -> None:
        assert allowed(httpx2.get(f"{open_to_app}{path}", headers={"Origin": APP})) is None
        assert allowed(httpx2.options(f"{open_to_app}{path}", headers=PREFLIGHT | {"Origin": APP})) is None

    for_each(["/", "/sign-in/", "/admin/login/", "/healthz"], check)


def test_its_scripts_may_use_the_mcp_server(open_to_app: str, window: Window) -> None:
    """It refuses the pages of all other sites."""
    headers = {"Authorization": f"Bearer {window.token}", "Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    for origin, status in ((APP, 200), ("https://other.example", 403)):
        asked = headers | {"Origin": origin}
        answer = httpx2.post(f"{open_to_app}/mcp", json=body, headers=asked, timeout=60)
        assert answer.status_code == status
