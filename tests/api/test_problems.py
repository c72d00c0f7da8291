"""Each refusal over real HTTP: a problem with its code, whoever refuses, and nothing of the inside."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from django.test import Client

from tests.api.conftest import Window
from tests.fleet import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]

JSON = {"Content-Type": "application/json"}
NOWHERE = "00000000-0000-4000-8000-000000000000"


def assert_problem(answer: httpx2.Response, status: int, code: str) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"/api/docs/errors/#{code}")
    assert body["title"]
    assert body["detail"]
    return body


def test_each_status_has_its_problem(window: Window) -> None:
    http, session = window.http, window.address
    sent = window.send("one", Idempotency_Key="k")
    assert sent.status_code == 202
    until(lambda: http.get(sent.headers["Location"]).json()["state"] == "succeeded")
    assert_problem(http.post(f"{session}/messages/", content=b"{", headers=JSON), 400, "malformed_body")
    assert_problem(http.post(f"{session}/messages/", json={}), 400, "bad_input")
    assert_problem(http.get(f"/api/sessions/{NOWHERE}/"), 404, "not_found")
    assert_problem(http.put("/api/agents/", json={}), 405, "method_not_allowed")
    assert_problem(http.get("/api/agents/", headers={"Accept": "text/html"}), 406, "not_acceptable")
    assert_problem(http.get(f"{session}/events/", headers={"Accept": "text/html"}), 406, "not_acceptable")
    assert_problem(http.post(f"{sent.headers['Location']}cancel/"), 409, "turn_ended")
    stale = {"If-Match": '"stale"'}
    assert_problem(http.patch(f"{session}/", json={"title": "x"}, headers=stale), 412, "revision_conflict")
    assert_problem(http.delete(f"{session}/", headers=stale), 412, "revision_conflict")
    huge = b" " * 1_100_000
    assert_problem(http.patch(f"{session}/", content=huge, headers=JSON), 413, "too_large")
    assert_problem(http.post("/api/agents/", data={"name": "x"}), 415, "unsupported_media_type")
    other = http.post(f"{session}/messages/", json={"content": "two"}, headers={"Idempotency-Key": "k"})
    assert_problem(other, 422, "idempotency_mismatch")


@pytest.mark.parametrize("token", [None, "Token wrong", "Token", "Token a b", "Bearer wrong"])
def test_a_missing_or_wrong_token_gets_401_with_authenticate_header(
    window: Window, token: str | None
) -> None:
    for method in ("GET", "HEAD", "POST", "PATCH"):
        headers = {"Authorization": token} if token else {}
        answer = httpx2.request(method, f"{window.site.url}{window.address}/", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["WWW-Authenticate"] == "Token"


def test_a_browser_needs_its_csrf_token(window: Window) -> None:
    browser = Client()
    browser.force_login(User.objects.get(username="ada"))
    cookies = {settings.SESSION_COOKIE_NAME: browser.cookies[settings.SESSION_COOKIE_NAME].value}
    assert SessionStore(cookies[settings.SESSION_COOKIE_NAME]).exists(cookies[settings.SESSION_COOKIE_NAME])
    with httpx2.Client(base_url=window.site.url, cookies=cookies) as http:
        assert http.get("/api/agents/").status_code == 200
        assert_problem(http.post("/api/agents/", json={"name": "x"}), 403, "permission_denied")


@pytest.mark.parametrize(
    "path", ["", "nothing/", "agents//", "sessions/x/", "turns/x/", "%00/", "agents/%2F/", "é/"]
)
def test_an_address_that_is_none_has_a_problem(window: Window, path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
        assert_problem(window.http.request(method, f"/api/{path}"), 404, "not_found")


def test_a_post_without_trailing_slash_is_refused_with_a_hint(window: Window) -> None:
    assert window.http.get("/api/agents", follow_redirects=True).status_code == 200
    found = assert_problem(window.http.post("/api/agents", json={"name": "x"}), 404, "not_found")
    assert "/api/agents/" in found["detail"]


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "TRACE", "QUERY"])
def test_a_method_that_is_not_there_names_those_that_are(window: Window, method: str) -> None:
    answer = window.http.request(method, "/api/agents/")
    assert_problem(answer, 405, "method_not_allowed")
    assert answer.headers["Allow"] == "GET, HEAD, POST"


def test_head_is_get_without_the_body(window: Window) -> None:
    for path, status in (
        (f"{window.address}/", 200),
        ("/api/agents/", 200),
        (f"/api/sessions/{NOWHERE}/", 404),
    ):
        got, head = window.http.get(path), window.http.head(path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.status_code == status
        for name in ("Content-Type", "ETag", "Content-Length"):
            assert head.headers.get(name) == got.headers.get(name), name


def test_a_stream_has_no_head(window: Window) -> None:
    """It would keep its connection busy for ever."""
    head = window.http.head(f"{window.address}/events/")
    assert (head.status_code, head.headers["Allow"]) == (405, "GET")
    assert window.http.get("/api/agents/").status_code == 200


def test_a_host_that_is_not_ours_is_a_bad_request(window: Window) -> None:
    assert_problem(window.http.get("/api/agents/", headers={"Host": "evil.example"}), 400, "bad_request")


def test_a_doubled_or_broken_header_is_no_bug(window: Window) -> None:
    host, port = window.site.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as caller:
        lines = [
            b"GET /api/agents/ HTTP/1.1", b"Host: localhost", b"Connection: close", b"Accept: application/json",
            b"Authorization: Token " + window.token.encode(), b"If-None-Match: \xff\xfe", b"If-None-Match: x",
        ]  # fmt: skip
        caller.sendall(b"\r\n".join([*lines, b"", b""]))
        assert b" 200 " in caller.recv(100).split(b"\r\n")[0]


@contextmanager
def without(table: str) -> Iterator[None]:
    """The database, broken."""
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_away"')
        try:
            yield
        finally:
            cursor.execute(f'ALTER TABLE "{table}_away" RENAME TO "{table}"')


def test_a_500_is_logged_and_tells_nothing_of_the_inside(window: Window) -> None:
    with without("sessions_app_mailboxevent"):
        answer = window.http.get(f"{window.address}/mailbox/")
    found = assert_problem(answer, 500, "server_error")
    assert set(found) == {"type", "title", "status", "code", "detail"}
    for inside in ("sessions_app", "mailboxevent", "Traceback", "psycopg", "SELECT"):
        assert inside not in answer.text
    log = window.site.web.text()
    assert "UndefinedTable" in log or "does not exist" in log
    assert f"{window.address}/mailbox/" in log
    assert window.http.get(f"{window.address}/mailbox/").status_code == 200
