"""The lists of large tables: their filters, and the search by an automation's name."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from automations.models import RunState
from tests.admin.conftest import make_job
from tests.admin.test_dashboard import add_run
from tests.conftest import Person

RUNS = "admin:automations_runrecord_changelist"


def found(client: Client, name: str, **query: Any) -> str:
    answer = client.get(reverse(name), query)
    assert answer.status_code == 200, query
    return answer.content.decode()


def test_runs_are_filtered_by_state_reason_agent_and_time(staff: Client, person: Person) -> None:
    session = person.session()
    old = add_run(make_job(session, "Water the tomatoes"), RunState.FAILED, 60 * 30, reason="timeout")
    new = add_run(make_job(session, "Feed the cat"), RunState.SKIPPED, 5, reason="overlap")
    today = {"created_at_to_0": f"{new.created_at.astimezone(UTC):%Y-%m-%d}"}
    noon = new.created_at.astimezone(UTC) - timedelta(hours=1)
    for query, expected in (
        ({"state__exact": "failed"}, {old}),
        ({"reason__exact": "overlap"}, {new}),
        ({"job__agent__id__exact": person.agent.pk + 1}, set()),
        ({"created_at_from_0": f"{noon:%Y-%m-%d}", "created_at_from_1": f"{noon:%H:%M:%S}"}, {new}),
        ({"created_at_to_0": f"{noon:%Y-%m-%d}", "created_at_to_1": f"{noon:%H:%M:%S}"}, {old}),
        ({"created_at_from_0": "nonsense", "created_at_to_1": "x"}, {old, new}),
        (today, {old, new}),  # until the end of the day
        (today | {"created_at_to_1": "00:00"}, {old}),
        ({"created_at_to_1": "00:00"}, {old, new}),  # of no day
        ({"q": "tomatoes water"}, {old}),
    ):
        page = found(staff, RUNS, **query)
        assert {run for run in (old, new) if quote(run.pk) in page} == expected, query
