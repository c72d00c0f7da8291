"""The lists of large tables: their filters, what a filter looks at, and the search by an automation's name."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from automations.models import RunRecord, RunState
from tests.admin.conftest import make_job, make_turn, url
from tests.admin.test_dashboard import add_run
from tests.conftest import Person

RUNS = "admin:automations_runrecord_changelist"


def found(client: Client, name: str, **query: Any) -> str:
    answer = client.get(reverse(name), query)
    assert answer.status_code == 200, query
    return answer.content.decode()


def link_of(run: RunRecord) -> str:
    return quote(run.pk)  # as Django writes it into addresses


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
        assert {run for run in (old, new) if link_of(run) in page} == expected, query


def test_a_filter_looks_at_the_newest_rows_and_says_so(
    staff: Client, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interfaces.admin.big_table.MOST_FILTERED", 3)
    session = person.session()
    job = make_job(session)
    runs = [add_run(job, RunState.FAILED, n + 1, reason="timeout") for n in range(6)]
    said = "look at the newest 3 rows only"
    page = found(staff, RUNS, reason__exact="timeout")
    assert said in page
    assert [link_of(run) in page for run in runs] == [True] * 4 + [False] * 2
    end = runs[2].created_at.astimezone(UTC)
    until = {"created_at_to_0": f"{end:%Y-%m-%d}", "created_at_to_1": f"{end:%H:%M:%S.%f}"}
    page = found(staff, RUNS, reason__exact="timeout", **until)
    assert [link_of(run) in page for run in runs] == [False] * 2 + [True] * 4
    for whole in ({"job__id__exact": job.pk, "reason__exact": "timeout"}, {}, {"q": job.pk}):
        page = found(staff, RUNS, **whole)
        assert said not in page
        assert all(link_of(run) in page for run in runs), whole
    turns = [make_turn(session) for _ in range(6)]
    page = found(staff, "admin:sessions_app_turn_changelist", kind__exact="message")
    assert [url(turn, "change") in page for turn in turns] == [False] * 2 + [True] * 4
