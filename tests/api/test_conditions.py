"""Tags, conditions, keys, preferences and pages: what a client may rely on between two requests."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.test import RequestFactory
from django.utils import timezone

from automations.models import CronJob, ScheduledMessage
from interfaces.http.headers import seconds_to_wait
from sessions_app.models import Agent, IdempotencyKey, Message, Session, Turn
from tests.api.conftest import Caller, for_each, problem
from tests.api.places import furnish

pytestmark = pytest.mark.django_db


@pytest.fixture
def shown(ada: Caller) -> dict[str, str]:
    """Addresses of something of each kind, by kind; all of the first session."""
    ids = furnish(ada, "demo", "furnished").ids
    session, job = ids["session_id"], ids["job_id"]
    return {
        "agent": "/api/agents/demo/",
        "document": "/api/agents/demo/documents/USER.md/",
        "session": f"/api/sessions/{session}/",
        "automation": f"/api/automations/{job}/",
        "routine": f"/api/routines/{ids['routine_id']}/",
        "sessions": "/api/sessions/",
        "turns": f"/api/sessions/{session}/turns/",
        "messages": f"/api/sessions/{session}/messages/",
    }


def test_resources_have_an_etag_and_answer_304_when_it_matches(ada: Caller, shown: dict[str, str]) -> None:
    for address in shown.values():
        first = ada.get(address)
        tag = first.headers["ETag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = ada.get(address, If_None_Match=known)
            assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag), address
        for unknown in ('"other"', "", "nonsense", tag.strip('"')):
            assert ada.get(address, If_None_Match=unknown).json() == first.json(), (address, unknown)


CHANGES: dict[str, tuple[str, Any]] = {
    "agent": ("PATCH", {"routine_limit": 5}),
    "document": ("PUT", {"content": "x"}),
    "session": ("PATCH", {"title": "x"}),
    "automation": ("PATCH", {"name": "x"}),
    "routine": ("PATCH", {"title": "x"}),
}


def test_a_change_and_a_delete_ask_for_the_tag_that_get_sent(ada: Caller, shown: dict[str, str]) -> None:
    for kind, change in CHANGES.items():
        address, send = shown[kind], partial(ada, change[0], shown[kind], change[1])
        before = ada.get(address)
        tag = before.headers["ETag"]
        problem(send(If_Match='"other"'), 412, "revision_conflict")
        assert ada.get(address).json() == before.json(), kind
        changed = send(If_Match=tag)
        assert changed.status_code == 200, kind
        assert ada.get(address, If_None_Match=changed.headers["ETag"]).status_code == 304, kind
        assert ada.get(address, If_None_Match=tag).status_code == 200, kind
        problem(send(If_Match=tag), 412, "revision_conflict")
    for kind in ("agent", "session", "automation"):
        problem(ada.delete(shown[kind], If_Match='"other"'), 412, "revision_conflict")
        gone = ada.delete(shown[kind], If_Match=ada.get(shown[kind]).headers["ETag"])
        is_bound = kind != "automation"  # the tag holds; what is bound is in the way
        assert gone.status_code == (409 if is_bound else 204), kind
        assert not is_bound or gone.json()["blocked_by_automations"] is True
    problem(ada.get(shown["automation"]), 404, "not_found")


def test_foreign_resources_are_not_found_before_the_request_is_validated(
    ada: Caller, bob: Caller, shown: dict[str, str]
) -> None:
    for kind in ("session", "automation"):
        problem(bob.patch(shown[kind], {"odd": 1}), 404, "not_found")
        problem(bob.patch(shown[kind], b"{", If_Match="nonsense"), 404, "not_found")
        problem(bob.delete(shown[kind], If_Match="nonsense"), 404, "not_found")


@pytest.mark.long("every list, page by page")
def test_pages_keep_their_order_while_rows_are_added(ada: Caller, shown: dict[str, str]) -> None:
    """A list that begins with the newest rows, and one that grows at its end."""
    session = shown["session"].split("/")[3]

    def add(number: int) -> None:
        ada.post(f"/api/sessions/{session}/messages/", {"content": f"{number}"})
        Message.objects.create(session_id=session, seq=number, role="user", content=f"{number}")

    for number in range(1, 5):
        add(number)
    for kind, name, grown in (("turns", "id", 0), ("messages", "seq", 2)):
        before = [each[name] for each in ada.get(shown[kind]).json()["results"]]
        seen, address = [], f"{shown[kind]}?page_size=2"
        while address:
            page = ada.get(address).json()
            seen += [each[name] for each in page["results"]]
            if len(seen) <= 4:
                add(number := number + 1)
            address = page["next"]
        assert seen[: len(before)] == before, kind
        assert len(seen) == len(set(seen)) == len(before) + grown, kind


def test_the_seconds_to_wait_are_read_and_bounded() -> None:
    def check(prefer: str, seconds: int) -> None:
        assert seconds_to_wait(RequestFactory().get("/", headers={"Prefer": prefer})) == seconds

    most = ("wait=60", "wait=61", "wait=3600", f"wait={'9' * 5000}")
    some = ("wait=0020", "WAIT = 20", 'respond-async; x="y", wait="20"')
    none = ["wait=0", "wait=000", "wait=-5", "wait=1.5", "wait=1e3", "await=20", "wait=20s", "=,;"]
    none += ["", "wait", "wait=x", "return=minimal"]
    rows = [*((each, 60) for each in most), *((each, 20) for each in some), *((each, 0) for each in none)]
    for_each(rows, check)


LATER = {"send_at": "2099-01-01T09:00:00Z"}
SCHEDULE = {"kind": "every", "seconds": 60}
FILE = {"name": "a.txt", "content": "YQ=="}


def test_the_second_time_gives_the_first_answer(ada: Caller) -> None:
    def check(path: str, body: Any, change: Any, model: Any) -> None:
        session = ada.session()
        address = path if path.startswith("/") else f"/api/sessions/{session}/{path}/"
        first = ada.post(address, body, Idempotency_Key="one")
        count = model.objects.count()
        again = ada.post(address, dict(reversed(body.items())), Idempotency_Key="one")
        assert (again.status_code, again.json()) == (first.status_code, first.json())
        assert again.headers["Location"] == first.headers["Location"]
        problem(ada.post(address, body | change, Idempotency_Key="one"), 422, "idempotency_mismatch")
        assert model.objects.count() == count

    rows: list[Any] = [
        ("/api/agents/", {"name": "a", "policy": {"max_attempts": 1}}, {"name": "b"}, Agent),
        ("/api/sessions/", {"agent": "demo", "title": "a"}, {"title": "b"}, Session),
        ("automations", {"message": "a", "schedule": SCHEDULE}, {"message": "b"}, CronJob),
        ("messages", {"content": "a"}, {"content": "b"}, Turn),
        ("messages", {"content": "a"}, {"on_busy": "enqueue"}, Turn),
        ("messages", {"content": "a", "files": [FILE]}, {"files": [FILE | {"content": "Yg=="}]}, Turn),
        ("/api/agents/demo/routines/", {"title": "a", "schedule": "1h"}, {"title": "b"}, CronJob),
        ("scheduled-messages", LATER | {"message_text": "a"}, {"message_text": "b"}, ScheduledMessage),
    ]
    for_each(rows, check)


def test_a_key_belongs_to_one_user_and_one_address(ada: Caller, bob: Caller) -> None:
    first, second = ada.session(), ada.session()
    asked = ((ada, first), (ada, second), (bob, bob.session()))
    turns = [(caller, f"/api/sessions/{session}/messages/") for caller, session in asked]
    answers = [caller.post(path, {"content": "a"}, Idempotency_Key="one") for caller, path in turns]
    assert len({each.json()["id"] for each in answers}) == 3
    for caller in (ada, bob):
        assert caller.post("/api/agents/", {"name": "other"}, Idempotency_Key="one").status_code == 201


def test_a_refusal_leaves_no_key_behind(ada: Caller) -> None:
    problem(ada.post("/api/agents/", {"name": "demo"}, Idempotency_Key="one"), 409, "agent_exists")
    assert ada.post("/api/agents/", {"name": "other"}, Idempotency_Key="one").status_code == 201


def test_a_key_is_kept_for_a_day(ada: Caller) -> None:
    ada.post("/api/agents/", {"name": "a"}, Idempotency_Key="old")
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(days=2))
    ada.post("/api/agents/", {"name": "b"}, Idempotency_Key="new")
    assert [each.key for each in IdempotencyKey.objects.all()] == ["new"]


def test_a_person_cannot_take_the_key_of_an_automations_slot(ada: Caller) -> None:
    path, key = f"/api/sessions/{ada.session()}/messages/", "run:abc:1000:1"
    ada.post(path, {"content": "a"}, Idempotency_Key=key)
    assert not Turn.objects.filter(idempotency_key=key).exists()
    longest = "x" * 200
    one, two = (ada.post(path, {"content": "b"}, Idempotency_Key=longest).json() for _ in range(2))
    assert one["id"] == two["id"]
