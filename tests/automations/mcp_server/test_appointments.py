"""Appointments by the SDK's client, kept by real beats and workers."""

from __future__ import annotations

from typing import Any

import pytest

from automations.models import CronJob, RunRecord
from sessions_app.mailbox.updates import Mail, deposit
from sessions_app.models import Session
from tests.automations.mcp_server.conftest import Door
from tests.automations.mcp_server.test_survival import opened
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.tokens import token_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


@pytest.mark.full
def test_an_automation_fires_and_its_answer_is_read(
    person_with_server: Person, model_server: Any, fleet: Fleet
) -> None:
    door, web = opened(person_with_server, fleet, "web")
    fleet.worker()
    fleet.beat()
    made = door.call("schedule", {"message": "say [[reply:Tea is ready]]", "name": "Tea", "every_seconds": 1})
    assert (made["name"], made["enabled"]) == ("Tea", True)

    def answers() -> list[str]:
        return [each["content"] for each in door.call("read_session")["messages"]]

    until(lambda: "Tea is ready" in answers())
    web.kill()
    door, _web = opened(person_with_server, fleet, "again")
    told = door.call("explain", {"job_id": made["id"]})
    assert told["schedule"] == "every second"
    assert told["last"][0]["state"] in {"succeeded", "running", "queued"}
    assert door.call("pause", {"job_id": made["id"]})["enabled"] is False
    assert door.call("pause", {"job_id": made["id"]})["enabled"] is False
    assert "nothing_to_skip" in door.refused("skip_next", {"job_id": made["id"]})
    assert door.call("cancel_appointment", {"job_id": made["id"]}) == {"deleted": made["id"]}
    assert "not_found" in door.refused("cancel_appointment", {"job_id": made["id"]})


def test_the_next_runs_are_skipped_once_with_a_key(ada: Door) -> None:
    given = {"message": "tea", "cron_expr": "0 9 * * *", "tz": "Europe/Berlin", "idempotency_key": "tea"}
    made = ada.call("schedule", given)
    assert ada.call("schedule", given) == made
    assert CronJob.objects.filter(session__owner=ada.user).count() == 1
    skip = {"job_id": made["id"], "idempotency_key": "skip"}
    skipped = ada.call("skip_next", skip)
    assert skipped["next_run_at"] > made["next_run_at"]
    assert ada.call("skip_next", skip) == skipped
    assert RunRecord.objects.get().reason == "skipped_by_user"
    later = ada.call("skip_next", {"job_id": made["id"], "slots": 2})
    assert later["next_run_at"] > skipped["next_run_at"]
    [listed] = [
        each for each in ada.call("list_appointments")["appointments"] if each["kind"] == "automation"
    ]
    assert (listed["id"], listed["next"][0]) != (made["id"], made["next_run_at"])
    assert ada.call("resume", {"job_id": made["id"]})["enabled"] is True


def test_one_time_automations_are_read_in_the_agents_zone(ada: Door) -> None:
    made = ada.call("schedule", {"message": "tea", "at": "2999-01-01T10:00"})
    assert made["next_run_at"] == "2999-01-01T10:00:00Z"
    assert made["state"] == "scheduled"


def test_the_mailbox_is_read_without_acknowledging_it(ada: Door) -> None:
    session = Session.objects.get(agent__owner=ada.user, key="unified:default")
    deposit(session.pk, Mail(event_type="job_completed", summary="The report is ready.", source_key="job:x"))
    for _ in range(2):
        [update] = ada.call("read_mailbox")["updates"]
        assert (update["summary"], update["state"]) == ("The report is ready.", "pending")
    assert token_of(ada.user) == ada.token
