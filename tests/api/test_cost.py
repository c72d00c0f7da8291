"""The dearest allowed request costs a fraction of a second of processor, and its refusal is short (rule 10.0)."""

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from interfaces.http.server.bodies import LONGEST_BODY
from interfaces.http.strict_json import MOST_VALUES
from tests.api.conftest import Caller, operations
from tests.api.dear import WORST, faults, long_keys, many_keys
from tests.api.places import furnish

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.0"), pytest.mark.full]

ROOM = 2_000  # bytes and values left for the rest of a body
HOURLY = {"kind": "every", "seconds": 3600}
EXAMPLES: dict[str, Any] = {  # sound values of what the schema calls a text
    "agent": "demo",
    "send_at": "2099-01-01T00:00:00Z",
    "key": "web:1",
    "schedule": HOURLY,
    "active_hours": [8, 22],
}
PARTS: dict[str, dict[str, Any]] = {  # of objects whose keys a verb checks
    "policy": {"max_tool_calls": 1},
    "mcp_servers": {"one": {"url": "https://example.org/", "headers": {"X-Key": "v"}, "trusted": False}},
    "schedule": {
        "kind": "cron",
        "expr": "0 9 * * *",
        "timezone": "UTC",
        "seconds": 5,
        "at": "2099-01-01T00:00:00Z",
    },
}
ALONE = {"numbers", "keys", "letters"}  # also of each property by itself: a verb stops at the first one wrong


@pytest.fixture
def ids(ada: Caller) -> dict[str, Any]:
    """By the name of a path parameter, something of Ada's."""
    place = furnish(ada, "demo", "secret")
    return place.ids | {"document": "HEARTBEAT.md", "token": place.hook_token}


def shape_of(schema: Any, operation: Any) -> Any:
    """The shape of its body, or None."""
    content = operation.get("requestBody", {}).get("content", {})
    return resolved(schema, content["application/json"]["schema"]) if content else None


def resolved(schema: Any, shape: Any) -> Any:
    for each in shape.get("allOf", []):
        shape = shape | resolved(schema, each)
    if name := shape.get("$ref", "").rpartition("/")[2]:
        return resolved(schema, schema["components"]["schemas"][name])
    return shape


def sound(schema: Any, name: str, shape: Any) -> Any:
    """A value that passes."""
    shape = resolved(schema, shape)
    if name in EXAMPLES:
        return EXAMPLES[name]
    if "oneOf" in shape:
        return sound(schema, name, shape["oneOf"][0])
    if "enum" in shape:
        return shape["enum"][0]
    kind = shape.get("type")
    if kind == "object":
        return {key: sound(schema, key, each) for key, each in shape.get("properties", {}).items()}
    return {"string": "x", "integer": 5, "boolean": True, "array": []}.get(kind, {})


def dear_bodies(schema: Any, shape: Any) -> Iterator[tuple[str, bytes]]:
    """All properties at once made of the worst values, then each alone beside sound ones; and bodies of no shape."""
    properties = shape.get("properties", {})
    needed = {name: sound(schema, name, properties[name]) for name in shape.get("required", [])}
    for worst, make in WORST.items():
        share = max(1, len(properties))
        most = (LONGEST_BODY - ROOM) // share, (MOST_VALUES - ROOM) // share
        full = {name: make(*most) for name in properties}
        yield f"all of {worst}", json.dumps(full).encode()
        for name in properties if worst in ALONE else ():
            whole = make(LONGEST_BODY - ROOM, MOST_VALUES - ROOM)
            yield f"{name} of {worst}", json.dumps(needed | {name: whole}, ensure_ascii=False).encode()
            for part in PARTS.get(name, {}):
                body = needed | {name: PARTS[name] | {part: whole}}
                yield f"{name}.{part} of {worst}", json.dumps(body).encode()
    yield "many keys", json.dumps(needed | many_keys(LONGEST_BODY, MOST_VALUES - ROOM)).encode()
    yield "long keys", json.dumps(needed | long_keys(LONGEST_BODY - ROOM, 0)).encode()


@pytest.mark.timeout(300)  # some 600 requests: half a minute alone, minutes on a busy machine
def test_expensive_request_bodies_cost_little_and_get_short_refusals(
    ada: Caller, ids: dict[str, Any], schema: Any
) -> None:
    wrong: list[str] = []
    with_bodies = [each for each in operations(schema) if shape_of(schema, each[2]) is not None]
    assert len(with_bodies) > 12
    for path, method, operation in with_bodies:
        for number, (name, body) in enumerate(dear_bodies(schema, shape_of(schema, operation))):
            assert len(body) <= LONGEST_BODY
            headers = headers_of(path, ids, number)
            send = partial(ada, method.upper(), path.format(**ids), body, **headers)
            wrong += faults(f"{method} {path}, {name}", send)
    assert not wrong, "\n".join(wrong)


def headers_of(path: str, ids: dict[str, Any], number: int) -> dict[str, str]:
    """Those of a hook's messages; nobody else needs any."""
    if not path.endswith("{hook_id}/messages/"):
        return {}
    stamp = {"Webhook-Id": f"m{number}", "Webhook-Timestamp": str(int(time.time()))}
    return {"Authorization": f"Bearer {ids['token']}"} | stamp


def test_long_parameters_headers_and_paths_cost_little(ada: Caller, ids: dict[str, Any], schema: Any) -> None:
    wrong: list[str] = []
    long = {"letters": "x" * 20_000, "digits": "9" * 20_000, "commas": '"a", ' * 4_000}
    for path, method, operation in operations(schema):
        if path.endswith(("/events/", "/export/")) or method == "delete":
            continue  # a stream would go on, and what is deleted is not there for the next one
        for name, value in long.items():
            named = [(each["in"], each["name"]) for each in operation["parameters"]]
            query = urlencode({name: value for where, name in named if where == "query"})
            headers = {name: value for where, name in named if where == "header"}
            there, nowhere = path.format(**ids), path.format(**dict.fromkeys(ids, quote(value)))
            for address in (f"{there}?{query}", nowhere, f"{there}?{'&'.join(['a'] * 5_000)}"):
                send = partial(ada, method.upper(), address, b"{}", **headers)
                wrong += faults(f"{method} {path}, {name} in {address[:60]}", send)
    assert not wrong, "\n".join(wrong)
