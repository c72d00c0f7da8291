"""Requests that are odd, and a bug: a problem with its code, and nothing of the inside."""

from __future__ import annotations

import socket

import pytest

from tests.api.conftest import Caller, Window, problem

pytestmark = pytest.mark.django_db


def test_head_is_get_without_the_body(ada: Caller) -> None:
    nowhere = "/api/sessions/00000000-0000-4000-8000-000000000000/"
    for path, status in ((f"/api/sessions/{ada.session()}/", 200), ("/api/agents/", 200), (nowhere, 404)):
        got, head = ada.get(path), ada("HEAD", path)
        assert (head.status_code, head.content) == (got.status_code, b"") == (status, b"")
        for name in ("Content-Type", "ETag", "Content-Length"):
            assert head.headers.get(name) == got.headers.get(name), name


def test_a_stream_has_no_head(ada: Caller) -> None:
    """It would keep its connection busy for ever."""
    head = ada("HEAD", f"/api/sessions/{ada.session()}/events/")
    assert (head.status_code, head.headers["Allow"]) == (405, "GET")


def test_a_host_that_is_not_ours_is_a_bad_request(ada: Caller) -> None:
    problem(ada.get("/api/agents/", Host="evil.example"), 400, "bad_request")


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_doubled_or_broken_header_is_no_bug(window: Window) -> None:
    host, port = window.site.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as caller:
        lines = [
            b"GET /api/agents/ HTTP/1.1", b"Host: localhost", b"Connection: close", b"Accept: application/json",
            b"Authorization: Token " + window.token.encode(), b"If-None-Match: \xff\xfe", b"If-None-Match: x",
        ]  # fmt: skip
        caller.sendall(b"\r\n".join([*lines, b"", b""]))
        assert b" 200 " in caller.recv(100).split(b"\r\n")[0]
