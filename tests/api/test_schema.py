"""The OpenAPI schema says of every operation how it refuses, and of every code what it means."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from interfaces.http.errors.codes import CODES
from tests.api.conftest import Caller, operations
from tests.api.dear import cost
from tests.api.places import furnish

pytestmark = pytest.mark.django_db
MADE_ANEW = 4.0  # times the yardstick; making the schema costs twice as much

OPENAPI = "application/vnd.oai.openapi"
KINDS = (OPENAPI, f"{OPENAPI}+json", "application/yaml", "application/json")


def test_every_refusal_is_a_problem_whose_codes_are_listed(schema: Any) -> None:
    for path, method, operation in operations(schema):
        answers = operation["responses"]
        assert {"401", "406", "429", "500"} <= set(answers), (method, path)
        assert "default" not in answers
        for status, answer in answers.items():
            assert answer["description"]
            if status >= "4":
                shape = answer["content"]["application/problem+json"]["schema"]
                assert shape == {"$ref": f"#/components/schemas/Problem{status}"}
        assert answers["429"]["headers"]["Retry-After"]["schema"]["type"] == "integer"
        assert "WWW-Authenticate" in answers["401"]["headers"]
    for status, codes in CODES.items():
        if status == 405:  # no operation has it: it is of a method that is not there
            continue
        named = schema["components"]["schemas"][f"Problem{status}"]["allOf"][1]["properties"]
        assert named["code"]["enum"] == list(codes)
        assert named["status"]["enum"] == [status]


def test_what_an_operation_answers_follows_from_its_kind(schema: Any) -> None:
    for path, method, operation in operations(schema):
        named = {each["name"] for each in operation["parameters"]}
        answers = set(operation["responses"])
        assert ("404" in answers) >= ("{" in path)
        has_revision = method in {"patch", "put", "delete"} or path.endswith(("/skip/", "/move/"))
        assert ("If-Match" in named) == ("412" in answers) == has_revision
        assert bool(named & {"Idempotency-Key", "Webhook-Id"}) == ("422" in answers)
        assert ("requestBody" in operation) == ("415" in answers) == ("408" in answers)
        assert ("413" in answers) == (method != "get")
        assert ("403" in answers) == ("x-required-scope" in operation)
        assert ("If-None-Match" in named) == ("304" in answers)
        streams = path.endswith(("/events/", "/export/"))
        assert ("304" in answers) == (method == "get" and not streams)
        if not streams and method in {"get", "patch", "put"}:
            assert "ETag" in operation["responses"]["200"]["headers"]
        for status in answers & {"201", "202"}:
            assert "Location" in operation["responses"][status]["headers"]
        if "cursor" in named:
            size = next(each for each in operation["parameters"] if each["name"] == "page_size")
            assert (size["schema"]["minimum"], size["schema"]["maximum"]) == (1, 200)


def test_what_comes_in_has_known_keys_only(schema: Any) -> None:
    shapes = schema["components"]["schemas"]
    for path, method, operation in operations(schema):
        for body in operation.get("requestBody", {}).get("content", {}).values():
            name = body["schema"]["$ref"].rpartition("/")[2]
            assert shapes[name]["additionalProperties"] is False, (method, path)


def test_it_is_made_without_a_warning(tmp_path: Path) -> None:
    """Such as that of a name made up for a list of states, which would be a class of generated clients."""
    call_command("spectacular", "--fail-on-warn", "--file", str(tmp_path / "schema.yaml"))


def test_the_schema_is_made_once_and_known_by_its_tag(nobody: Client) -> None:
    first = {kind: nobody.get("/api/schema/", headers={"Accept": kind}) for kind in KINDS}
    assert len({answer.headers["ETag"] for answer in first.values()}) == len(KINDS)
    for kind, answer in first.items():
        times, again = cost(partial(nobody.get, "/api/schema/", headers={"Accept": kind}), MADE_ANEW)
        assert times < MADE_ANEW
        assert again.content == answer.content
        assert again.headers["Content-Type"] == kind
        known = {"Accept": kind, "If-None-Match": answer.headers["ETag"]}
        unchanged = nobody.get("/api/schema/", headers=known)
        assert (unchanged.status_code, unchanged.content) == (304, b"")


def test_a_text_that_may_not_be_blank_says_so(ada: Caller, schema: Any) -> None:
    """Each text of a body is sent blank: the schema has `minLength` exactly where that is refused."""
    ids = furnish(ada, "demo", "secret").ids
    shapes, wrong, seen = schema["components"]["schemas"], [], 0
    for method, template in (
        ("post", "/api/sessions/{session_id}/messages/"),
        ("patch", "/api/sessions/{session_id}/"),
        ("post", "/api/sessions/{session_id}/automations/"),
        ("patch", "/api/automations/{job_id}/"),
        ("post", "/api/sessions/{session_id}/scheduled-messages/"),
        ("post", "/api/agents/{name}/routines/"),
        ("patch", "/api/routines/{routine_id}/"),
        ("patch", "/api/hooks/{hook_id}/"),
        ("post", "/api/agents/"),
        ("patch", "/api/agents/{name}/"),
        ("post", "/api/sessions/"),
    ):
        operation = schema["paths"][template][method]
        content = operation["requestBody"]["content"]["application/json"]
        shape = shapes[content["schema"]["$ref"].rpartition("/")[2]]
        for name, field in shape["properties"].items():
            if field.get("type") != "string" or "format" in field or "enum" in field:
                continue
            body = {**shape.get("example", {}), name: ""}
            refused = ada(method, template.format(**ids), body).status_code == 400
            seen += 1
            if refused != (field.get("minLength") == 1):
                wrong.append((method, template, name, refused))
    assert (wrong, seen > 20) == ([], True)
