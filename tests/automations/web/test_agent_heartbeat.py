"""The heartbeat on the page of its agent: the outcome of the last beats, what they used, the next one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client

from agent_core import models
from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelReply
from agent_core.types import Usage
from automations.firing.fire_jobs import fire_due_jobs
from automations.models import CronJob, JobClock
from interfaces.web.agent import heartbeat as agent_heartbeat
from sessions_app.agents.edit import update_agent
from sessions_app.models import Agent, Turn
from tests.automations.messages import a_worker, run_turn
from tests.conftest import Person, new_person
from tests.inside import MODEL, Script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("5.1", "5.4")]


@pytest.fixture
def awake(transactional_db: None) -> Person:
    """A person whose agent is always awake; of its system jobs only the heartbeat is left."""
    person = new_person("ada", dreams=True, model=MODEL)
    CronJob.objects.exclude(system_event="heartbeat").delete()
    update_agent(person.agent.pk, {"heartbeat": {"active_hours": [0, 24]}})
    person.agent.refresh_from_db()
    return person


@pytest.fixture
def script() -> Script:
    found = Script()
    models.register(MODEL, lambda: found)
    return found


def beat(person: Person) -> Turn:
    JobClock.objects.filter(job__agent=person.agent).update(next_run_at=Now())
    assert fire_due_jobs().queued == 1
    return run_turn(Turn.objects.latest("id").session, a_worker())


def shown(person: Person) -> Any:
    client = Client()
    client.force_login(person.user)
    answer = client.get("/agents/demo/")
    assert answer.status_code == 200
    return next(each for each in answer.context["sections"] if each["about"].anchor == "heartbeat")["part"]


def used(part: Any) -> list[tuple[str, int, int]]:
    return [(each.span, each.runs, each.usage.input_tokens) for each in part["used"]]


def test_each_beat_shows_its_outcome(awake: Person, script: Script) -> None:
    script.answer_with(
        ModelReply(text="HEARTBEAT_OK", usage=Usage(input_tokens=10, output_tokens=2, requests=1))
    )
    beat(awake)
    script.answer_with(
        ModelReply(text="The door is open.", usage=Usage(input_tokens=5, output_tokens=4, requests=1))
    )
    beat(awake)
    part = shown(awake)
    assert [each.outcome for each in part["beats"]] == ["delivered", "suppressed"]
    assert all(each.text.startswith("Ran") for each in part["beats"])
    assert used(part) == [("24 hours", 2, 15), ("30 days", 2, 15)]
    assert [each.usage.output_tokens for each in part["used"]] == [6, 6]
    assert part["next"] == JobClock.objects.get(job__agent=awake.agent).next_run_at
    Turn.objects.update(queued_at=F("queued_at") - timedelta(days=2))
    assert used(shown(awake)) == [("24 hours", 0, 0), ("30 days", 2, 15)]


def test_a_failed_beat_says_why(awake: Person, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise ModelRefused("not today")

    monkeypatch.setattr(script, "stream", lambda _call: refuse())
    beat(awake)
    [failed] = shown(awake)["beats"]
    assert failed.outcome == "failed"
    assert failed.text.startswith("Failed: ")


def test_a_sum_that_is_cut_says_so(awake: Person, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_heartbeat, "MOST_COUNTED", 1)
    for _ in range(2):
        script.answer_with(ModelReply(text="HEARTBEAT_OK"))
        beat(awake)
    assert [(each.runs, each.is_more) for each in shown(awake)["used"]] == [(1, True), (1, True)]


def test_a_bad_form_changes_nothing(awake: Person) -> None:
    client = Client()
    client.force_login(awake.user)
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
