"""Appointments by the SDK's client."""

from __future__ import annotations

import pytest

from automations.models import CronJob, RunRecord
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.models import Session
from tests.automations.mcp_server.conftest import Door
from tests.tokens import token_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


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
    here = {"job_id": made["id"]}
    told = ada.call("explain", here)
    assert (told["schedule"], told["last"][0]["state"]) == ("every day at 09:00 (Europe/Berlin)", "skipped")
    assert [ada.call("pause", here)["enabled"] for _ in range(2)] == [False, False]
    assert "nothing_to_skip" in ada.refused("skip_next", here)
    assert ada.call("resume", here)["enabled"] is True
    assert ada.call("cancel_appointment", here) == {"deleted": made["id"]}
    assert "not_found" in ada.refused("cancel_appointment", here)


def test_one_time_automations_are_read_in_the_agents_zone(ada: Door) -> None:
    made = ada.call("schedule", {"message": "tea", "at": "2999-01-01T10:00"})
    assert made["next_run_at"] == "2999-01-01T10:00:00Z"
    assert made["state"] == "scheduled"


def test_the_mailbox_is_read_without_acknowledging_it(ada: Door) -> None:
    session = Session.objects.get(agent__owner=ada.user, key="unified:default")
    deposit(
        session.pk, NewUpdate(event_type="job_completed", summary="The report is ready.", source_key="job:x")
    )
    for _ in range(2):
        [update] = ada.call("read_mailbox")["updates"]
        assert (update["summary"], update["state"]) == ("The report is ready.", "pending")
    assert token_of(ada.user) == ada.token
