"""The JSON of an agent's form is read within the API's limits (rule 10.0)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from sessions_app.api.strict_json import DEEPEST
from tests.admin.conftest import url
from tests.conftest import Person

pytestmark = pytest.mark.rule("10.0")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("[" * 5_000 + "]" * 5_000, f"nested more than {DEEPEST} levels deep"),
        ("[" + "0," * 10_000 + "0]", "more than 10,000 values"),
        ('{"max_tool_calls": 1, "max_tool_calls": 2}', "occurs twice"),
        ("{", "not valid JSON"),
    ],
    ids=["depth", "values", "doubles", "broken"],
)
@pytest.mark.parametrize("field", ["policy", "heartbeat", "mcp_servers"])
def test_json_beyond_the_limits_is_an_error_of_its_field(
    staff: Client, person: Person, field: str, given: str, words: str
) -> None:
    form: dict[str, Any] = {
        "model": "offline", "timezone": "UTC", "engine": "chat", "routine_limit": "20", "policy": "{}",
        "heartbeat": json.dumps(person.agent.heartbeat), "mcp_servers": "{}", "seen_revision": 0,
    }  # fmt: skip
    answer = staff.post(url(person.agent, "change"), form | {field: given})
    assert answer.status_code == 200
    assert words in answer.content.decode()
    before = person.agent.revision
    person.agent.refresh_from_db()
    assert person.agent.revision == before
