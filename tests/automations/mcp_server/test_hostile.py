"""Requests that no client of the SDK sends."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import httpx2
import pytest
from django.contrib.auth.models import User
from django.test import Client

from config.installation import VERSION
from sessions_app.models import Turn
from tests.api.conftest import Site, start_web
from tests.automations.mcp_server.conftest import Door

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
LEGACY = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def post(door: Door, body: Any, **headers: str) -> httpx2.Response:
    """A POST as it stands."""
    sent = LEGACY | {"Authorization": f"Bearer {door.token}"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.post(f"{door.url}/mcp", content=content, headers=sent, timeout=30)


def call(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def ask(message: str = "hello") -> dict[str, Any]:
    return call("tools/call", name="ask", arguments={"message": message, "wait_seconds": 0})


def test_without_a_token_there_is_nothing(ada: Door) -> None:
    for value in ("", "Bearer", f"Bearer {'0' * 40}", f"Basic {ada.token}"):
        answer = post(ada, ask(), Authorization=value)
        assert answer.status_code == 401, value
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.json()["error"]["code"] == -32600
        assert answer.json()["id"] is None
    User.objects.update(is_active=False)
    assert post(ada, ask()).status_code == 401
    assert not Turn.objects.exists()


def test_a_browsers_sign_in_is_not_accepted(ada: Door, site: Site) -> None:
    client = Client()
    client.force_login(ada.user)
    cookie = client.cookies["sessionid"].value
    assert post(ada, ask(), Authorization="", Cookie=f"sessionid={cookie}").status_code == 401


def test_pages_of_other_sites_are_refused(ada: Door) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1", f"{ada.url}.evil.example", "file://"):
        assert post(ada, ask(), Origin=origin).status_code == 403, origin
    assert post(ada, ask(), Host="evil.example").status_code == 400
    assert not Turn.objects.exists()
    answer = post(ada, call("initialize", **HELLO), Origin=ada.url)
    assert answer.status_code == 200
    assert f'"version":"{VERSION}"' in answer.text.replace(" ", "")


def rpc(**more: Any) -> bytes:
    """The bytes of a request."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"} | more).encode()


ID = b'"id": 1'
BODIES: dict[int, list[bytes]] = {
    400: [
        *(b"", b"{", b"\xff\xfe", b"null", b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
        *(rpc().replace(ID, ID + b', "id": 2'), rpc().replace(ID, b'"id": ' + b"9" * 5_000)),
        *(json.dumps([ask(), ask()]).encode(), rpc(jsonrpc="1.0"), rpc(method=5)),
        rpc(params={"x": "\ud800"}),
    ],
    413: [b"[" * 100_000, b"[" + b"1," * 20_000 + b"1]", json.dumps(ask("x" * (1024 * 1024))).encode()],
    202: [rpc(id=[]), b'{"jsonrpc": "2.0", "id": 1, "result": {}}'],  # the first one is like a notification
}


def test_bodies_that_are_no_request_are_refused(ada: Door) -> None:
    for status, bodies in BODIES.items():
        assert [post(ada, body).status_code for body in bodies] == [status] * len(bodies)
    assert post(ada, ask(), Content_Type="text/plain").status_code == 400
    assert post(ada, call("ping")).json()["result"] == {}
    assert not Turn.objects.exists()


TOOL = partial(call, "tools/call")
UNSERVED = {
    -32601: [call("nothing"), call("resources/list"), call("tasks/get", taskId="1")],
    -32602: [TOOL(), TOOL(name="nothing"), TOOL(name="ask", arguments=[]), TOOL(name="n\x00", arguments={})],
}


def test_requests_that_are_not_served_are_errors(ada: Door) -> None:
    for code, requests in UNSERVED.items():
        for request in requests:
            assert post(ada, request).json()["error"]["code"] == code, request
    assert not Turn.objects.exists()


def test_the_header_and_the_body_must_agree_on_the_revision(ada: Door) -> None:
    version = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/list"}
    assert post(ada, call("tools/list"), **version).status_code == 400  # no envelope
    assert post(ada, call("tools/list"), MCP_Protocol_Version="2999-01-01").status_code == 400
    assert "tools" in post(ada, call("tools/list"), MCP_Protocol_Version="2025-06-18").json()["result"]


def test_there_is_nothing_to_get_or_delete(ada: Door) -> None:
    for method in ("GET", "DELETE", "PUT", "HEAD"):
        answer = httpx2.request(method, f"{ada.url}/mcp", headers={"Authorization": f"Bearer {ada.token}"})
        assert answer.status_code == 405, method
        assert answer.headers["Allow"] == "POST"


def test_requests_count_toward_the_limit_of_the_api(ada: Door, tmp_path: Any) -> None:
    url, web = start_web(tmp_path, RONDO_THROTTLE="3/h")
    try:
        door = Door(url=url, token=ada.token, user=ada.user)
        answers = [post(door, call("ping")) for _ in range(4)]
    finally:
        web.kill()
    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert answers[-1].json()["error"]["code"] == -32600


def test_no_answer_shows_the_token(ada: Door) -> None:
    for body in (call("nothing", token=ada.token), ask("\x00"), b"{"):
        sent = json.dumps(body) if isinstance(body, dict) else ""
        assert ada.token not in post(ada, body).text.replace(sent, "")
