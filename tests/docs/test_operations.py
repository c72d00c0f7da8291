"""Every operation of the OpenAPI schema has examples that hold.

The examples of responses were recorded: `RONDO_RECORD=1 pytest tests/docs/test_operations.py` records those that are
missing or out of date.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from interfaces.http.schema import openapi
from interfaces.http.schema.openapi import answer_of
from tests.api.conftest import Caller
from tests.bot_api import serving_bots
from tests.docs.operations import Operation, World, operations, without_secrets
from tests.model_server import ModelServer

pytestmark = pytest.mark.django_db
COMMITTED = {"delete_agent", "delete_session"}  # they work in several transactions
RECORDING = bool(os.environ.get("RONDO_RECORD"))


@pytest.fixture
def world(settings: Any, ada: Caller) -> Iterator[World]:
    settings.RONDO_CONNECTION_HOSTS = ("127.0.0.1",)
    with ModelServer() as model, serving_bots(settings):
        world = World(ada=ada, model=model)
        world.furnish()
        yield world


def problems(schema: Any, shape: Any, value: Any) -> list[str]:
    """What of the value does not fit the shape."""
    whole = shape | {"components": schema["components"]}
    found = Draft202012Validator(whole, validate_formats=True).iter_errors(value)
    return [f"{'.'.join(map(str, each.instance_path))}: {each.message}"[:200] for each in found]


def outline(value: Any) -> Any:
    """The fields of a response, without their values."""
    if isinstance(value, dict):
        return {key: outline(each) for key, each in value.items() if key == "results"} | {"": sorted(value)}
    return [outline(each) for each in value[:1]] if isinstance(value, list) else None


def check(operation: Operation, schema: Any, answer: Any) -> list[str]:
    """What is wrong with an answer or with the example of it."""
    if answer.status_code not in {200, 201, 202, 204}:
        return [f"{answer.status_code}: {answer.content.decode()[:300]}"]
    body = answer.json() if answer.content else None
    described = operation.about["responses"][str(answer.status_code)]
    shapes = described.get("content", {})
    wrong = [each for content in shapes.values() for each in problems(schema, content["schema"], body)]
    wrong = [f"the answer: {each}" for each in wrong]
    # the request's id is added outside of the application; tests/api/test_http.py is about it
    everywhere = {name for name, header in described["headers"].items() if "$ref" in header}
    everywhere -= {"X-Request-Id"}
    wrong += [f"the answer has no {name}" for name in sorted(everywhere - answer.headers.keys())]
    if isinstance(body, dict) and body.get("results") == []:
        wrong.append("the list is empty, so it is no example")
    kept = answer_of(operation.id)
    if kept is None or (kept["status"], outline(kept["body"])) != (answer.status_code, outline(body)):
        wrong += [] if RECORDING else ["the example is missing or out of date: record it (RONDO_RECORD=1)"]
        if RECORDING:
            record(operation, answer.status_code, body)
    elif kept["body"] is not None:
        shown = [content.get("example") for content in shapes.values()]
        wrong += [] if shown == [kept["body"]] else ["the schema does not show the example"]
        shape = next(iter(shapes.values()))["schema"]
        wrong += [f"the example: {each}" for each in problems(schema, shape, kept["body"])]
    return wrong


def record(operation: Operation, status: int, body: Any) -> None:
    openapi.FOLDER.mkdir(exist_ok=True)
    text = json.dumps({"status": status, "body": without_secrets(body)}, indent=2, ensure_ascii=False)
    (openapi.FOLDER / f"{operation.id}.json").write_text(text + "\n")


def test_every_example_is_sent_and_answered_as_the_schema_shows(schema: Any, world: World) -> None:
    wrong: dict[str, list[str]] = {}
    for operation in operations(schema):
        if operation.id in COMMITTED:
            continue
        if operation.is_stream:  # tests/api/test_clients.py and test_archives.py read those
            [content] = operation.about["responses"]["200"]["content"].values()
            has_example = content["schema"].get("format") != "binary"
            found = problems(schema, content["schema"], content["example"]) if has_example else []
        else:
            with world.as_it_was(operation):
                found = check(operation, schema, world.call(operation, schema))
        if found:
            wrong[operation.id] = found
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.django_db(transaction=True)
def test_what_is_deleted_is_answered_as_the_schema_shows(schema: Any, world: World) -> None:
    for operation in operations(schema):
        if operation.id in COMMITTED:
            answer = world.call(operation, schema)
            assert not check(operation, schema, answer), operation.id
            if operation.id == "delete_agent":
                world.ada.agent()
                world.ids["session_id"] = world.ada.session()


def test_no_example_is_left_over(schema: Any) -> None:
    assert {each.stem for each in openapi.FOLDER.glob("*.json")} <= {each.id for each in operations(schema)}
