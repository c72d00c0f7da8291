"""The heartbeat on the page of its agent: the outcome of the last beats, what they used, the next one."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelReply
from agent_core.types import Usage
from automations.models import JobClock
from sessions_app.models import Agent, Turn
from sessions_app.reads import usage
from tests.automations.turn_kinds.test_heartbeat import awake, beat, inside
from tests.automations.web.test_addresses import signed_in
from tests.conftest import Person
from tests.inside import Inside

__all__ = ["awake", "inside"]  # fixtures

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("5.1", "5.4")]


def shown(person: Person) -> Any:
    answer = signed_in(person).get("/agents/demo/")
    assert answer.status_code == 200
    return next(each for each in answer.context["sections"] if each["about"].anchor == "heartbeat")["part"]


def used(part: Any) -> list[tuple[str, int, int]]:
    return [(each["span"], each["used"].turns, each["used"].input_tokens) for each in part["used"]]


def says(text: str, taken: int = 0, given: int = 0) -> ModelReply:
    return ModelReply(text=text, usage=Usage(input_tokens=taken, output_tokens=given, requests=1))


def test_each_beat_shows_its_outcome(inside: Inside) -> None:
    inside.model.answer_with(says("HEARTBEAT_OK", 10, 2), says("The door is open.", 5, 4))
    beat(inside)
    beat(inside)
    part = shown(inside.person)
    assert [each["outcome"] for each in part["beats"]] == ["delivered", "suppressed"]
    assert all(each["text"].startswith("Ran") for each in part["beats"])
    assert used(part) == [("24 hours", 2, 15), ("30 days", 2, 15)]
    assert [each["used"].output_tokens for each in part["used"]] == [6, 6]
    assert part["next"] == JobClock.objects.get(job__agent=inside.person.agent).next_run_at
    Turn.objects.update(queued_at=F("queued_at") - timedelta(days=2))
    assert used(shown(inside.person)) == [("24 hours", 0, 0), ("30 days", 2, 15)]
    inside.model.answer_with(ModelRefused("not today"))
    beat(inside)
    failed = shown(inside.person)["beats"][0]
    assert (failed["outcome"], failed["text"][:8]) == ("failed", "Failed: ")


def test_a_sum_that_is_cut_says_so(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_COUNTED", 1)
    inside.model.answer_with(says("HEARTBEAT_OK"), says("HEARTBEAT_OK"))
    beat(inside)
    beat(inside)
    rows = shown(inside.person)["used"]
    assert [(each["used"].turns, each["is_more"]) for each in rows] == [(1, True), (1, True)]


def test_a_bad_form_changes_nothing(awake: Person) -> None:
    client = signed_in(awake)
    form = {"interval": "30", "unit": "minutes", "from": "8", "to": "22", "revision": awake.agent.revision}
    bad = [{"interval": given} for given in ("0", "-5", "1.5", "9" * 30, "٣")]
    bad += [{"from": "25"}, {"to": ""}, {"from": "8", "to": "8"}]
    for given in [*bad, {"revision": "99"}, {"revision": "x" * 1000}]:
        answer = client.post("/agents/demo/heartbeat/", form | given)
        assert answer.status_code == (412 if "revision" in given else 400), given
        assert Agent.objects.get().heartbeat == awake.agent.heartbeat, given
    # an unknown unit counts as minutes
    assert client.post("/agents/demo/heartbeat/", form | {"unit": "days"}).status_code == 303
    assert Agent.objects.get().heartbeat["interval_seconds"] == 1800
