"""What a query may ask: each operation takes the parameters that its schema names, once each, and nothing else."""

import re
import time
from typing import Any

import pytest
from django.test import Client

from sessions_app.models import Turn
from tests.api.conftest import Caller, operations, problem
from tests.api.test_hooks import hook

pytestmark = pytest.mark.django_db

DOCS = ("/api/schema/", "/api/docs/")
ANYBODYS = dict.fromkeys(("turn_id", "delivery_id", "revision", "chat_id"), "1")
ANYBODYS["session_id"] = "00000000-0000-0000-0000-000000000000"
HOOK = "hook_id}/messages"


def of_users(schema: Any) -> list[tuple[str, str, set[str]]]:
    """Each operation of a user: its method, an address of it, and the parameters of its query."""
    return [
        (
            method,
            re.sub(r"\{(\w+)\}", lambda found: ANYBODYS.get(found[1], "demo"), path),
            {each["name"] for each in operation["parameters"] if each["in"] == "query"},
        )
        for path, method, operation in operations(schema)
        if HOOK not in path
    ]


@pytest.mark.rule("10.0")
def test_every_operation_refuses_what_its_schema_does_not_name(ada: Caller, schema: Any) -> None:
    found = of_users(schema)
    assert len(found) > 50
    for method, address, named in found:
        for query in ("no_such=1", "no_such", "format=json", "_=1700000000", "=1", "no_such=1&no_such=2"):
            body = problem(ada(method.upper(), f"{address}?{query}"), 400, "bad_parameter")
            name = query.partition("=")[0]
            known = ", ".join(sorted(named)) or "none"
            assert body["errors"] == {name: [f"is not known; this address takes {known}"]}, (method, address)
            assert name in body["detail"]


def test_every_operation_refuses_a_parameter_that_comes_twice(ada: Caller, schema: Any) -> None:
    for method, address, named in of_users(schema):
        for name in named:
            asked = f"{address}?{name}=true&{name}=true"
            body = problem(ada(method.upper(), asked), 400, "bad_parameter")
            assert body["errors"] == {name: ["is given 2 times; give it once"]}


def test_every_text_in_a_query_is_bounded(ada: Caller, schema: Any) -> None:
    checked = 0
    for path, methods in schema["paths"].items():
        for each in methods.get("get", {}).get("parameters", ()):
            most = each["schema"].get("maxLength", 0)
            if each["in"] != "query" or not most or "{" in path:
                continue
            assert "must have at most" not in ada.get(f"{path}?{each['name']}={'x' * most}").text
            body = problem(ada.get(f"{path}?{each['name']}={'x' * (most + 1)}"), 400, "bad_parameter")
            assert body["errors"] == {each["name"]: [f"must have at most {most:,} characters"]}
            checked += 1
    assert checked > 10


def test_the_schema_and_its_pages_take_none(nobody: Client) -> None:
    for address in DOCS:
        for query in ("no_such=1", "format=json", "lang=de", "version=1"):
            body = problem(nobody.get(f"{address}?{query}"), 400, "bad_parameter")
            assert list(body["errors"]) == [query.partition("=")[0]]


def test_an_empty_query_is_none_and_token_and_method_come_before_another(ada: Caller, nobody: Client) -> None:
    problem(nobody.get("/api/sessions/?no_such=1"), 401, "not_authenticated")
    problem(ada.put("/api/sessions/?no_such=1"), 405, "method_not_allowed")
    for empty in ("?", "?&", "?&&"):
        assert ada.get(f"/api/sessions/{empty}").status_code == 200
        assert ada.get(f"/api/schema/{empty}", Accept="application/json").status_code == 200
    assert ada("HEAD", "/api/sessions/?page_size=1").status_code == 200
    assert ada("HEAD", "/api/sessions/?no_such=1").status_code == 400


def test_what_is_refused_is_named_within_bounds(ada: Caller) -> None:
    query = "&".join(f"{'x' * 500}{number}=1" for number in range(200))
    response = ada.get(f"/api/sessions/?{query}")
    body = problem(response, 400, "bad_parameter")
    assert len(response.content) < 5_000
    assert all(len(name) <= 60 for name in body["errors"])
    problem(ada.get("/api/sessions/?" + "&".join(f"x{n}=1" for n in range(2_000))), 400, "bad_request")


def test_a_hook_takes_no_query(ada: Caller) -> None:
    ci = hook(ada)
    sent = {"Authorization": f"Bearer {ci.token}", "Webhook-Id": "one"}
    sent["Webhook-Timestamp"] = str(int(time.time()))
    address = f"/api/hooks/{ci.id}/messages/?token=1"
    answer = ci.client.post(address, b'{"content": "hi"}', "application/json", headers=sent)
    problem(answer, 400, "bad_parameter")
    assert not Turn.objects.exists()
