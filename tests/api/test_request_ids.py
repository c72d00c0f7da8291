"""Each response has a request id, whoever answers; log lines of the request and of its turn have it, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from tests.api.conftest import Site, Window, connected, for_each, start_web
from tests.fleet import Process, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


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
    for lines in (
        [b"this is not HTTP"],
        [b"GET / HTTP/1.1", b"Host: localhost", b"X-Long: " + b"x" * 20_000],
    ):
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
    browser = Client()
    browser.force_login(User.objects.get(username="ada"))
    cookies = {settings.SESSION_COOKIE_NAME: browser.cookies[settings.SESSION_COOKIE_NAME].value}
    with without("sessions_app_message"):
        headers = {"Accept": "text/html", "X-Request-Id": "seen-by-ada"}
        page = httpx2.get(f"{window.site.url}/sessions/{window.session}/", cookies=cookies, headers=headers)
    assert page.status_code == 500
    assert "tell the administrator this id: seen-by-ada" in page.text
    assert "sessions_app" not in page.text


def test_an_invalid_id_is_replaced(window: Window) -> None:
    def check(given: str) -> None:
        answer = window.http.get("/healthz", headers={b"X-Request-Id": given.encode()})
        assert answer.headers["X-Request-Id"].startswith("req_")

    for_each(["a" * 65, "", "a b", "a\tb", "x=1", "é"], check)


def test_one_of_several_ids_is_not_chosen(site: Site) -> None:
    ids = [b"X-Request-Id: one", b"X-Request-Id: two", b"Connection: close"]
    answer = raw(site, b"GET /healthz HTTP/1.1", b"Host: localhost", *ids)
    assert b"x-request-id: req_" in answer.lower()


def test_the_lines_of_the_request_and_of_its_turn_have_the_id(window: Window, tmp_path: Path) -> None:
    url, web = start_web(tmp_path, LOG_FORMAT="json")
    try:
        given = {
            "X-Request-Id": "order-17.a_B",
            "Prefer": "wait=20",
            "Authorization": f"Token {window.token}",
        }
        answer = httpx2.post(f"{url}{window.address}/messages/", json={"content": "hello"}, headers=given)
    finally:
        web.kill()
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
