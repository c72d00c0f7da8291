"""Requests that no client of the SDK sends."""

import json
from typing import Any

import httpx2
import pytest
from django.contrib.auth.models import User

from config.installation import VERSION
from sessions_app.models import Turn
from tests.api.conftest import Site, start_web
from tests.automations.mcp_server.conftest import McpCaller

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
LEGACY = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def post(caller: McpCaller, body: Any, **headers: str) -> httpx2.Response:
    """A POST as it stands."""
    sent = LEGACY | {"Authorization": f"Bearer {caller.token}"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.post(f"{caller.url}/mcp", content=content, headers=sent, timeout=30)


def call(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def ask(message: str = "hello") -> dict[str, Any]:
    return call("tools/call", name="ask", arguments={"message": message, "wait_seconds": 0})


def test_without_a_token_there_is_nothing(ada: McpCaller) -> None:
    for value in ("", "Bearer", f"Bearer {'0' * 40}", f"Basic {ada.token}"):
        answer = post(ada, ask(), Authorization=value)
        assert answer.status_code == 401, value
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.json()["error"]["code"] == -32600
        assert answer.json()["id"] is None
    User.objects.update(is_active=False)
    assert post(ada, ask()).status_code == 401
    assert not Turn.objects.exists()


def test_a_browsers_sign_in_is_not_accepted(ada: McpCaller, site: Site) -> None:
    from django.test import Client

    client = Client()
    client.force_login(ada.user)
    cookie = client.cookies["sessionid"].value
    assert post(ada, ask(), Authorization="", Cookie=f"sessionid={cookie}").status_code == 401


def test_pages_of_other_sites_are_refused(ada: McpCaller) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1", f"{ada.url}.evil.example", "file://"):
        assert post(ada, ask(), Origin=origin).status_code == 403, origin
    assert post(ada, ask(), Host="evil.example").status_code == 400
    assert not Turn.objects.exists()
    answer = post(ada, call("initialize", **HELLO), Origin=ada.url)
    assert answer.status_code == 200
    assert f'"version":"{VERSION}"' in answer.text.replace(" ", "")


BODIES: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"\xff\xfe", 400),
    (b"null", 400),
    (b"[" * 100_000, 413),
    (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, 400),
    (b"[" + b"1," * 20_000 + b"1]", 413),
    (b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}', 400),
    (b'{"jsonrpc": "2.0", "id": ' + b"9" * 5_000 + b', "method": "ping"}', 400),
    (json.dumps([ask(), ask()]).encode(), 400),
    (json.dumps({"jsonrpc": "1.0", "id": 1, "method": "ping"}).encode(), 400),
    (json.dumps({"jsonrpc": "2.0", "id": [], "method": "ping"}).encode(), 202),  # like a notification
    (json.dumps({"jsonrpc": "2.0", "id": 1, "method": 5}).encode(), 400),
    (json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode(), 202),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "\\ud800"}}', 400),
]


def test_bodies_that_are_no_request_are_refused(ada: McpCaller) -> None:
    assert [post(ada, body).status_code for body, _ in BODIES] == [status for _, status in BODIES]
    assert post(ada, ask("x" * (1024 * 1024))).status_code == 413
    assert post(ada, ask(), Content_Type="text/plain").status_code == 400
    assert post(ada, call("ping")).json()["result"] == {}
    assert not Turn.objects.exists()


UNSERVED: list[tuple[Any, int]] = [
    (call("nothing"), -32601),
    (call("tools/call"), -32602),
    (call("tools/call", name="nothing"), -32602),
    (call("tools/call", name="ask", arguments=[]), -32602),
    (call("tools/call", name="n\x00", arguments={}), -32602),
    (call("resources/list"), -32601),
    (call("tasks/get", taskId="1"), -32601),
]


def test_requests_that_are_not_served_are_errors(ada: McpCaller) -> None:
    for request, code in UNSERVED:
        assert post(ada, request).json()["error"]["code"] == code, request
    assert not Turn.objects.exists()


def test_the_header_and_the_body_must_agree_on_the_revision(ada: McpCaller) -> None:
    version = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/list"}
    assert post(ada, call("tools/list"), **version).status_code == 400  # no envelope
    assert post(ada, call("tools/list"), MCP_Protocol_Version="2999-01-01").status_code == 400
    assert "tools" in post(ada, call("tools/list"), MCP_Protocol_Version="2025-06-18").json()["result"]


def test_there_is_nothing_to_get_or_delete(ada: McpCaller) -> None:
    for method in ("GET", "DELETE", "PUT", "HEAD"):
        answer = httpx2.request(method, f"{ada.url}/mcp", headers={"Authorization": f"Bearer {ada.token}"})
        assert answer.status_code == 405, method
        assert answer.headers["Allow"] == "POST"


def test_requests_count_toward_the_limit_of_the_api(ada: McpCaller, tmp_path: Any) -> None:
    url, web = start_web(tmp_path, RONDO_THROTTLE="3/h")
    try:
        caller = McpCaller(url=url, token=ada.token, user=ada.user)
        answers = [post(caller, call("ping")) for _ in range(4)]
    finally:
        web.kill()
    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert answers[-1].json()["error"]["code"] == -32600


def test_no_answer_shows_the_token(ada: McpCaller) -> None:
    for body in (call("nothing", token=ada.token), ask("\x00"), b"{"):
        assert ada.token not in post(ada, body).text
