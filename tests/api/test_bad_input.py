"""Bad input gets a problem with a code and a reason, and nothing is stored."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps

from sessions_app.models import Allowance, Counter, Session
from sessions_app.models.session import LONGEST_ADDRESS
from tests.api.conftest import Caller, for_each, made, problem
from tests.api.places import furnish

pytestmark = pytest.mark.django_db

OK = {"kind": "every", "seconds": 60}
SECRET = "secret-of-the-server-4711"
BREAKS = ["\n", "\r", "\t", "\x1b", "\x85", "\u2028", "\u2029"]  # what one line does not hold


DOCS = {"url": "https://docs.example.org/mcp", "headers": {"Authorization": SECRET}}
PLACE = "https://chat.invalid/42"
SAY, DOCUMENT = "POST /api/sessions/{session_id}/messages/", "PUT /api/agents/{name}/documents/USER.md/"
JOB, NEW_JOB = "PATCH /api/automations/{job_id}/", SAY.replace("messages", "automations")
AGENT, NEW_AGENT = "PATCH /api/agents/{name}/", "POST /api/agents/"
HOOK, NEW_HOOK = "PATCH /api/hooks/{hook_id}/", "POST /api/agents/{name}/hooks/"
SESSION, NEW_SESSION = "PATCH /api/sessions/{session_id}/", "POST /api/sessions/"
ROUTINE, NEW_ROUTINE = "PATCH /api/routines/{routine_id}/", "POST /api/agents/{name}/routines/"
CONNECTION, TOKEN = "PATCH /api/connections/{connection}/", "POST /api/tokens/"
LATER, MEMORY = SAY.replace("messages", "scheduled-messages"), SESSION + "memory/"
SCHEDULES = (NEW_JOB, "POST /api/schedules/preview/")
NO_INSTANTS = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")  # that UTC has
BESIDE: dict[str, dict[str, Any]] = {  # the sound fields of a body that has bad ones
    NEW_AGENT: {"name": "other"},
    NEW_HOOK: {"name": "x"},
    NEW_JOB: {"message": "check", "schedule": OK},
    NEW_ROUTINE: {"title": "x"},
    NEW_SESSION: {"agent": "demo"},
    LATER: {"send_at": "2099-01-01T09:00:00+01:00", "message_text": "Take the cake out."},
    TOKEN: {"name": "dashboard", "scopes": ["read"]},
}
NOT_400 = {"not_found": 404, "agent_exists": 409, "session_exists": 409, "duplicate_routine": 409}
ELSEWHERE = [{"channel": "nosuch", "address": PLACE}, {"channel": "web", "address": "42"}]
NOBODYS = "00000000-0000-0000-0000-000000000000"
USD = [{"usd": each} for each in ("much", "-1", "NaN", "1e9", "0.0000001", "9" * 50)]
CAPS: list[Any] = [*USD, {"euro": "1"}, 5, *({"tokens": each} for each in (-1, 1.5, True))]
RULE = {"kind": "rrule", "rule": "FREQ=DAILY", "starts_at": "2026-11-01T09:00"}
BAD: list[tuple[tuple[str, ...], str, list[dict[str, Any]]]] = [  # fields that each of the operations refuses
    (SCHEDULES, "bad_cron", [{"schedule": {"kind": "cron", "expr": "61 * * * *"}}]),
    (SCHEDULES, "bad_rule", [{"schedule": RULE | {"rule": "FREQ=HOURLY"}}]),
    (SCHEDULES, "bad_except", [{"schedule": RULE | {"except": ["tomorrow"]}}]),
    (SCHEDULES, "bad_except_holidays", [{"schedule": RULE | {"except_holidays": "XX"}}]),
    (SCHEDULES, "bad_schedule", [{"schedule": {}}]),
    (SCHEDULES, "bad_input", [{"schedule": None}]),
    (SCHEDULES[1:], "bad_input", [{"schedule": OK, "after": each} for each in NO_INSTANTS]),
    ((NEW_JOB,), "bad_input", [{"every_seconds": 5}, {"message": "a\u0000b"}, {"enabled": 1}]),
    ((NEW_JOB,), "bad_input", [{"overlap": "maybe"}, {"deliver": True}]),  # a legacy field
    ((NEW_JOB,), "empty_name", [{"name": " \u3000 "}]),
    ((NEW_JOB, NEW_AGENT), "bad_name", [{"name": f"a{each}b"} for each in BREAKS]),
    ((JOB,), "bad_cron", [{"schedule": {"kind": "cron", "expr": "x"}}]),
    ((JOB,), "empty_name", [{"name": ""}]),
    ((JOB,), "empty_message", [{"message": "  "}]),
    (
        (JOB,),
        "bad_input",
        [{"session_key": "web:2"}, {"next_run_at": None}, {"message": "new", "schedule": None}],
    ),
    ((AGENT, JOB, ROUTINE, CONNECTION), "bad_limits", [{"limits": {"day": each}} for each in CAPS]),
    ((AGENT, JOB, ROUTINE, CONNECTION), "bad_limits", [{"limits": {"week": {"tokens": 1}}}]),
    ((CONNECTION,), "bad_prices", [{"prices": {"gpt": 1}}, {"prices": {" ": {}}}]),
    ((CONNECTION,), "bad_input", [{"prices": 5}]),
    (
        (CONNECTION,),
        "bad_prices",
        [{"prices": {"gpt": {"input": "1"} | more}} for more in ({}, {"output": "-2"})],
    ),
    ((SAY,), "empty_message", [{"content": " \n\t "}]),
    ((SAY,), "message_too_long", [{"content": "x" * 100_001}]),
    ((SAY,), "bad_input", [{}, {"content": 5}, {"content": "a\u0000b"}]),
    ((SAY,), "bad_input", [{"content": "a"} | more for more in ({"on_busy": "queue"}, {"role": "system"})]),
    ((LATER,), "bad_time", [{"send_at": "tomorrow"}]),
    ((LATER,), "bad_input", [{"message_text": 5}, {"send_at": 5}, {"status": "sent"}]),
    ((NEW_SESSION,), "not_found", [{"agent": "unknown"}]),
    ((NEW_SESSION,), "session_exists", [{"key": "web:1"}]),
    ((NEW_SESSION,), "reserved_key", [{"key": "unified:default"}, {"key": "job:1:2"}, {"channel": "job"}]),
    ((NEW_SESSION,), "bad_key", [{"key": "nocolon"}, {"key": "web:" + "x" * 200}]),
    ((NEW_SESSION,), "bad_key", [{"key": "web:1", "channel": "telegram"}]),
    ((NEW_SESSION,), "bad_channel", [{"channel": "We b"}]),
    ((NEW_SESSION,), "bad_input", [{"agent": "a\u0000b"}, {"chat_type": "crowd"}, {"type": "primary"}]),
    ((NEW_SESSION, SESSION), "bad_title", [{"title": f"a{each}b"} for each in BREAKS]),
    ((NEW_AGENT,), "agent_exists", [{"name": "demo"}]),
    ((NEW_AGENT,), "bad_name", [{"name": "a/b"}]),
    ((NEW_AGENT,), "bad_input", [{"name": ""}, {"name": "x" * 65}]),
    ((NEW_AGENT, AGENT), "bad_model", [{"model": "gpt 5"}, {"model": "openai:" + "x" * 200}]),
    ((NEW_AGENT, AGENT), "unknown_timezone", [{"timezone": "Mars/Olympus"}]),
    ((NEW_AGENT, AGENT), "bad_routine_limit", [{"routine_limit": -1}]),
    ((NEW_AGENT, AGENT), "bad_heartbeat", [{"heartbeat": {"active_hours": [8, 25]}}]),
    ((NEW_AGENT, AGENT), "bad_heartbeat", [{"heartbeat": {"interval_seconds": 0}}]),
    ((NEW_AGENT, AGENT), "bad_policy", [{"policy": {"max_tool_call": 1}}]),
    ((NEW_AGENT, AGENT), "bad_input", [{"heartbeat": {"pulse": 1}}, {"heartbeat": []}, {"engine": "magic"}]),
    ((NEW_AGENT, AGENT), "bad_input", [{"policy": 5}, {"revision": 7}, {"unified_session": "yes"}]),
    ((NEW_AGENT, AGENT), "bad_mcp_servers", [{"mcp_servers": {"docs": {"url": "http://127.0.0.1:8000/"}}}]),
    ((NEW_AGENT, AGENT), "bad_mcp_servers", [{"mcp_servers": {f"s{number}": DOCS for number in range(9)}}]),
    ((NEW_AGENT, AGENT), "bad_mcp_servers", [{"mcp_servers": {"a\u0000": DOCS}}]),
    ((AGENT,), "bad_mcp_servers", [{"mcp_servers": {"docs": DOCS | {"headers": {"A": f"{SECRET}\n"}}}}]),
    ((DOCUMENT,), "document_too_long", [{"content": "x" * 200_001}]),
    ((DOCUMENT,), "bad_input", [{}, {"content": "a\u0000b"}, {"content": "x", "revision": 5}]),
    ((NEW_ROUTINE,), "bad_schedule", [{"schedule": "soon"}]),
    ((NEW_ROUTINE,), "bad_policy", [{"policy": {"max_tool_calls": -1}}]),
    ((NEW_ROUTINE,), "bad_input", [{"policy": []}, {"execution_mode": "session"}, {"source": "system"}]),
    ((NEW_ROUTINE,), "duplicate_routine", [{"title": "water", "schedule": "60m"}]),
    ((NEW_HOOK, HOOK), "empty_name", [{"name": ""}]),
    ((NEW_HOOK, HOOK), "bad_name", [{"name": "two\nlines"}]),
    ((NEW_HOOK, HOOK), "bad_channel", [{"address": PLACE}, *ELSEWHERE]),
    ((NEW_HOOK, HOOK), "bad_address", [{"channel": "webhook"}]),
    ((NEW_HOOK, HOOK), "bad_address", [{"channel": "webhook", "address": "ftp://chat.invalid/"}]),
    ((NEW_HOOK, HOOK), "bad_address", [{"channel": "webhook", "address": "https://chat.invalid/\n"}]),
    ((NEW_HOOK, HOOK), "bad_input", [{"channel": "webhook", "address": PLACE + "x" * LONGEST_ADDRESS}]),
    ((NEW_HOOK, HOOK), "bad_input", [{"name": "x" * 65}, {"signed": "yes"}, {"token": "rin_mine"}]),
    ((TOKEN,), "empty_name", [{"name": " "}]),
    ((TOKEN,), "bad_name", [{"name": "a\u2028b"}]),
    ((TOKEN,), "past_time", [{"expires_at": "2020-01-01T00:00:00Z"}]),
    ((TOKEN,), "bad_expires_at", [{"expires_at": "2999-01-01T00:00:00Z"}]),
    ((TOKEN,), "not_found", [{"agent": "nobody"}, {"session": NOBODYS}]),
    (
        (TOKEN,),
        "bad_input",
        [{"name": ""}, {"name": "a" * 65}, {"expires_at": "tomorrow"}, {"token": "mine"}],
    ),
    ((TOKEN,), "bad_input", [{"scopes": []}, {"scopes": ["root"]}, {"scopes": "read"}]),
    ((MEMORY,), "bad_important_facts", [{"important_facts": ["x" * 301]}]),
    ((MEMORY,), "bad_open_loops", [{"open_loops": ["x"] * 21}]),
    ((MEMORY,), "bad_current_goal", [{"current_goal": "x" * 301}]),
    ((MEMORY,), "bad_input", [{"colour": "red"}, {"important_facts": "red"}]),
]


def rows() -> dict[str, list[Any]]:
    """What is in each of our tables; requests and errors are counted whatever becomes of them."""
    ours = (apps.get_app_config(name).get_models() for name in ("sessions_app", "automations"))
    kept = {model for models in ours for model in models} - {Allowance, Counter}
    return {model.__name__: list(model._default_manager.order_by("pk").values()) for model in kept}


@pytest.fixture
def session(ada: Caller) -> Iterator[str]:
    """A session; after the test all rows are as before."""
    made = ada.session()
    before = rows()
    yield made
    assert rows() == before


@pytest.mark.rule("3.5", "6.5", "8.1", "10.6", "11.1")
def test_bad_fields_are_refused_and_change_nothing(ada: Caller) -> None:
    ids = furnish(ada, "demo", "secret", ada.session(key="web:1")).ids
    made(ada.post("/api/agents/demo/routines/", {"title": "Water", "schedule": "1h"}))
    before = rows()

    def check(operation: str, body: Any, code: str) -> None:
        method, address = operation.format(**ids).split()
        assert SECRET not in str(problem(ada(method, address, body), NOT_400.get(code, 400), code))

    bodies: list[Any] = [(NEW_JOB, {"schedule": OK}), (NEW_JOB, []), (NEW_SESSION, {}), (NEW_ROUTINE, {})]
    bodies = [(*each, "bad_input") for each in bodies]
    for operations, code, bad in BAD:
        bodies += [(each, BESIDE.get(each, {}) | fields, code) for each in operations for fields in bad]
    for_each(bodies, check)
    assert rows() == before


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
        (ada.post("/api/schedules/preview/", {"schedule": OK, "after": NO_INSTANTS[0]}), "after"),
    ):
        assert answer.status_code == 400, answer.content
        assert list(answer.json()["errors"]) == field.split(), answer.json()


@pytest.mark.rule("3.4")
def test_nobody_speaks_into_an_internal_session(ada: Caller) -> None:
    primary = Session.objects.filter(key="unified:default").latest("created_at")
    for key, kind in (("heartbeat:demo", "heartbeat"), ("job:abc:1", "job"), ("cron:abc", "job")):
        inside = Session.objects.create(agent=primary.agent, owner=primary.owner, key=key, type=kind)
        before = rows()
        for on_busy in ("inject", "enqueue", "reject", "interrupt"):
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
    agent, at, known = "/api/agents/demo/", f"/api/sessions/{session}/", "This field cannot be changed."
    for address, name in ((agent, "name"), (agent, "revision"), (at, "key"), (at, "state")):
        found = problem(ada.patch(address, {name: "x", "odd": 1}), 400, "bad_input")
        assert found["errors"] == {name: [known], "odd": ["This field is not known."]}
    document = ada.put(f"{agent}documents/USER.md/", {"content": "x", "revision": 1})
    assert problem(document, 400, "bad_input")["errors"] == {"revision": [known]}


def test_an_if_match_is_refused_if_it_is_malformed_or_does_not_hold(ada: Caller, session: str) -> None:
    for header in ("5", "abc", '"5', "'5'", '"5" "6"', "", ",", '""5""'):
        refused = ada.patch("/api/agents/demo/", {"routine_limit": 5}, If_Match=header)
        problem(refused, 400, "bad_if_match")
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
        refused = ada.post("/api/sessions/", {"agent": "demo"}, Idempotency_Key=key)
        problem(refused, 400, "bad_idempotency_key")


def test_addresses_methods_and_types_that_are_not_there(ada: Caller, session: str) -> None:
    for path in ("", "nothing/", "agents//", "sessions/x/", "turns/x/", "%00/", "agents/%2F/", "é/"):
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
            problem(ada(method, f"/api/{path}"), 404, "not_found")
    problem(ada.get("/api/agents/%00/"), 404, "not_found")
    problem(ada.get("/api/runs/%00/"), 404, "not_found")
    for beyond in (2**63 - 1, 2**63, 10**23):
        problem(ada.get(f"/api/turns/{beyond}/"), 404, "not_found")
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


LOCAL = (
    *("127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0", "10.1", "127.0.0.1."),
    *("１２７.0.0.1", "127。0。0。1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"),  # noqa: RUF001
    *("localhost", "a.LOCALHOST.", "localhost.localdomain", "ip6-localhost", "db", "nas.local"),
    "api.internal",
    *("router.home.arpa", "169.254.169.254", "100.100.100.200"),
)


@pytest.mark.rule("3.5")
def test_no_form_of_a_local_address_is_stored_anywhere(ada: Caller, session: str) -> None:
    requests: list[Any] = [
        (NEW_SESSION, {"agent": "demo", "channel": "webhook", "address": "URL"}),
        (NEW_HOOK, {"name": "x", "channel": "webhook", "address": "URL"}),
        (AGENT, {"events_url": "URL"}),
        (AGENT, {"mcp_servers": {"docs": {"url": "URL"}}}),
        (NEW_JOB, {"message": "check", "schedule": OK, "ping_url": "URL"}),
        ("POST /api/connections/", {"name": "x", "provider": "ollama", "base_url": "URL", "models": ["m"]}),
    ]
    taken = []
    for operation, shape in requests:
        method, address = operation.format(name="demo", session_id=session).split()
        for host in LOCAL:
            body = json.dumps(shape).replace("URL", f"http://{host}:8000/v1").encode()
            if ada(method, address, body).status_code != 400:
                taken.append((host, operation))
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
