"""What goes wrong elsewhere before a run, built on a running system; docs/failures.md tells of each by its number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from automations import selectors
from automations.appointments.panel import appointments_of
from automations.jobs.explain import explain
from automations.models import JobClock, RunRecord
from sessions_app.agents.edit import update_agent
from tests.agent_core.tools.test_fetch import site  # noqa: F401 - a fixture
from tests.deletion import caller
from tests.fleet import until
from tests.inside import Inside

AUCKLAND = ZoneInfo("Pacific/Auckland")


@pytest.mark.full
@pytest.mark.rule("4.6")
def test_a_time_is_the_same_instant_when_previewed_shown_and_fired(inside: Inside) -> None:
    """Complaint 5."""
    user = inside.person.user
    update_agent(inside.person.agent.pk, {"timezone": AUCKLAND.key})
    ada, session = caller(inside.person), inside.person.session()
    soon = datetime.now(AUCKLAND).replace(microsecond=0, tzinfo=None) + timedelta(seconds=6)
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
