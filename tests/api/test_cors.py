"""CORS: off by default; for the named origins only, with a token and never with a cookie."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.api.conftest import Site, Window, for_each, start_web

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]

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
def open_to_app(processes: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A web process beside that of the module, with CORS for one origin."""
    url, web = start_web(tmp_path_factory.mktemp("cors"), RONDO_CORS_ORIGINS=f"{APP},http://localhost:5173")
    yield url
    web.kill()


def allowed(answer: httpx2.Response) -> str | None:
    assert "Access-Control-Allow-Credentials" not in answer.headers
    found: str | None = answer.headers.get("Access-Control-Allow-Origin")
    return found


def test_without_the_setting_nobody_is_allowed(window: Window) -> None:
    answer = window.http.get("/api/agents/", headers={"Origin": APP})
    assert (answer.status_code, allowed(answer)) == (200, None)
    assert allowed(window.http.options("/api/agents/", headers=PREFLIGHT | {"Origin": APP})) is None


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


def test_other_origins_are_refused(open_to_app: str, window: Window) -> None:
    def check(origin: str) -> None:
        answer = httpx2.options(f"{open_to_app}/api/agents/", headers=PREFLIGHT | {"Origin": origin})
        assert (answer.status_code, allowed(answer)) == (400, None)
        headers = {"Origin": origin, "Authorization": f"Token {window.token}"}
        assert allowed(httpx2.get(f"{open_to_app}/api/agents/", headers=headers)) is None

    for_each(
        ["https://other.example", "http://app.example", "https://app.example.evil.example", "null", "*"],
        check,
    )


def test_pages_have_no_cors(open_to_app: str) -> None:
    def check(path: str) -> None:
        assert allowed(httpx2.get(f"{open_to_app}{path}", headers={"Origin": APP})) is None
        assert allowed(httpx2.options(f"{open_to_app}{path}", headers=PREFLIGHT | {"Origin": APP})) is None

    for_each(["/", "/sign-in/", "/admin/login/", "/healthz"], check)


def test_its_scripts_may_use_the_mcp_server(open_to_app: str, window: Window) -> None:
    """It refuses the pages of all other sites."""
    headers = {"Authorization": f"Bearer {window.token}", "Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    statuses = [
        httpx2.post(
            f"{open_to_app}/mcp", json=body, headers=headers | {"Origin": origin}, timeout=60
        ).status_code
        for origin in (APP, "https://other.example")
    ]
    assert statuses == [200, 403]
