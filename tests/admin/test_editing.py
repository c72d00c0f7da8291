"""Making and changing through the forms: every change goes through its verb, every refusal comes back as an error."""

import json
from datetime import UTC, date, datetime
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from automations.models import CronJob, JobClock, RunRecord, RunState
from interfaces.http.strict_json import DEEPEST
from sessions_app.models import PRIMARY_KEY, Agent, Document, Session, TurnState
from tests.admin.conftest import act, agent_form, make_job, make_turn, shown, url
from tests.automations.jobs.made import add, past_run
from tests.conftest import Person

CLOCK = {"clock-TOTAL_FORMS": "0", "clock-INITIAL_FORMS": "0"}


def job_data(**given: Any) -> dict[str, Any]:
    return {
        "name": "", "message": "look at the repo", "schedule_kind": "cron", "cron": "0 9 * * *", "enabled": "on",
        "overlap": "skip", "catch_up": "one", **given,
    }  # fmt: skip


def edit(client: Client, job: CronJob, **given: Any) -> Any:
    seen = {"cron_timezone": job.timezone, "seen_revision": job.revision}
    data = job_data(name=job.name, message=job.message, cron=job.expr, **seen)
    return client.post(url(job, "change"), data | CLOCK | given)


def errors_of(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200, response.status_code
    return dict(response.context["adminform"].form.errors)


def test_an_automation_is_made_with_its_clock(staff: Client, person: Person) -> None:
    session = person.session()
    response = staff.post(reverse("admin:automations_cronjob_add"), job_data(session=session.pk))
    assert response.status_code == 302
    job = CronJob.objects.get()
    assert (job.name, job.session_id, job.source) == ("look at the repo", session.pk, "manual")
    assert JobClock.objects.get(job=job).next_run_at is not None


BAD_JOBS: list[tuple[dict[str, Any], str, str]] = [
    ({"cron": "61 * * * *"}, "cron", "61"),
    ({"schedule_kind": "every", "cron": ""}, "seconds", "whole number"),
    ({"schedule_kind": "at", "cron": "", "once_at": "soon"}, "once_at", "time such as"),
    ({"seconds": "60"}, "seconds", "Exactly one schedule"),
    ({"schedule_kind": "every", "cron": "", "seconds": "60", "once_at": "x"}, "once_at", "Exactly one"),
    ({"schedule_kind": "moon"}, "schedule_kind", "valid choice"),
    ({"message": " "}, "message", "required"),
    ({"timeout_seconds": "99999999"}, "timeout_seconds", "14400"),
]


@pytest.mark.parametrize("page", ["add", pytest.param("change", marks=pytest.mark.full)])
def test_a_bad_automation_shows_its_reason_and_stores_nothing(
    staff: Client, person: Person, page: str
) -> None:
    session = person.session()
    job = make_job(session)
    before = CronJob.objects.values().get()
    for given, field, reason in BAD_JOBS:
        if page == "add":
            answer = staff.post(url(job, "add"), job_data(session=session.pk, **given))
        else:
            answer = edit(staff, job, **given)
        assert reason in " ".join(errors_of(answer)[field]), given
        assert CronJob.objects.values().get() == before


def test_an_automation_without_a_session_is_refused(staff: Client, person: Person) -> None:
    address = reverse("admin:automations_cronjob_add")
    for session in ("", "nonsense", "00000000-0000-4000-8000-000000000000"):
        assert list(errors_of(staff.post(address, job_data(session=session)))) == ["session"]
        assert staff.get(address, {"session": session}).status_code == 200
    closed = person.session()
    Session.objects.filter(pk=closed.pk).update(state="archived")
    assert "archived" in str(errors_of(staff.post(address, job_data(session=closed.pk))))
    assert not CronJob.objects.exists()


def test_an_edit_of_the_revision_that_was_read_moves_the_clock(staff: Client, person: Person) -> None:
    job = make_job(person.session())
    before = JobClock.objects.get(job=job).next_run_at
    assert edit(staff, job).status_code == 302
    assert CronJob.objects.get(pk=job.pk).revision == job.revision, "nothing was changed"
    given = {"schedule_kind": "every", "seconds": "7", "last_at": "2036-01-01T00:00:00Z"}
    assert edit(staff, job, **given).status_code == 302
    changed = CronJob.objects.get(pk=job.pk)
    assert (changed.schedule_kind, changed.every_seconds, changed.expr) == ("every", 7, "")
    assert changed.revision == job.revision + 1
    assert changed.ends_at == datetime(2036, 1, 1, tzinfo=UTC)
    rule = {"schedule_kind": "rrule", "rule": "FREQ=YEARLY", "starts_at": "2026-12-01T09:00", "cron": ""}
    revision = {"seen_revision": changed.revision}
    assert edit(staff, job, **rule, except_on="2026-12-24", last_at="", **revision).status_code == 302
    changed = CronJob.objects.get(pk=job.pk)
    assert (changed.expr, changed.except_dates) == ("FREQ=YEARLY", [date(2026, 12, 24)])
    assert changed.anchor == datetime(2026, 12, 1, 9, tzinfo=UTC)
    assert JobClock.objects.get(job=job).next_run_at != before
    assert "changed by somebody else" in str(errors_of(edit(staff, job, message="second")))
    assert CronJob.objects.get(pk=job.pk).message == job.message


def test_an_edit_cannot_change_session_legacy_fields_or_clock(staff: Client, person: Person) -> None:
    job, other = make_job(person.session()), person.session()
    clock = {
        "clock-TOTAL_FORMS": "1", "clock-INITIAL_FORMS": "1", "clock-0-job": job.pk,
        "clock-0-next_run_at_0": "2020-01-01", "clock-0-next_run_at_1": "00:00:00", "clock-0-inline": "on",
    }  # fmt: skip
    before = JobClock.objects.filter(job=job).values().get()
    foreign = {"session": str(other.pk), "channel": "telegram", "to": "x", "session_key": "y"}
    edit(staff, job, **foreign, kind="system_event", **clock)
    stored = CronJob.objects.get(pk=job.pk)
    assert (stored.session_id, stored.channel, stored.to, stored.session_key) == (job.session_id, "", "", "")
    assert stored.kind == "agent_turn"
    assert JobClock.objects.filter(job=job).values().get() == before


def pause_and_resume(staff: Client, job: CronJob) -> None:
    for action, enabled in (("pause", False), ("resume", True)):
        act(staff, action, job)
        assert CronJob.objects.get(pk=job.pk).enabled is enabled
        assert (JobClock.objects.get(pk=job.pk).next_run_at is not None) is enabled
    assert not RunRecord.objects.filter(state="queued").exists()


def test_jobs_are_paused_and_resumed_and_only_those_of_people_edited(
    staff: Client, rows: dict[str, Any]
) -> None:
    job = rows["cronjob"]
    pause_and_resume(staff, job)
    CronJob.objects.filter(pk=job.pk).update(kind="system_event", system_event="dream", session=None)
    assert shown(staff, job)
    assert edit(staff, job, message="other").status_code == 403
    assert staff.post(url(job, "delete"), {"confirmed": "yes"}).status_code == 403
    act(staff, "delete_selected", job, confirmed="yes")
    stored = CronJob.objects.get(pk=job.pk)
    assert (stored.message, stored.enabled) == (job.message, True)
    pause_and_resume(staff, job)
    legacy = {"deliver": True, "channel": "telegram", "to": "42", "session_key": "telegram:42"}
    CronJob.objects.filter(pk=job.pk).update(kind="agent_turn", system_event="", **legacy)
    assert "telegram:42" in shown(staff, job)
    assert edit(staff, job, message="other").status_code == 403
    pause_and_resume(staff, job)
    assert staff.post(url(job, "delete"), {"confirmed": "yes"}).status_code == 302
    assert not CronJob.objects.filter(pk=job.pk).exists()


def test_routines_are_listed_paused_and_resumed_within_the_agents_limit(
    staff: Client, person: Person
) -> None:
    home, agents = person.session(), Agent.objects.filter(pk=person.agent.pk)
    job = add(person, schedule="1h", description="Drink.", session_id=home.pk)
    listed, page = shown(staff, job, "changelist"), shown(staff, job)
    assert all(words in listed for words in ("Water", "routine"))
    assert all(words in page for words in (str(home), "Drink."))
    assert 'name="message"' not in page  # nothing to edit here
    act(staff, "pause", job)
    agents.update(routine_limit=0)
    assert "the agent may have at most 0 enabled routines" in act(staff, "resume", job).content.decode()
    assert not CronJob.objects.get(pk=job.pk).enabled
    agents.update(routine_limit=1)
    act(staff, "resume", job)
    assert CronJob.objects.get(pk=job.pk).enabled


def test_a_waiting_turn_is_cancelled_and_a_running_one_asked(staff: Client, person: Person) -> None:
    session = person.session()
    states = (TurnState.QUEUED, TurnState.RUNNING, TurnState.SUCCEEDED)
    turns = [make_turn(session, state) for state in states]
    page = act(staff, "cancel", *turns).content.decode()
    for turn in turns:
        turn.refresh_from_db()
    waiting, running, ended = turns
    assert (waiting.state, running.state, ended.state) == ("cancelled", "running", "succeeded")
    assert running.cancel_requested_at is not None
    assert f"Turn {waiting.pk} was cancelled" in page
    assert f"Turn {running.pk} was asked to end" in page
    assert "has already ended (succeeded)" in page


@pytest.mark.rule("11.2")
def test_failed_runs_are_tried_again(staff: Client, person: Person) -> None:
    session = person.session()
    job = make_job(session)
    failed = past_run(job, 2, RunState.FAILED, "model_auth", turn=make_turn(session))
    done = past_run(job, 1, RunState.SUCCEEDED)
    act(staff, "try_again", failed, done)
    states = RunRecord.objects.order_by("scheduled_for").values_list("state", "attempt")
    assert list(states) == [(RunState.QUEUED, 2), (RunState.SUCCEEDED, 1)]


def test_an_agent_is_made_with_its_primary_session(staff: Client, person: Person) -> None:
    data = agent_form(person.agent, owner=person.user.pk, name="second", model="", timezone="Europe/Berlin")
    address = reverse("admin:sessions_app_agent_add")
    assert staff.post(address, data).status_code == 302
    assert Session.objects.filter(agent__name="second", key=PRIMARY_KEY).exists()
    assert Agent.objects.get(name="second").effective_model == "offline"
    assert errors_of(staff.post(address, data))
    for wrong in (
        {"timezone": "Mars/Base"},
        {"policy": "[1]"},
        {"policy": '{"a\\u0000": 1}'},
        {"heartbeat": '"x"'},
        {"heartbeat": '{"active_hours": "\\u0000"}'},
        {"model": "no such"},
    ):
        assert list(errors_of(staff.post(address, data | {"name": "third"} | wrong))) == list(wrong)
    assert Agent.objects.count() == 2


@pytest.mark.rule("10.0")
def test_json_beyond_the_limits_is_an_error_of_its_field(staff: Client, person: Person) -> None:
    for given, words in (
        ("[" * 5_000 + "]" * 5_000, f"nested more than {DEEPEST} levels deep"),
        ("{", "not valid JSON"),
    ):
        for name in ("policy", "heartbeat", "mcp_servers"):
            answer = staff.post(url(person.agent, "change"), agent_form(person.agent, **{name: given}))
            assert words in " ".join(errors_of(answer)[name]), (name, words)
    assert Agent.objects.get(pk=person.agent.pk).revision == person.agent.revision


def test_an_agent_is_changed_over_the_revision_that_was_read(staff: Client, person: Person) -> None:
    agent, secret = person.agent, "secret-of-the-server-4711"
    docs = {"url": f"https://docs.example.org/mcp?key={secret}&v=2", "headers": {"Authorization": secret}}
    agent.mcp_servers, agent.policy = {"docs": docs}, {"max_attempts": 2, "max_tool_calls": 5}
    agent.save()
    page = unescape(shown(staff, agent))
    assert "https://docs.example.org/mcp?key=***&v=***" in page
    assert secret not in page
    hidden = {"url": "https://docs.example.org/mcp?key=***&v=***", "headers": {"Authorization": "***"}}
    servers = {"docs": hidden | {"trusted": True}}
    given = {"timezone": "Europe/Berlin", "policy": '{"max_attempts": 1}', "mcp_servers": json.dumps(servers)}
    data = agent_form(agent, **given)
    assert staff.post(url(agent, "change"), data).status_code == 302
    stored = Agent.objects.get(pk=agent.pk)
    assert (stored.timezone, stored.policy) == ("Europe/Berlin", {"max_attempts": 1}), "a key can be removed"
    assert stored.mcp_servers == {"docs": docs | {"trusted": True, "own": False}}
    assert secret not in str(list(LogEntry.objects.values()))
    assert stored.revision == agent.revision + 1
    late = staff.post(url(agent, "change"), data | {"timezone": "UTC"})
    assert "changed by somebody else" in str(errors_of(late))
    moved = json.dumps({"docs": hidden | {"url": "https://evil.example.org/mcp?key=***&v=***"}})
    refused = staff.post(url(agent, "change"), agent_form(stored, mcp_servers=moved))
    assert "must be given whole" in str(errors_of(refused)["mcp_servers"])
    assert staff.post(url(agent, "change"), agent_form(stored)).status_code == 302
    assert Agent.objects.get(pk=agent.pk).mcp_servers == {}, "one that is left out is removed"


def test_a_document_is_written_over_the_revision_that_was_read(staff: Client, person: Person) -> None:
    address = reverse("admin:sessions_app_document_add")
    data = {"agent": person.agent.pk, "name": "USER.md", "content": "one"}
    assert staff.post(address, data).status_code == 302
    assert errors_of(staff.post(address, data))
    for name in ("OTHER.md", "user.md", "", "../USER.md"):
        assert list(errors_of(staff.post(address, data | {"name": name}))) == ["name"]
    document = Document.objects.get()
    change = {"content": "two", "seen_revision": document.revision}
    assert staff.post(url(document, "change"), change).status_code == 302
    late = staff.post(url(document, "change"), change | {"content": "three"})
    assert "somebody else" in str(errors_of(late))
    stored = Document.objects.get()
    assert (stored.content, stored.revision) == ("two", document.revision + 1)


def test_a_session_is_opened_by_the_verb(staff: Client, person: Person) -> None:
    address = reverse("admin:sessions_app_session_add")
    data = {"agent": person.agent.pk, "key": "", "channel": "web", "chat_type": "private", "title": "New"}
    response = staff.post(address, data)
    assert response.status_code == 302
    assert staff.get(response["Location"]).status_code == 200
    session = Session.objects.get(title="New")
    assert session.owner == person.user
    assert session.key.startswith("web:")
    for title in ("a\nb", "a\x1bb"):
        assert "line break" in str(errors_of(staff.post(address, data | {"title": title}))["title"])
        changed = staff.post(url(session, "change"), {"title": title})
        assert "line break" in str(errors_of(changed)["title"])
    assert Session.objects.get(pk=session.pk).title == "New"
    assert "reserved" in str(errors_of(staff.post(address, data | {"key": "job:1"}))["key"])
    assert "already" in str(errors_of(staff.post(address, data | {"key": session.key})))


def test_staff_archive_conversations_and_open_them_again(staff: Client, person: Person) -> None:
    session = person.session()
    primary = Session.objects.get(agent=person.agent, key=PRIMARY_KEY)
    for action, state in (("archive", "archived"), ("unarchive", "open")):
        answer = act(staff, action, session, primary).content.decode()
        assert "cannot be archived" in answer
        session.refresh_from_db()
        primary.refresh_from_db()
        assert (session.state, primary.state) == (state, "open")
