"""Bad input gets a problem with a code and a reason, and nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps

from sessions_app.models import Allowance, Counter
from tests.api.conftest import Caller, Window, connected, for_each, problem

pytestmark = pytest.mark.django_db

OK = {"kind": "every", "seconds": 60}
BREAKS = ["\n", "\r", "\t", "\x1b", "\x85", "\u2028", "\u2029"]  # what one line does not hold


def rows() -> dict[str, int]:
    """How many rows each of our tables has; requests and errors are counted whatever becomes of them."""
    ours = [
        model for app in ("sessions_app", "automations") for model in apps.get_app_config(app).get_models()
    ]
    return {
        model.__name__: model._default_manager.count() for model in ours if model not in {Allowance, Counter}
    }


@pytest.fixture
def session(ada: Caller) -> Iterator[str]:
    """A session; after the test there are as many rows as before."""
    made = ada.session()
    before = rows()
    yield made
    assert rows() == before


def test_a_bad_schedule(ada: Caller, session: str) -> None:
    def check(schedule: Any, code: str) -> None:
        asked = {"message": "check", "schedule": schedule}
        problem(ada.post(f"/api/sessions/{session}/automations/", asked), 400, code)
        problem(ada.post("/api/schedules/preview/", {"schedule": schedule}), 400, code)

    rows: list[Any] = [
        ({"kind": "cron", "expr": "61 * * * *"}, "bad_cron"),
        ({}, "bad_schedule"),
        (None, "bad_input"),
    ]
    for_each(rows, check)


def test_a_bad_automation(ada: Caller, session: str) -> None:
    for_each(
        [
            ({"schedule": OK}, "bad_input"),
            ({"message": "check", "schedule": OK, "every_seconds": 5}, "bad_input"),  # and a second one
            ({"message": "check", "schedule": OK, "name": " \u3000 "}, "empty_name"),
            *(({"message": "check", "schedule": OK, "name": f"a{each}b"}, "bad_name") for each in BREAKS),
            ({"message": "a\u0000b", "schedule": OK}, "bad_input"),
            ({"message": "check", "schedule": OK, "enabled": 1}, "bad_input"),
            ({"message": "check", "schedule": OK, "overlap": "maybe"}, "bad_input"),
            ({"message": "check", "schedule": OK, "deliver": True}, "bad_input"),  # a legacy field
            ([], "bad_input"),
        ],
        lambda body, code: problem(ada.post(f"/api/sessions/{session}/automations/", body), 400, code),
    )


def test_a_bad_change_of_an_automation_changes_nothing(ada: Caller) -> None:
    session = ada.session()
    address = f"/api/automations/{ada.automation(session)['id']}/"
    job = ada.get(address).json()
    for body, code in (
        ({"schedule": {"kind": "cron", "expr": "x"}}, "bad_cron"),
        ({"name": ""}, "empty_name"),
        ({"message": "  "}, "empty_message"),
        ({"session_key": "web:2"}, "bad_input"),
        ({"next_run_at": None}, "bad_input"),
        ({"message": "new", "schedule": None}, "bad_input"),
    ):
        problem(ada.patch(address, body), 400, code)
    assert ada.get(address).json() == job


def test_a_bad_message(ada: Caller, session: str) -> None:
    for_each(
        [
            ({}, "bad_input"),
            ({"content": " \n\t "}, "empty_message"),
            ({"content": "x" * 100_001}, "message_too_long"),
            ({"content": 5}, "bad_input"),
            ({"content": "a\u0000b"}, "bad_input"),
            ({"content": "a", "on_busy": "queue"}, "bad_input"),
            ({"content": "a", "role": "system"}, "bad_input"),
        ],
        lambda body, code: problem(ada.post(f"/api/sessions/{session}/messages/", body), 400, code),
    )


def test_a_bad_session(ada: Caller, session: str) -> None:
    def check(body: Any, status: int, code: str) -> None:
        problem(ada.post("/api/sessions/", body), status, code)
        if code == "bad_title":
            problem(ada.patch(f"/api/sessions/{session}/", {"title": body["title"]}), status, code)

    rows: list[Any] = [
        ({}, 400, "bad_input"),
        ({"agent": "unknown"}, 404, "not_found"),
        ({"agent": "a\u0000b"}, 400, "bad_input"),
        ({"agent": "demo", "key": "unified:default"}, 400, "reserved_key"),
        ({"agent": "demo", "key": "job:1:2"}, 400, "reserved_key"),
        ({"agent": "demo", "key": "nocolon"}, 400, "bad_key"),
        ({"agent": "demo", "key": "web:" + "x" * 200}, 400, "bad_key"),
        ({"agent": "demo", "key": "web:1", "channel": "telegram"}, 400, "bad_key"),
        ({"agent": "demo", "channel": "We b"}, 400, "bad_channel"),
        ({"agent": "demo", "channel": "job"}, 400, "reserved_key"),
        ({"agent": "demo", "chat_type": "crowd"}, 400, "bad_input"),
        ({"agent": "demo", "type": "primary"}, 400, "bad_input"),
        *(({"agent": "demo", "title": f"a{each}b"}, 400, "bad_title") for each in BREAKS),
    ]
    for_each(rows, check)


def test_a_bad_agent(ada: Caller, session: str) -> None:
    def check(fields: dict[str, Any], code: str) -> None:
        problem(ada.post("/api/agents/", {"name": "other"} | fields), 400, code)
        if "name" not in fields:
            problem(ada.patch("/api/agents/demo/", fields), 400, code)

    rows: list[Any] = [
        ({"name": ""}, "bad_input"),
        ({"name": "a/b"}, "bad_name"),
        *(({"name": f"a{each}b"}, "bad_name") for each in BREAKS),
        ({"name": "x" * 65}, "bad_input"),
        ({"model": "gpt 5"}, "bad_model"),
        ({"model": "openai:" + "x" * 200}, "bad_model"),
        ({"timezone": "Mars/Olympus"}, "unknown_timezone"),
        ({"engine": "magic"}, "bad_input"),
        ({"unified_session": "yes"}, "bad_input"),
        ({"routine_limit": -1}, "bad_routine_limit"),
        ({"heartbeat": {"pulse": 1}}, "bad_input"),
        ({"heartbeat": {"active_hours": [8, 25]}}, "bad_heartbeat"),
        ({"heartbeat": {"interval_seconds": 0}}, "bad_heartbeat"),
        ({"heartbeat": []}, "bad_input"),
        ({"policy": {"max_tool_call": 1}}, "bad_policy"),
        ({"policy": 5}, "bad_input"),
        ({"revision": 7}, "bad_input"),
    ]
    for_each(rows, check)


def test_the_error_names_the_field_that_the_request_has(ada: Caller) -> None:
    session, web = ada.session(), ada.session(channel="web")
    token, past = {"name": "x", "scopes": ["read"]}, "2020-01-01T00:00:00Z"
    cron, agents, at = {"kind": "cron", "expr": "x"}, "/api/agents/demo/", f"/api/sessions/{session}"
    key = {"Idempotency_Key": "k" * 201}
    for answer, field in (
        (ada.post(f"{at}/automations/", {"message": "x", "schedule": cron}), "schedule.expr"),
        (ada.post(f"{at}/automations/", {"message": "x", "schedule": OK, "ends_at": "x"}), "ends_at"),
        (ada.post(f"{at}/automations/", {"message": " ", "schedule": OK}), "message"),
        (ada.post(f"{at}/messages/", {"content": " "}), "content"),
        (ada.post(f"{at}/messages/", b"{"), "body"),
        (ada.post(f"{at}/messages/", {"content": "x"}, **key), "Idempotency-Key"),
        (ada.get(f"{at}/events/", Last_Event_ID="x"), "Last-Event-ID"),
        (ada.post(f"{at}/scheduled-messages/", {"send_at": "x", "message_text": "x"}), "send_at"),
        (ada.post(f"{agents}routines/", {"title": "x", "schedule": "x"}), "schedule"),
        (ada.post(f"{agents}routines/", {"title": "x", "next_run_at": "x"}), "next_run_at"),
        (ada.post(f"{agents}routines/", {"title": "x", "timezone": "Mars/Olympus"}), "timezone"),
        (ada.patch(agents, {"timezone": "Mars/Olympus"}), "timezone"),
        (ada.patch(agents, {"routine_limit": 5}, If_Match="5"), "If-Match"),
        (ada.post("/api/sessions/", {"agent": "demo", "channel": "job"}), "channel"),
        (ada.post("/api/sessions/", {"agent": "demo", "channel": "We b"}), "channel"),
        (ada.post("/api/tokens/", token | {"expires_at": past}), "expires_at"),
        (ada.post("/api/tokens/", token | {"agent": "demo", "session": session}), "agent session"),
        (ada.patch(f"/api/sessions/{web}/", {"address": "a@example.org"}), "address"),
        (ada.post(f"{at}/scheduled-messages/", {"send_at": past, "message_text": "x"}), "send_at"),
    ):
        assert answer.status_code == 400, answer.content
        assert list(answer.json()["errors"]) == field.split(), answer.json()


def test_a_bad_document(ada: Caller, session: str) -> None:
    address = "/api/agents/demo/documents/USER.md/"
    problem(ada.put(address, {"content": "x" * 200_001}), 400, "document_too_long")
    problem(ada.put(address, {"content": "a\u0000b"}), 400, "bad_input")
    problem(ada.put(address, {}), 400, "bad_input")
    problem(ada.put(address, {"content": "x", "revision": 5}), 400, "bad_input")


def test_what_exists_already_is_refused(ada: Caller) -> None:
    ada.session(key="web:1")
    before = rows()
    problem(ada.post("/api/agents/", {"name": "demo"}), 409, "agent_exists")
    problem(ada.post("/api/sessions/", {"agent": "demo", "key": "web:1"}), 409, "session_exists")
    assert rows() == before


@pytest.mark.rule("3.4")
@pytest.mark.parametrize(
    ("key", "kind"), [("heartbeat:demo", "heartbeat"), ("job:abc:1", "job"), ("cron:abc", "job")]
)
@pytest.mark.parametrize("on_busy", ["inject", "enqueue", "reject", "interrupt"])
def test_nobody_speaks_into_an_internal_session(ada: Caller, key: str, kind: str, on_busy: str) -> None:
    from sessions_app.models import Session

    primary = Session.objects.filter(key="unified:default").latest("created_at")
    inside = Session.objects.create(agent=primary.agent, owner=primary.owner, key=key, type=kind)
    before = rows()
    said = ada.post(f"/api/sessions/{inside.pk}/messages/", {"content": "hello", "on_busy": on_busy})
    refused = problem(said, 400, "internal_session")
    assert kind in refused["detail"]
    assert "errors" not in refused, "no field of the request is wrong"
    assert rows() == before


def test_a_body_that_is_no_object_is_told_so(ada: Caller, session: str) -> None:
    def check(body: Any) -> None:
        for refused in (
            ada.post(f"/api/sessions/{session}/automations/", body),
            ada.patch(f"/api/sessions/{session}/", body),
            ada(method="PATCH", path="/api/agents/demo/", data=b"null"),
        ):
            found = problem(refused, 400, "bad_input")
            assert found["errors"] == {"body": ["A JSON object is expected."]}
        nested = problem(ada.patch("/api/agents/demo/", {"heartbeat": body}), 400, "bad_input")
        assert nested["errors"] == {"heartbeat": ["A JSON object is expected."]}

    for_each([[], "text", 5, True, [{"message": "x"}]], check)


def test_read_only_and_unknown_fields_get_different_errors(ada: Caller, session: str) -> None:
    agent, known = "/api/agents/demo/", "This field cannot be changed."
    for address, name in (
        (agent, "name"),
        (agent, "revision"),
        (f"/api/sessions/{session}/", "key"),
        (f"/api/sessions/{session}/", "state"),
    ):
        found = problem(ada.patch(address, {name: "x", "odd": 1}), 400, "bad_input")
        assert found["errors"] == {name: [known], "odd": ["This field is not known."]}
    document = ada.put(f"{agent}documents/USER.md/", {"content": "x", "revision": 1})
    assert problem(document, 400, "bad_input")["errors"] == {"revision": [known]}


def test_a_malformed_if_match(ada: Caller, session: str) -> None:
    for_each(
        ["5", "abc", '"5', "'5'", '"5" "6"', "", ",", '""5""'],
        lambda header: problem(
            ada.patch("/api/agents/demo/", {"routine_limit": 5}, If_Match=header), 400, "bad_if_match"
        ),
    )


def test_an_if_match_that_does_not_hold(ada: Caller, session: str) -> None:
    for header in ('"7"', 'W/"0"', '"00"', '""'):
        problem(ada.delete("/api/agents/demo/", If_Match=header), 412, "revision_conflict")


def test_an_if_match_that_holds(ada: Caller) -> None:
    for number, header in enumerate(["*", '"0"', '"7", "0"', 'W/"1", "0"']):
        ada.agent(f"a{number}")
        changed = ada.patch(f"/api/agents/a{number}/", {"routine_limit": 5}, If_Match=header)
        assert changed.status_code == 200, header


def test_a_bad_cursor(ada: Caller, session: str) -> None:
    def check(cursor: str) -> None:
        problem(ada.get(f"/api/sessions/{session}/turns/?cursor={cursor}"), 400, "bad_cursor")
        problem(ada.get(f"/api/sessions/?cursor={cursor}"), 400, "bad_cursor")

    problem(ada.get("/api/sessions/?cursor=%00"), 400, "bad_parameter")
    for_each(["x", "AAAA", "cD1hYmM=", "cD0lMDA=", "bz0tNQ==", "ä", "bz1hYmM="], check)


def test_a_bad_page_size(ada: Caller, session: str) -> None:
    def check(size: str) -> None:
        problem(ada.get(f"/api/sessions/?page_size={size}"), 400, "bad_page_size")

    sizes = ["0", "-1", "201", "x", "", "9" * 5000, "000200999", "000100" + "9" * 4400, "\u0661"]
    for_each(sizes, check)


def test_a_bad_event_cursor(ada: Caller, session: str) -> None:
    def check(cursor: str) -> None:
        address = f"/api/sessions/{session}/events/"
        body = problem(ada.get(f"{address}?last_event_id={cursor}"), 400, "bad_cursor")
        assert list(body["errors"]) == ["last_event_id"]
        if cursor.isascii():
            body = problem(ada.get(address, Last_Event_ID=cursor), 400, "bad_cursor")
            assert list(body["errors"]) == ["Last-Event-ID"]

    for_each(["x", "1", "1-", "-1", "1-x", "99999999999999999999-1", "\uff11-1"], check)


def test_a_bad_idempotency_key(ada: Caller, session: str) -> None:
    for key in ("", "x" * 201, "a\tb"):
        refused = ada.post(f"/api/sessions/{session}/messages/", {"content": "a"}, Idempotency_Key=key)
        problem(refused, 400, "bad_idempotency_key")
        problem(
            ada.post("/api/sessions/", {"agent": "demo"}, Idempotency_Key=key), 400, "bad_idempotency_key"
        )


def test_addresses_methods_and_types_that_are_not_there(ada: Caller, session: str) -> None:
    for path in ("", "nothing/", "agents//", "sessions/x/", "turns/x/", "%00/", "agents/%2F/", "é/"):
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
            problem(ada(method, f"/api/{path}"), 404, "not_found")
    problem(ada.get("/api/agents/%00/"), 404, "not_found")
    problem(ada.get("/api/runs/%00/"), 404, "not_found")
    problem(ada.get("/api/turns/99999999999999999999999/"), 404, "not_found")
    problem(ada.get("/api/sessions/?key=a%00b"), 400, "bad_parameter")
    for method in ("PUT", "OPTIONS", "TRACE", "QUERY"):
        wrong = ada(method, "/api/agents/", {})
        problem(wrong, 405, "method_not_allowed")
        assert wrong.headers["Allow"] == "GET, HEAD, POST"
    problem(ada.get("/api/agents/", Accept="text/html"), 406, "not_acceptable")
    form = ada.client.post(
        "/api/agents/", data="name=x", content_type="application/x-www-form-urlencoded",
        headers={"Authorization": f"Token {ada.token}"},
    )  # fmt: skip
    problem(form, 415, "unsupported_media_type")
    assert "/api/agents/" in problem(ada.post("/api/agents", {"name": "x"}), 404, "not_found")["detail"]


def test_a_bug_is_logged_and_tells_nothing_about_itself(
    ada: Caller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret internals")

    monkeypatch.setattr("sessions_app.reads.selectors.agents", broken)
    response = ada.get("/api/agents/")
    assert b"secret" not in response.content
    assert problem(response, 500, "server_error").keys() == {"type", "title", "status", "code", "detail"}
    assert "secret internals" in caplog.text


def test_an_instant_that_utc_does_not_have_is_refused(ada: Caller) -> None:
    def check(after: str) -> None:
        body = {"schedule": {"kind": "every", "seconds": 300}, "after": after}
        assert "after" in problem(ada.post("/api/schedules/preview/", body), 400, "bad_input")["errors"]

    for_each(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"], check)


LOCAL = (
    *("127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0", "10.1", "127.0.0.1."),
    *("１２７.0.0.1", "127。0。0。1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"),  # noqa: RUF001
    *(
        "localhost",
        "a.LOCALHOST.",
        "localhost.localdomain",
        "ip6-localhost",
        "db",
        "nas.local",
        "api.internal",
    ),
    *("router.home.arpa", "169.254.169.254", "100.100.100.200"),
)


@pytest.mark.rule("3.5")
def test_no_form_of_a_local_address_is_stored_anywhere(ada: Caller, session: str) -> None:
    requests = (
        ("post", "/api/sessions/", lambda url: {"agent": "demo", "channel": "webhook", "address": url}),
        ("post", "/api/agents/demo/hooks/", lambda url: {"name": "x", "channel": "webhook", "address": url}),
        ("patch", "/api/agents/demo/", lambda url: {"events_url": url}),
        ("patch", "/api/agents/demo/", lambda url: {"mcp_servers": {"docs": {"url": url}}}),
        (
            "post",
            f"/api/sessions/{session}/automations/",
            lambda url: {"message": "check", "schedule": OK, "ping_url": url},
        ),
        (
            "post",
            "/api/connections/",
            lambda url: {"name": "x", "provider": "ollama", "base_url": url, "models": ["m"]},
        ),
    )
    taken = [
        (host, path)
        for verb, path, body in requests
        for host in LOCAL
        if getattr(ada, verb)(path, body(f"http://{host}:8000/v1")).status_code != 400
    ]
    assert taken == []


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
    with connected(window.site.url) as caller:
        lines = [
            b"GET /api/agents/ HTTP/1.1", b"Host: localhost", b"Connection: close", b"Accept: application/json",
            b"Authorization: Token " + window.token.encode(), b"If-None-Match: \xff\xfe", b"If-None-Match: x",
        ]  # fmt: skip
        caller.sendall(b"\r\n".join([*lines, b"", b""]))
        assert b" 200 " in caller.recv(100).split(b"\r\n")[0]
