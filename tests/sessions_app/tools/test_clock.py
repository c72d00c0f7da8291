"""current_time: what a model knows of the time, while its system prompt stays the same bytes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from agent_core import tools
from agent_core.exceptions import ToolFailed
from tests.conftest import Person
from tests.sessions_app.tools.test_documents import context

pytestmark = pytest.mark.django_db(transaction=True)


def now(person: Person) -> dict[str, str]:
    answer: dict[str, str] = json.loads(tools.get("current_time").run(context(person), {}))
    return answer


def test_it_answers_day_weekday_and_time_in_the_agents_zone(person: Person) -> None:
    for zone in ("UTC", "Asia/Kolkata", "Pacific/Kiritimati"):
        person.agent.timezone = zone
        told = now(person)
        at = datetime.fromisoformat(told["time"])
        assert abs(at - datetime.now(UTC)) < timedelta(seconds=10)
        assert told["timezone"] == zone
        assert told["date"] == at.date().isoformat()
        assert told["weekday"] == at.strftime("%A")
    person.agent.timezone = "Mars/Olympus"  # without data
    told = now(person)
    assert told["timezone"] == "UTC"
    assert told["time"].endswith("+00:00")


def test_it_takes_no_parameters_and_may_be_called_again(person: Person) -> None:
    tool = tools.get("current_time")
    assert (tool.effect, tool.idempotent, tool.parameters["properties"]) == (tools.Effect.READ, True, {})
    with pytest.raises(ToolFailed, match="unknown parameter 'zone'; the tool has no parameters"):
        tool.run(context(person), {"zone": "UTC"})
