"""current_time: what a model knows of the time, while its system prompt stays the same bytes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from agent_core import tools
from agent_core.exceptions import ToolFailed
from sessions_app.models import Session, Turn
from sessions_app.turns.claim import claim_next
from sessions_app.turns.context import prepare_turn
from sessions_app.turns.journal import Journal
from sessions_app.turns.receive import MessageInput, receive
from sessions_app.turns.tool_calls import ToolContext
from tests.automations.messages import a_worker
from tests.conftest import Person

pytestmark = pytest.mark.django_db(transaction=True)


def context(person: Person) -> ToolContext:
    session: Session = person.session()
    return ToolContext(turn=Turn(session=session), session=session, agent=person.agent, interactive=True)


def now(person: Person) -> dict[str, str]:
    answer: dict[str, str] = json.loads(tools.get("current_time").run(context(person), {}))
    return answer


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "Asia/Kolkata", "Pacific/Kiritimati"])
def test_it_answers_day_weekday_and_time_in_the_agents_zone(person: Person, zone: str) -> None:
    person.agent.timezone = zone
    told = now(person)
    at = datetime.fromisoformat(told["time"])
    assert abs(at - datetime.now(UTC)) < timedelta(seconds=10)
    assert told["timezone"] == zone
    assert told["date"] == at.date().isoformat()
    assert told["weekday"] == at.strftime("%A")


def test_a_zone_without_data_is_reported_as_utc(person: Person) -> None:
    person.agent.timezone = "Mars/Olympus"
    told = now(person)
    assert told["timezone"] == "UTC"
    assert told["time"].endswith("+00:00")


def test_it_takes_no_parameters_and_may_be_called_again() -> None:
    tool = tools.get("current_time")
    assert (tool.effect, tool.idempotent, tool.parameters["properties"]) == (tools.Effect.READ, True, {})


def test_a_parameter_is_refused(person: Person) -> None:
    with pytest.raises(ToolFailed, match="unknown parameter 'zone'; the tool has no parameters"):
        tools.get("current_time").run(context(person), {"zone": "UTC"})


def test_every_turn_gets_the_tool_and_no_prompt_names_time(person: Person) -> None:
    session = person.session()
    receive(session.pk, MessageInput(content="Remind me tomorrow at nine."))
    turn = claim_next(session.pk, a_worker(), auto_allowed=True)
    assert turn is not None
    request = prepare_turn(turn, Journal(turn)).request
    told = {tool.name: tool for tool in request.tools}
    assert "current_time" in told
    for name in ("cron", "schedule_private_message"):
        assert "current_time" in told[name].description
    assert str(datetime.now(UTC).year) not in request.system_prompt
