"""What goes wrong elsewhere before a run, built on a running system; docs/failures.md tells of each by its number."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from automations import selectors
from automations.appointments.panel import appointments_of
from automations.jobs.explain import explain
from automations.models import JobClock, RunRecord
from sessions_app.agents.edit import update_agent
from sessions_app.connections.edit import add_connection
from sessions_app.hints import flush_hints
from sessions_app.models import MailboxEvent
from tests.agent_core.tools.test_fetch import site  # noqa: F401 - a fixture
from tests.automations.jobs.made import EVERY, new
from tests.conftest import Person
from tests.deletion import caller
from tests.fleet import Fleet, until
from tests.inside import Inside

AUCKLAND = ZoneInfo("Pacific/Auckland")


@pytest.mark.rule("4.6")
def test_a_time_is_the_same_instant_when_previewed_shown_and_fired(inside: Inside) -> None:
    """Complaint 5."""
    user = inside.person.user
    update_agent(inside.person.agent.pk, {"timezone": AUCKLAND.key})
    ada, session = caller(inside.person), inside.person.session()
    soon = datetime.now(AUCKLAND).replace(microsecond=0, tzinfo=None) + timedelta(seconds=3)
    once: dict[str, Any] = {"kind": "at", "at": soon.isoformat()}
    for schedule in (once, {"kind": "cron", "expr": "30 2 * * *"}):
        asked = {"schedule": schedule, "agent": inside.person.agent.name, "count": 3}
        previewed = ada.post("/api/schedules/preview/", asked).json()["next"]
        body = {"message": f"Look at {schedule['kind']}.", "schedule": schedule}
        job_id = ada.post(f"/api/sessions/{session.pk}/automations/", body).json()["id"]
        promised = [datetime.fromisoformat(each) for each in previewed]
        explained = explain(user, job_id)
        assert list(explained.next)[:3] == promised
        assert explained.timezone == AUCKLAND.key
        assert selectors.automation(user, job_id).next_run_at == promised[0]
        [shown] = [each for each in appointments_of(user, session.pk) if each.id == job_id]
        assert [each.isoformat() for each in shown.next] == [each.isoformat() for each in explained.next[:3]]
    once_job = JobClock.objects.get(job__schedule_kind="at").pk
    runs = RunRecord.objects.filter(job=once_job)

    def has_run() -> bool:
        inside.beat()
        return runs.filter(state="succeeded").exists()

    until(has_run)
    assert runs.get().scheduled_for == soon.replace(tzinfo=AUCKLAND).astimezone(UTC)
    past = {"message": "Late.", "schedule": {"kind": "at", "at": "2020-01-01T09:00:00"}}
    refused = ada.post(f"/api/sessions/{session.pk}/automations/", past)
    assert refused.json()["code"] == "past_at", "it is not moved to another year"


@pytest.mark.processes
@pytest.mark.long("a beat and a worker")
@pytest.mark.rule("11.5")
def test_a_retired_model_is_told_before_a_slot(
    fleet: Fleet,
    person: Person,
    site: Any,  # noqa: F811 - a fixture
    settings: Any,
) -> None:
    """Complaint 11."""
    settings.RONDO_CONNECTION_HOSTS = ("127.0.0.1",)
    fleet.environ["RONDO_CONNECTION_HOSTS"] = "127.0.0.1"
    site.page("/v1/models", json.dumps({"data": [{"id": "newer"}]}), "application/json")
    site.page("/v1/models/older", "{}", "application/json", 404)
    about = {"provider": "openai-chat", "base_url": f"{site.url}/v1", "secret": "key-4711"}
    add_connection(person.user, "work", about)
    update_agent(person.agent.pk, {"model": "work:older"})
    fleet.worker()
    fleet.beat()
    job = new(person.session(), message="Look.", schedule=EVERY | {"seconds": 86_400})
    flush_hints(5)
    mail = until(lambda: MailboxEvent.objects.filter(event_type="preflight").first())
    assert "work:older" in mail.summary
    assert "work:older" in explain(person.user, job.pk).now
    assert not RunRecord.objects.exists()
    assert site.asked == ["/v1/models", "/v1/models/older"]
