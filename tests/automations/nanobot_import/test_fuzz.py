"""Whatever a store holds: jobs come in, or are refused in words; never a traceback, and twice is always once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automations.models import JobClock
from automations.models.category import Category, category
from automations.nanobot_import.import_store import Outcome, Report, import_store
from automations.nanobot_import.store_file import StoredJob, StoreRefused, read_store
from automations.schedules.plan import schedule_of
from tests.automations.nanobot_import.test_import_store import (
    a_job,
    everything,
    imported,
    person,
    store,
    undone,
)
from tests.conftest import Person

__all__ = ["person"]
pytestmark = pytest.mark.rule("4.1")

ODD = st.one_of(
    st.sampled_from(
        [None, "", "0", "60000", "1e3", "nan", "-5", "true", "\x00", "\ud800", 999, 10**15, 10**19]
    ),
    st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
)
ANYTHING = st.recursive(
    ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def one_of(*usual: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(usual) | ODD


JOBS = some(
    id=one_of("a", "b", "dream", "heartbeat", "x" * 40), name=ODD, enabled=ODD, colour=ANYTHING,
    schedule=some(
        kind=one_of("cron", "every", "at"), atMs=ODD, everyMs=ODD, expr=one_of("0 9 * * *", "61 * * * *"),
        tz=one_of("Europe/Berlin", "Mars/X"),
    ),
    payload=some(
        kind=one_of("system_event"), deliver=ODD, channel=one_of("telegram"), to=ODD, channelMeta=ANYTHING,
        sessionKey=one_of("web:1", "websocket:2", "unified:default", "cron:x"),
    ),
    state=some(nextRunAtMs=ODD, lastRunAtMs=ODD),
).map(lambda fields: a_job(**fields))  # fmt: skip


def brought(person: Person, content: bytes) -> Report | str:
    """What came of an import: its report, or the refusal of the whole file."""
    try:
        return import_store(person.agent.pk, content)
    except StoreRefused as refusal:
        return str(refusal)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=st.lists(JOBS, max_size=4))
def test_any_jobs_are_imported_once_or_refused_with_a_reason(person: Person, jobs: list[Any]) -> None:
    content = store(*jobs)
    with undone():
        before = everything()
        report = brought(person, content)
        if isinstance(report, str):
            assert "jobs[" in report
            assert everything() == before
            return
        assert len(report.lines) == len(jobs)
        json.dumps(report.to_json(), allow_nan=False).encode()
        assert all(line.in_words().isprintable() for line in report.lines)
        assert all(line.note for line in report.lines if line.outcome is Outcome.REFUSED)
        check_rows()
        after = everything()
        again = brought(person, content)
        assert isinstance(again, Report)
        assert not {line.outcome for line in again.lines} & {Outcome.IMPORTED, Outcome.TAKEN_OVER}
        assert everything() == after


def check_rows() -> None:
    """Each row can be planned and stored, and is what its category says."""
    connection.check_constraints()
    for job in imported():
        schedule_of(job)
        assert category(job) is (Category.LEGACY if job.session is None else Category.BOUND)
        assert job.message.strip()
        assert job.enabled or JobClock.objects.get(job=job).next_run_at is None


@settings(max_examples=100)
@given(content=st.binary(max_size=200) | ANYTHING.map(lambda tree: json.dumps({"jobs": tree}).encode()))
def test_any_bytes_are_parsed_or_refused_in_one_line(content: bytes) -> None:
    refusal = ""
    jobs: list[StoredJob] = []
    try:
        jobs = read_store(content)
    except StoreRefused as refused:
        refusal = str(refused)
    assert refusal.isprintable()
    assert bool(refusal) <= (not jobs)
