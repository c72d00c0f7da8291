"""Whatever a store holds: jobs come in, or are refused in words; never a traceback, and twice is always once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automations.models import CronJob, JobClock
from automations.models.category import Category, category
from automations.nanobot_import.import_store import import_store
from automations.nanobot_import.report import Outcome, Report
from automations.nanobot_import.store_file import StoredJob, StoreRefused, read_store
from automations.schedules.plan import schedule_of
from sessions_app.models import Session
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("4.1")

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from(
        ["", " ", "0", "60000", "1e3", "nan", "-5", "true", "dream", "heartbeat", "\x00", "\ud800"]
    ),
    st.text(max_size=8),
    st.sampled_from([1_770_000_000_000, 2_000_000_000_000, 10**15, 999, 1000, 10**19]),
)
ANYTHING = st.recursive(
    ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def one_of(*usual: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(usual) | ODD


SCHEDULES = st.fixed_dictionaries(
    {"kind": one_of("cron", "every", "at")},
    optional={
        "atMs": ODD,
        "everyMs": ODD,
        "every_ms": ODD,
        "expr": one_of("0 9 * * *", "*/5 * * * *", "61 * * * *"),
        "tz": one_of("Europe/Berlin", "Mars/X", "../etc"),
    },
)
PAYLOADS = st.fixed_dictionaries(
    {"message": one_of("look")},
    optional={
        "kind": one_of("agent_turn", "system_event"),
        "deliver": ODD,
        "channel": one_of("telegram"),
        "to": one_of("42"),
        "channelMeta": st.dictionaries(st.text(max_size=3), ANYTHING, max_size=2) | st.none(),
        "sessionKey": one_of("web:1", "websocket:2", "unified:default", "cron:x", "a:b"),
    },
)
JOBS = st.fixed_dictionaries(
    {"id": one_of("a", "b", "dream", "heartbeat", "x" * 40), "schedule": SCHEDULES, "payload": PAYLOADS},
    optional={
        "name": ODD,
        "enabled": ODD,
        "state": st.fixed_dictionaries({}, optional={"nextRunAtMs": ODD, "lastRunAtMs": ODD}) | st.none(),
        "colour": ANYTHING,
    },
)


@pytest.fixture
def person(transactional_db: None) -> Person:
    return new_person("ada", dreams=True)


def stored() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (CronJob, JobClock, Session)]


def brought(person: Person, content: bytes) -> Report | str:
    """What came of an import: its report, or the refusal of the whole file."""
    try:
        return import_store(person.agent.pk, content)
    except StoreRefused as refusal:
        return str(refusal)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=st.lists(JOBS, max_size=4))
def test_any_jobs_are_imported_once_or_refused_with_a_reason(person: Person, jobs: list[Any]) -> None:
    content = json.dumps({"jobs": jobs}).encode()
    with transaction.atomic():
        before = stored()
        report = brought(person, content)
        if isinstance(report, str):
            assert "jobs[" in report
            assert stored() == before
        else:
            assert len(report.lines) == len(jobs)
            check_report(report)
            check_rows()
            after = stored()
            again = brought(person, content)
            assert isinstance(again, Report)
            assert not {line.outcome for line in again.lines} & {Outcome.IMPORTED, Outcome.TAKEN_OVER}
            assert stored() == after
        transaction.set_rollback(True)


def check_report(report: Report) -> None:
    """Each job has one printable line, and each refusal its reason."""
    json.dumps(report.to_json(), allow_nan=False).encode()
    for line in report.lines:
        assert line.in_words().isprintable()
        assert line.note or line.outcome is not Outcome.REFUSED


def check_rows() -> None:
    """Each row can be planned and stored, and is what its category says."""
    connection.check_constraints()
    for job in CronJob.objects.filter(source="import").select_related("session"):
        schedule_of(job)
        kind = category(job)
        assert kind in {Category.BOUND, Category.LEGACY}
        assert (job.session is not None) == (kind is Category.BOUND)
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
