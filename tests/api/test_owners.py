"""A user's data is reachable only by that user (invariant 10): every address, two users and none."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, get_resolver, resolve

from automations.models import RunRecord, ScheduledMessage
from sessions_app.models import ConsentQuestion, ExecutionState, Session
from tests.api.conftest import Caller, problem
from tests.api.places import NOON, furnish
from tests.api.test_bad_input import rows

pytestmark = [pytest.mark.django_db, pytest.mark.rule("7.1")]

SECRET = "secret-of-ada"
OPEN = {"api/schema/", "api/docs/", "api/docs/errors/"}
OF_ALL_SESSIONS = ("/api/automations/", "/api/runs/", "/api/turns/", "/api/deliveries/")
LISTS = {f"/api/{each}/" for each in ("agents", "sessions", "connections", "tokens", "questions")}
LISTS |= {*OF_ALL_SESSIONS}
NAMELESS = {"/api/schedules/preview/", "/api/pauses/", "/api/stream-tickets/"}  # addresses that name nothing
NAMELESS |= {"/api/export/", "/api/usage/"}
BODIES = {
    "scheduled-messages": {"send_at": "2099-01-01T00:00:00Z", "message_text": "theirs"},
    "automations": {"message": "theirs", "schedule": {"kind": "every", "seconds": 60}},
    "messages": {"content": "theirs"},
    "documents": {"content": "theirs"},
    "/skip/": {"slots": 1},
    "/move/": {"slot": "2099-01-01T00:00:00Z", "to": "2099-01-02T00:00:00Z"},
    "/routines/": {"title": "theirs"},
    "/answer/": {"content": "theirs"},
    "/memory/": {"current_goal": "theirs"},
    "/preferences/": {"content": "theirs"},
    "/agents/private/hooks/": {"name": "theirs"},
    "/agents/private/telegram/": {"token": "123456789:a-token-that-nobody-has-given-out-x"},
}


def routes(patterns: Any, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for each in patterns:
        route = prefix + str(each.pattern)
        found |= {route} if isinstance(each, URLPattern) else routes(each.url_patterns, route)
    return found


@pytest.fixture
def addresses(ada: Caller) -> list[str]:
    """Every address of something that is Ada's, whose agent is `private`: a name that nobody else has."""
    ada.agent("private")
    ids = furnish(ada, "private", SECRET).ids
    message = ids["message_id"]
    taken = {"scheduled_message": ScheduledMessage.objects.get(pk=message), "session_id": ids["session_id"]}
    sent = RunRecord.objects.create(run_id=f"{message}:1000", scheduled_for=NOON, state="queued", **taken)
    known = {each for each in routes(get_resolver().url_patterns) if each.startswith("api/")} - OPEN
    named = [re.sub(r"<\w+:(\w+)>", lambda found: str(ids[found[1]]), route) for route in known]
    return [*(f"/{each}" for each in sorted(named)), f"/api/runs/{sent.pk}/"]


def view_of(address: str) -> Any:
    """The view's class behind an address."""
    found: Any = resolve(address).func
    return found.cls


def methods(address: str) -> list[str]:
    return [name for name in ("get", "post", "put", "patch", "delete") if hasattr(view_of(address), name)]


def is_a_hooks(address: str) -> bool:
    """Where no user has anything to say, but who has the hook's own token."""
    return address.startswith("/api/hooks/") and address.endswith("/messages/")


def body(address: str) -> Any:
    return next((data for part, data in BODIES.items() if part in address), {})


def test_without_a_token_every_address_answers_401(addresses: list[str], nobody: Client) -> None:
    before = rows()
    for address in addresses:
        for method in methods(address):
            for headers in ({}, {"Authorization": "Token wrong"}, {"Authorization": "Bearer"}):
                call = getattr(nobody, method)
                response = call(address, content_type="application/json", headers=headers) if method != "get" else (
                    nobody.get(address, headers=headers)
                )  # fmt: skip
                problem(response, 401, "not_authenticated")
                asked_for = "Bearer" if is_a_hooks(address) else "Token"
                assert response.headers["WWW-Authenticate"] == asked_for
    assert rows() == before


def test_what_is_anothers_does_not_exist(addresses: list[str], ada: Caller, bob: Caller) -> None:
    """Not even for a superuser, who sees it in the admin."""
    User.objects.filter(pk=bob.user.pk).update(is_staff=True, is_superuser=True)
    before = rows()
    for address in addresses:
        if address in LISTS | NAMELESS:
            continue
        if is_a_hooks(address):
            problem(bob.post(address, body(address)), 401, "not_authenticated")
            continue
        for method in methods(address):
            problem(bob(method.upper(), address, body(address)), 404, "not_found")
            confirmed = bob(method.upper(), f"{address}?delete_automations=true", body(address))
            # what an address takes is no secret; what is there is
            taken = {each.name for each in view_of(address).takes.get(method, ())}
            expected = (404, "not_found") if "delete_automations" in taken else (400, "bad_parameter")
            problem(confirmed, *expected)
    assert rows() == before


def test_lists_hold_ones_own_things_only(addresses: list[str], ada: Caller, bob: Caller) -> None:
    primaries = Session.objects.filter(owner=bob.user)
    assert [each["name"] for each in bob.get("/api/agents/").json()["results"]] == ["demo"]
    listed = {each["id"] for each in bob.get("/api/sessions/").json()["results"]}
    assert listed == {str(each.pk) for each in primaries}
    problem(bob.post("/api/sessions/", {"agent": "private"}), 404, "not_found")
    assert bob.get("/api/sessions/?agent=private").json()["results"] == []
    session = ada.get("/api/turns/").json()["results"][0]["session"]
    for address in OF_ALL_SESSIONS:
        assert ada.get(address).json()["results"]
        for query in ("", f"?session={session}", "?agent=private", "?search=secret"):
            assert bob.get(f"{address}{query}").json()["results"] == [], (address, query)


TIMES = ("_at", "_for", "slots_from", "slots_to", "not_before", "_since")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")


def times_in(shown: Any, name: str = "") -> Iterator[str]:
    if isinstance(shown, dict):
        for key, each in shown.items():
            yield from times_in(each, key)
    elif isinstance(shown, list):
        for each in shown:
            yield from times_in(each, name)
    elif isinstance(shown, str) and name.endswith(TIMES):
        yield shown


def test_times_have_one_form(addresses: list[str], ada: Caller) -> None:
    when = {"started_at": "2026-11-21T01:00:00+01:00", "ended_at": ""}
    step = {"id": "1.1", "type": "tool", "title": "Look", "status": "done", "tool": "", "question": ""}
    ExecutionState.objects.update(steps=[step | when | {"arguments": {}}])
    ConsentQuestion.objects.update(execution=ExecutionState.objects.get().pk)
    found: list[str] = []
    for address in addresses:
        if "get" not in methods(address) or address.endswith(("/events/", "/explain/", "/export/")):
            continue  # an explanation shows slots in the schedule's zone
        times = list(times_in(ada.get(address).json()))
        assert all(INSTANT.fullmatch(each) for each in times), (address, times)
        found += times
    assert "2026-11-21T00:00:00Z" in found
    assert len(found) > 60


def test_bearer_tokens_work_and_browser_sessions_need_a_csrf_token(ada: Caller) -> None:
    assert ada.client.get("/api/agents/", headers={"Authorization": f"Bearer {ada.token}"}).status_code == 200
    browser = Client(enforce_csrf_checks=True, raise_request_exception=False)
    browser.force_login(ada.user)
    assert browser.get("/api/agents/").status_code == 200
    refused = browser.post("/api/agents/", {"name": "x"}, content_type="application/json")
    problem(refused, 403, "permission_denied")
