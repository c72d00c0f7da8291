"""Example responses of operations. They were recorded from a server, and a test compares them with what it answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "answers"
STREAM = "text/event-stream"
# by the name of a path parameter
PATH_PARAMETERS: dict[str, Any] = {
    "name": "demo",
    "document": "USER.md",
    "session_id": "0192f0c1-7a5e-4c3b-9d2e-000000000001",
    "connection": "work",
}
_ENVELOPE = {
    "v": 1,
    "event_id": "5120-77",
    "timestamp": "2026-11-24T09:00:00Z",
    "agent_name": "demo",
    "session_id": PATH_PARAMETERS["session_id"],
    "scope": "session",
    "source_type": "message",
    "run_id": None,
    "type": "turn_end",
    "content": {"turn": 17, "state": "succeeded", "error": None},
}
_EVENT = {"id": _ENVELOPE["event_id"], "event": _ENVELOPE["type"], "data": json.dumps(_ENVELOPE)}


@dataclass(frozen=True)
class Answer:
    """A recorded response: `body` is None for one without content."""

    status: int
    body: Any


@cache
def answer_of(operation_id: str) -> Answer | None:
    """The recorded response of an operation; None if there is none."""
    try:
        found = json.loads((FOLDER / f"{operation_id}.json").read_text())
    except FileNotFoundError:
        return None
    return Answer(status=found["status"], body=found["body"])


def add_examples(operation: dict[str, Any]) -> None:
    """Add the examples of an operation in place: its path parameters and its response."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path" and parameter["name"] in PATH_PARAMETERS:
            parameter["example"] = PATH_PARAMETERS[parameter["name"]]
    answer = answer_of(operation["operationId"])
    for status, response in operation["responses"].items():
        for kind, content in response.get("content", {}).items():
            if kind == STREAM:
                content["example"] = _EVENT
            elif answer is not None and status == str(answer.status):
                content["example"] = answer.body
