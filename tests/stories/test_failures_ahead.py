"""What goes wrong elsewhere before a run, built on a running system; docs/failures.md tells of each by its number."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db.models.functions import Now

from automations import selectors
from automations.appointments.panel import appointments_of
from automations.jobs.edit import PREFLIGHT
from automations.jobs.explain import explain
from automations.models import CronJob, JobClock, JobPreflight, RunRecord
from config.operations.doctor import CHECKS
from sessions_app.agents.edit import update_agent
from sessions_app.connections.edit import add_connection
from sessions_app.hints import ask_for_maintenance, flush_hints
from sessions_app.models import MailboxEvent, Session
from tests.agent_core.tools.test_fetch import site  # noqa: F401 - a fixture
from tests.automations.jobs.made import EVERY, new
from tests.conftest import Person
from tests.deletion import caller
from tests.fleet import Fleet, until
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


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.rule("11.5")
def test_a_running_server_tells_before_any_slot_and_once_of_what_will_stop_it(
    fleet: Fleet,
    person: Person,
    site: Any,  # noqa: F811 - a fixture
    settings: Any,
) -> None:
    """Complaint 11: models that are retired, keys that expire, bills, channels that close, zones that disappear."""
    settings.RONDO_CONNECTION_HOSTS = ("127.0.0.1",)
    fleet.environ["RONDO_CONNECTION_HOSTS"] = "127.0.0.1"
    daily: dict[str, Any] = {"message": "Look.", "schedule": EVERY | {"seconds": 86_400}}
    jobs = {}
    for name, status in (("retired", 200), ("expired", 401), ("unpaid", 402)):
        listed = json.dumps({"data": [{"id": "newer"}]})
        site.page(f"/{name}/v1/models", listed, "application/json", status)
        site.page(f"/{name}/v1/models/older", "{}", "application/json", 404)
        key = {"provider": "openai-chat", "base_url": f"{site.url}/{name}/v1", "secret": "key-4711"}
        add_connection(person.user, name, key)
        jobs[f"{name}:older"] = new(person.session(), model=f"{name}:older", **daily)
    jobs["'fax'"] = new(person.session(), **daily)
    Session.objects.filter(jobs=jobs["'fax'"]).update(channel="fax", chat_id="42")  # it was set up once
    jobs["Test/Gone"] = new(person.session(), **daily)
    CronJob.objects.filter(pk=jobs["Test/Gone"].pk).update(timezone="Test/Gone")
    fleet.worker()
    fleet.beat()
    flush_hints(5)
    told = MailboxEvent.objects.filter(event_type="preflight")
    until(lambda: told.count() == len(jobs))
    wrong = CHECKS["preflight"]()
    for words, job in jobs.items():
        [problem] = selectors.automation(person.user, job.pk).health.preflight
        assert words in problem["text"]
        assert explain(person.user, job.pk).now.startswith(problem["text"])
        assert told.filter(summary__startswith=problem["text"][:60]).count() == 1
        assert f"{job.pk} " in wrong.detail
    asked = len(site.asked)
    JobPreflight.objects.update(checked_at=Now() - timedelta(hours=1))
    ask_for_maintenance(PREFLIGHT)
    flush_hints(5)
    until(lambda: len(site.asked) == 2 * asked)
    until(lambda: not JobPreflight.objects.filter(checked_at__lt=Now() - timedelta(minutes=30)).exists())
    assert told.count() == len(jobs)
    assert {path.rpartition("/v1")[2] for path in site.asked} == {"/models", "/models/older"}
    assert not RunRecord.objects.exists()
