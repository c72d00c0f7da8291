"""Lists over all of a user's sessions: filters, search, both orders, pages, and how little they read."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from automations.models import CronJob, RunRecord
from sessions_app.models import (
    Agent,
    Delivery,
    Lane,
    Message,
    Session,
    TelegramBot,
    TelegramChat,
    Turn,
    TurnKind,
)
from tests.api.conftest import Caller, made, operations, problem
from tests.api.places import furnish
from tests.past import ago, say

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
OF_ALL_SESSIONS = ("/api/automations/", "/api/runs/", "/api/turns/", "/api/deliveries/")


def found(caller: Caller, address: str, name: str = "id") -> list[Any]:
    answer = caller.get(address)
    assert answer.status_code == 200, answer.content
    return [each[name] for each in answer.json()["results"]]


def pages(caller: Caller, address: str, way: str = "next") -> Iterator[Any]:
    page = caller.get(address).json()
    while True:
        yield page
        if page[way] is None:
            return
        page = caller.get(page[way]).json()


def walked(caller: Caller, address: str) -> list[Any]:
    """The rows of all pages."""
    return [row for page in pages(caller, address) for row in page["results"]]


def turn(session: str, minute: int = 0, **fields: Any) -> int:
    given = {"kind": TurnKind.MESSAGE, "lane": Lane.PEOPLE, "content": "Hello"} | fields
    return Turn.objects.create(session_id=session, queued_at=NOON + timedelta(minutes=minute), **given).pk


def run(job: Any, minute: int, **fields: Any) -> str:
    at = NOON + timedelta(minutes=minute)
    given = {"state": "succeeded", "finished_at": at} | fields
    made = RunRecord.objects.create(run_id=f"{job}:{minute}", job_id=job, scheduled_for=at, **given)
    return made.pk


def delivery(session: str, number: int, **fields: Any) -> int:
    given = {"channel": "email", "address": f"a{number}@example.org", "state": "pending"} | fields
    key = f"{session}:{number}"
    return Delivery.objects.create(
        session_id=session, session_key="k", idempotency_key=key, created_at=NOON + timedelta(minutes=number), **given
    ).pk  # fmt: skip


def test_turns_are_filtered(ada: Caller) -> None:
    ada.agent("second")
    one, two = ada.session(), ada.session("second")
    failed = turn(one, 1, state="failed", finished_at=NOON, error_code="tool_hung", content="Book 50% off")
    queued, other = turn(one, 2), turn(two, 3)
    assert found(ada, "/api/turns/") == [other, queued, failed]
    assert found(ada, "/api/turns/?order=asc") == [failed, queued, other]
    for query, expected in (
        (f"session={one}", [queued, failed]),
        ("agent=second", [other]),
        ("agent=nobodys", []),
        ("state=failed", [failed]),
        ("error_code=tool_hung", [failed]),
        ("since=2026-11-20T12:02:00Z", [other, queued]),
        (f"until={quote('2026-11-20T13:02:00+01:00')}", [failed]),
        ("since=2026-11-20T12:02:00Z&until=2026-11-20T12:03:00Z", [queued]),
        ("search=HELLO", [other, queued]),
        (f"search={quote('50%')}", [failed]),
        ("search=_", []),
    ):
        assert found(ada, f"/api/turns/?{query}") == expected, query
    [shown] = ada.get("/api/turns/?agent=second").json()["results"]
    assert shown == ada.get(f"/api/turns/{other}/").json()


def test_automations_are_filtered(ada: Caller) -> None:
    ada.agent("second")
    one, two = ada.session(), ada.session("second")
    first = ada.automation(one, name="Morning news")["id"]
    paused = ada.automation(one, name="Trains", message="Look for strikes", enabled=False)["id"]
    last = ada.automation(two, name="Bread")["id"]
    made(ada.post("/api/agents/demo/routines/", {"title": "Not an automation", "schedule": "1h"}))
    assert found(ada, "/api/automations/") == [first, paused, last]
    for query, expected in (
        ("order=desc", [last, paused, first]),
        ("enabled=false", [paused]),
        ("enabled=true&agent=demo", [first]),
        (f"session={two}", [last]),
        ("search=STRIKE", [paused]),
        ("since=2099-01-01T00:00:00Z", []),
    ):
        assert found(ada, f"/api/automations/?{query}") == expected, query


def test_runs_are_filtered_and_name_what_they_are_of(ada: Caller) -> None:
    one = ada.session()
    job = ada.automation(one, name="Morning news")["id"]
    routine = made(ada.post("/api/agents/demo/routines/", {"title": "Sweep", "schedule": "1h"}))["id"]
    hidden = CronJob.objects.get(system_event="heartbeat", agent__owner=ada.user).pk
    run(hidden, 9)
    first, late = run(job, 1, session_id=one), run(job, 2, state="skipped", reason="overlap")
    prompt = {"rendered_prompt": "what the model saw", "prompt_variables": {"name": "x"}}
    why = {"error": "The model was away.", "error_detail": "a secret"}
    swept = run(routine, 3, state="failed", started_at=NOON, **prompt, **why)
    assert found(ada, "/api/runs/", "run_id") == [swept, late, first]
    assert found(ada, f"/api/automations/{job}/runs/", "run_id") == [late, first]
    for query, expected in (
        ("order=asc", [first, late, swept]),
        ("state=skipped", [late]),
        ("reason=overlap", [late]),
        (f"session={one}", [first]),
        ("agent=demo&state=failed", [swept]),
        ("since=2026-11-20T12:02:00Z&until=2026-11-20T12:03:00Z", [late]),
        ("search=news", [late, first]),
        ("search=away", [swept]),
    ):
        assert found(ada, f"/api/runs/?{query}", "run_id") == expected, query
    shown = {each["run_id"]: each for each in ada.get("/api/runs/").json()["results"]}
    of = ("agent", "automation", "routine", "scheduled_message", "session")
    assert [shown[first][name] for name in of] == ["demo", job, None, None, one]
    assert [shown[swept][name] for name in of] == ["demo", None, routine, None, None]
    assert (shown[swept]["started_at"], shown[first]["finished_at"]) == (
        "2026-11-20T12:00:00Z", "2026-11-20T12:01:00Z"
    )  # fmt: skip
    for run_id, each in shown.items():
        assert each.items() <= ada.get(f"/api/runs/{run_id}/").json().items()
    one = ada.get(f"/api/runs/{swept}/").json()
    assert prompt.items() <= one.items()
    assert "a secret" not in str(one)


def test_deliveries_are_filtered(ada: Caller) -> None:
    one, two = ada.session(), ada.session()
    dead = delivery(one, 1, state="failed", last_error="refused")
    waiting, hooked = delivery(one, 2), delivery(two, 3, channel="webhook")
    gone = ada.session()
    delivery(gone, 4, state="sent", ended_at=NOON)
    Delivery.objects.filter(session_id=gone).update(session=None)  # as its deletion does
    assert found(ada, "/api/deliveries/") == [hooked, waiting, dead]
    for query, expected in (
        ("order=asc", [dead, waiting, hooked]),
        ("state=failed", [dead]),
        (f"session={one}&state=pending", [waiting]),
        ("channel=webhook", [hooked]),
        ("agent=demo&until=2026-11-20T12:02:00Z", [dead]),
        ("search=a2@", [waiting]),
    ):
        assert found(ada, f"/api/deliveries/?{query}") == expected, query
    [shown] = ada.get("/api/deliveries/?state=failed").json()["results"]
    assert shown == ada.get(f"/api/deliveries/{dead}/").json()


def test_sessions_are_searched_and_cut_by_time(ada: Caller) -> None:
    trip, other = ada.session(title="Trip to Lisbon"), ada.session(title="Taxes")
    assert found(ada, "/api/sessions/?search=lisbon") == [trip]
    assert found(ada, "/api/sessions/?type=sub&order=asc") == [trip, other]
    Session.objects.filter(pk=trip).update(created_at=NOON)
    assert found(ada, "/api/sessions/?until=2026-11-20T12:00:01Z") == [trip]
    assert trip not in found(ada, "/api/sessions/?since=2026-11-20T12:00:01Z")


def test_a_value_of_a_plugin_is_found_by_those_who_have_it(ada: Caller, bob: Caller) -> None:
    session = ada.session()
    broken = turn(session, state="failed", finished_at=NOON, error_code="a_plugins_own")
    ran = run(ada.automation(session)["id"], 1, state="failed", reason="a_plugins_own")
    assert found(ada, "/api/turns/?error_code=a_plugins_own") == [broken]
    assert found(ada, "/api/turns/?error_code=a_plugins_own&state=queued") == []
    assert found(ada, "/api/runs/?reason=a_plugins_own", "run_id") == [ran]
    for address in ("/api/turns/?error_code=a_plugins_own", "/api/runs/?reason=a_plugins_own"):
        problem(bob.get(address), 400, "bad_parameter")


def test_sessions_and_their_turns_are_filtered_by_state(ada: Caller) -> None:
    idle, active, archived = (ada.session(channel="web") for _ in range(3))
    done, waits = turn(active, 1, state="failed", finished_at=NOON), turn(active, 2)
    Session.objects.filter(pk=archived).update(state="archived")
    only = "type=sub&state"
    for state, ids in {"idle": [idle], "active": [active], "archived": [archived], "deleting": []}.items():
        assert found(ada, f"/api/sessions/?{only}={state}") == ids
        listed = ada.get(f"/api/sessions/?{only}={state}").json()["results"]
        assert {each["state"] for each in listed} <= {state}
    address = f"/api/sessions/{active}/turns/"
    assert found(ada, f"{address}?state=queued") == [waits]
    assert found(ada, f"{address}?state=failed") == [done]
    # the thread shows its own open turns beside
    Agent.objects.filter(owner=ada.user).update(unified_session=True)
    assert found(ada, f"{address}?state=queued") == [waits]
    assert found(ada, f"{address}?state=failed") == []


def test_a_history_is_read_from_its_end_and_searched(ada: Caller) -> None:
    session = ada.session()
    for seq in (1, 2, 3):
        Message.objects.create(session_id=session, seq=seq, role="user", content=f"Message {seq}")
    Session.objects.filter(pk=session).update(last_seq=3)
    address = f"/api/sessions/{session}/messages/"
    assert found(ada, address, "seq") == found(ada, f"{address}?order=asc", "seq") == [1, 2, 3]
    newest = walked(ada, f"{address}?order=desc&page_size=2")
    assert [each["seq"] for each in newest] == [3, 2, 1]
    assert found(ada, f"{address}?search=message+2", "seq") == [2]
    Agent.objects.filter(owner=ada.user).update(unified_session=True)  # the thread shows the primary session
    Message.objects.filter(session_id=session, seq=3).update(shown_after_seq=0)
    assert found(ada, f"{address}?search=MESSAGE", "seq") == [3]


def test_bad_values_are_named(ada: Caller) -> None:
    for query in (
        *("session=demo", "session=", "since=yesterday", "since=2026-01-01T00:00:00", "until=2026-01-01"),
        *("state=paused", "order=up", f"search={'x' * 101}", f"agent={'x' * 65}", "enabled=false"),
    ):
        body = problem(ada.get(f"/api/turns/?{query}"), 400, "bad_parameter")
        assert list(body["errors"]) == [query.partition("=")[0]], query
    for address, known in (
        ("/api/turns/?error_code=zz", "tool_hung"),
        ("/api/runs/?reason=typo", "overlap"),
        ("/api/deliveries/?channel=zz", "webhook"),
        ("/api/sessions/?state=zz", "idle"),
        (f"/api/sessions/{ada.session()}/turns/?state=zz", "queued"),
    ):
        body = problem(ada.get(address), 400, "bad_parameter")
        [(name, [text])] = body["errors"].items()
        assert f"?{name}=" in address
        assert known in text.removeprefix("must be one of ").split(", ")
    for cursor in ("cD0xMg==", "cD0xMi5h", "cD05OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTku"):  # 12 · 12.a · 10^32.
        problem(ada.get(f"/api/turns/?cursor={cursor}"), 400, "bad_cursor")


ROWS = 3


def fill(ada: Caller) -> dict[str, Any]:
    """A user with three of each kind. Values of the paths' parameters."""
    session = ada.session()
    ids: dict[str, Any] = {}
    for n in range(ROWS):
        ids = furnish(ada, "demo", f"number-{n}", session).ids
        ada.agent(f"agent-{n}")
        ada.session()
        TelegramChat.objects.create(bot=TelegramBot.objects.get(), chat_id=n + 1)
        say(Session.objects.get(pk=session), Turn.objects.get(pk=turn(session, n)), ago(1))
    for n in range(ROWS):
        for job in (ids["job_id"], ids["routine_id"]):
            run(job, n)
    return ids


@pytest.mark.rule("10.0")
def test_every_list_takes_both_orders(ada: Caller, schema: Any) -> None:
    ids, found = fill(ada), 0
    for path, _, operation in operations(schema):
        if "order" not in {each["name"] for each in operation["parameters"]}:
            continue
        address = path.format(**ids)
        one, other = (walked(ada, f"{address}?page_size=2&order={order}") for order in ("asc", "desc"))
        assert len(one) >= ROWS, address
        assert one == other[::-1], address
        assert ada.get(address).json()["results"] in (one, other)
        found += 1
    assert found > 15
