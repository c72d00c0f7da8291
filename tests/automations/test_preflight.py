"""Preflight: what will stop an automation is told before its slot, once, and no model is asked for it (rule 11.5)."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.connections import hooks
from automations import preflight, selectors
from automations.jobs.edit import PREFLIGHT, update_job
from automations.jobs.explain import explain, explain_facts, read_facts
from automations.models import CronJob, JobClock, JobPreflight
from automations.preflight import run_preflight
from automations.retention.zones import ZoneWalk
from automations.selectors import with_runs
from config.operations.doctor import CHECKS
from sessions_app.agents.edit import update_agent
from sessions_app.channels import base as channels
from sessions_app.connections.edit import add_connection, update_connection
from sessions_app.connections.usable import usable
from sessions_app.models import Agent, Connection, MailboxEvent, Session, Spending
from sessions_app.retention.maintenance_round import run_hinted_maintenance
from sessions_app.retention.walk import prune_batch
from sessions_app.spending.accounts import mark_stopped
from sessions_app.spending.caps import period_of
from tests.agent_core.tools.test_fetch import Site, site  # noqa: F401 - a fixture
from tests.automations.jobs.made import DAILY, EVERY, add, code_of, new
from tests.automations.schedules.zone_folder import ZoneFolder, zone_folder
from tests.conftest import Person
from tests.plugins import FileChannel

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("11.5")]

GONE = 'The model provider rejected the request (404: the model "gpt-5" does not exist)'


@dataclass(frozen=True, kw_only=True)
class Stage:
    """An automation with a slot within the hour, a provider that lists its models, a channel and a zone."""

    person: Person
    site: Site
    job: CronJob
    zones: ZoneFolder

    def list_models(self, *names: str, status: int = 200, body: str = "") -> None:
        rows = {"data": [{"id": name} for name in names]}
        self.site.page("/v1/models", body or json.dumps(rows), "application/json", status)
        self.site.page("/v1/models/gpt-5", "{}", "application/json", 200 if "alias" in names else 404)

    def check(self) -> list[str]:
        """A round of preflight, an hour after the last one: the codes of what it found."""
        JobPreflight.objects.update(checked_at=Now() - timedelta(hours=1))
        run_preflight(lambda: False)
        shown = selectors.automation(self.person.user, self.job.pk).health.preflight
        return [each["code"] for each in shown]


@pytest.fixture
def stage(
    person: Person,
    telegram: None,
    site: Site,  # noqa: F811 - a fixture
    settings: Any,
    tmp_path: Path,
) -> Iterator[Stage]:
    settings.RONDO_CONNECTION_HOSTS = ("127.0.0.1",)
    add_connection(
        person.user, "work", {"provider": "openai-chat", "base_url": f"{site.url}/v1", "secret": "key-4711"}
    )
    update_agent(person.agent.pk, {"model": "work:gpt-5"})
    session = person.session(key="telegram:42")
    with zone_folder(tmp_path / "zones") as zones:
        zones.write("Test/Moving", "AAA-1")
        job = new(session, message="Look.", schedule=EVERY)
        CronJob.objects.filter(pk=job.pk).update(timezone="Test/Moving")
        JobClock.objects.filter(pk=job.pk).update(next_run_at=Now() + timedelta(minutes=40))
        made = Stage(person=person, site=site, job=job, zones=zones)
        made.list_models("gpt-5", "other")
        yield made


def retire(stage: Stage, status: int = 200) -> Callable[[], object]:
    stage.list_models("other", status=status)
    return lambda: stage.list_models("gpt-5")


def close_channel(_stage: Stage) -> Callable[[], object]:
    channels.unregister(FileChannel.name)
    return lambda: channels.register(FileChannel())


def lose_zone(stage: Stage) -> Callable[[], object]:
    stage.zones.remove("Test/Moving")
    return lambda: stage.zones.write("Test/Moving", "AAA-1")


def use_up(stage: Stage, period: str = "day", spent: int = 500, **cap: Any) -> Callable[[], object]:
    """A cap of the agent of which this much is spent. By its clock the day does not end within some hours."""
    now = datetime.now(UTC)
    update_agent(
        stage.person.agent.pk,
        {
            "timezone": "UTC" if 2 < now.hour < 20 else "Etc/GMT-12",
            "limits": {period: cap or {"tokens": 500}},
        },
    )
    agent = Agent.objects.get(pk=stage.person.agent.pk)
    begin, ends_at = period_of(period, agent.timezone, now)
    if spent:
        row = {"spent_tokens": spent, "spent_micro_usd": spent, "ends_at": ends_at}
        Spending.objects.update_or_create(pk=f"agent:{agent.pk}:{period}:{begin}", defaults=row)
    return lambda: update_agent(agent.pk, {"limits": {period: None}})


@pytest.mark.parametrize(
    ("breaks", "code"),
    [
        (partial(use_up, tokens=9_000, spent=9_000), "budget"),
        (retire, "bad_model"),
        (partial(retire, status=401), "bad_model"),
        (partial(retire, status=402), "bad_model"),
        (close_channel, "bad_channel"),
        (lose_zone, "unknown_timezone"),
    ],
)
def test_what_will_stop_a_run_is_told_before_its_slot_and_once(
    stage: Stage, breaks: Callable[[Stage], Callable[[], object]], code: str
) -> None:
    """Complaint 11."""
    assert stage.check() == []
    assert CHECKS["preflight"]().ok
    mend = breaks(stage)
    assert stage.check() == [code]
    [problem] = selectors.automation(stage.person.user, stage.job.pk).health.preflight
    explained = explain(stage.person.user, stage.job.pk)
    if code == "budget":  # without what is left, which may change while it is told once
        assert "cap of the agent demo" in problem["text"]
        assert "cap of the agent demo" in explained.now
    else:
        assert explained.now.startswith(problem["text"])
    assert problem["text"] not in explained.warnings, "it is said once"
    finding = CHECKS["preflight"]()
    assert not finding.ok
    assert stage.job.pk in finding.detail
    assert stage.check() == [code]
    [mail] = MailboxEvent.objects.filter(event_type="preflight")
    assert problem["text"] in mail.summary + mail.detail
    mend()
    assert stage.check() == []
    assert not explain(stage.person.user, stage.job.pk).now.startswith(problem["text"])
    asked = [path for path in stage.site.asked if "models" not in path]
    assert asked == [], "nothing but lists of models is asked for"
    breaks(stage)
    stage.check()
    assert MailboxEvent.objects.filter(event_type="preflight").count() == 2, "it came back, which is news"


def test_a_cron_schedule_that_lost_its_zone_is_told_once_too(stage: Stage) -> None:
    cron = DAILY | {"timezone": "Test/Moving"}
    update_job(stage.job.pk, {"schedule": cron})
    stage.zones.remove("Test/Moving")
    for _ in range(3):
        prune_batch(ZoneWalk())
        stage.check()
    assert "Test/Moving" in explain(stage.person.user, stage.job.pk).now
    assert MailboxEvent.objects.count() == 1
    assert not CHECKS["jobs_set_aside"]().ok


@pytest.mark.parametrize(
    ("listed", "last_error", "found"),
    [
        ({"names": ["alias"]}, "", []),
        ({"status": 500}, "", []),
        ({"status": 404}, "", []),
        ({"status": 403}, "", []),
        ({"status": 401, "body": "Missing scopes: api.model.read"}, "", []),
        ({"body": "<html>"}, "", []),
        ({"body": "[" * 100_000}, "", []),
        ({"status": 500}, "The model provider cannot be reached (timed out)", []),
        ({"status": 500}, GONE, ["bad_model"]),
        ({"names": ["gpt-5"]}, GONE, []),
        (
            {"names": ["gpt-5"]},
            "The model provider rejected the request (402: the account's quota or credit is used up)",
            ["bad_model"],
        ),
    ],
)
def test_only_what_a_provider_says_for_sure_counts(
    stage: Stage, listed: dict[str, Any], last_error: str, found: list[str]
) -> None:
    Connection.objects.update(last_error=last_error)
    stage.list_models(*listed.pop("names", ()), **listed)
    assert stage.check() == found


def test_a_problem_stays_through_an_outage_and_is_not_told_again_after_it(stage: Stage) -> None:
    found = []
    for models, status in ((["other"], 200), ([], 503), (["other"], 200)):
        stage.list_models(*models, status=status)
        [code] = stage.check()
        found.append((code, "Before that" in explain(stage.person.user, stage.job.pk).now))
    assert found == [("bad_model", status == 503) for status in (200, 503, 200)]
    assert MailboxEvent.objects.filter(event_type="preflight").count() == 1
    stage.list_models("gpt-5")
    assert stage.check() == []


def test_a_refusal_is_gone_when_a_call_succeeds_and_is_told_anew_if_it_comes_back(stage: Stage) -> None:
    """Of a provider without a list of models, whoever made the call."""
    stage.list_models(status=404)
    known, denied = usable(Connection.objects.get()), GONE.replace("404: the model", "403: the key of")
    for told in (1, 2):
        hooks.report(known, denied)
        assert stage.check() == ["bad_model"]
        hooks.report(known, "The model provider failed (500).")
        assert JobPreflight.objects.filter(requested=True).exists()
        assert stage.check() == ["bad_model"]
        assert "Before that" in explain(stage.person.user, stage.job.pk).now, "an outage hides it"
        assert MailboxEvent.objects.filter(event_type="preflight").count() == told
        update_agent(stage.person.agent.pk, {"model": "offline"})
        assert explain(stage.person.user, stage.job.pk).now.startswith("Next run"), "of another model"
        update_agent(stage.person.agent.pk, {"model": "work:gpt-5"})
        hooks.report(known, "")
        run_hinted_maintenance(lambda: False, PREFLIGHT)
        assert explain(stage.person.user, stage.job.pk).now.startswith("Next run")


def test_what_is_mended_while_it_is_found_is_looked_at_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.list_models(status=404)
    known = usable(Connection.objects.get())
    hooks.report(known, GONE)

    def mends(_job: CronJob, _lists: Any) -> list[preflight.Problem]:
        hooks.report(known, "")
        return []

    monkeypatch.setattr(preflight, "CHECKS", [preflight._models, mends])
    stage.check()
    run_hinted_maintenance(lambda: False, PREFLIGHT)
    assert explain(stage.person.user, stage.job.pk).now.startswith("Next run")


def test_one_list_serves_all_automations_of_a_connection_and_one_mail_is_unread(stage: Stage) -> None:
    session = Session.objects.get(jobs=stage.job)
    for number in range(4):
        job = new(session, message=f"Look at {number}.", schedule=EVERY)
        JobClock.objects.filter(pk=job.pk).update(next_run_at=Now() + timedelta(minutes=40))
    stage.list_models(status=401)
    stage.check()
    assert JobPreflight.objects.exclude(problems=[]).count() == 5
    assert len(stage.site.asked) == 1
    unread = MailboxEvent.objects.get(event_type="preflight", dropped_at=None)
    assert unread.detail.count("Look at") == 4, "it names all that it stops"


def test_a_saved_automation_is_checked_soon_and_others_once_in_the_hour_before_their_slot(
    stage: Stage,
) -> None:
    run_hinted_maintenance(lambda: False, PREFLIGHT)
    asked = len(stage.site.asked)
    run_hinted_maintenance(lambda: False, PREFLIGHT)
    assert len(stage.site.asked) == asked, "not twice in an hour"
    JobClock.objects.update(next_run_at=Now() + timedelta(hours=2))
    stage.check()
    assert len(stage.site.asked) == asked, "not long before its slot"
    stage.list_models("other")
    update_job(stage.job.pk, {"timeout_seconds": 60})
    run_hinted_maintenance(lambda: False, PREFLIGHT)
    assert len(stage.site.asked) > asked
    assert MailboxEvent.objects.filter(event_type="preflight").exists()
    update_connection(Connection.objects.get().pk, {"secret": "renewed"})
    stage.list_models("gpt-5")
    assert stage.check() == [], "and what has a problem, until it is mended"


def test_a_routine_is_checked_too_and_told_in_its_home(stage: Stage) -> None:
    routine = add(stage.person, session_id=stage.job.session_id)
    CronJob.objects.filter(pk=stage.job.pk).update(enabled=False)
    JobClock.objects.filter(pk=routine.pk).update(next_run_at=Now() + timedelta(minutes=40))
    retire(stage)
    for _ in range(2):
        stage.check()
    [mail] = MailboxEvent.objects.filter(event_type="preflight")
    assert (mail.target_id, routine.pk in mail.detail) == (stage.job.session_id, True)
    [facts] = read_facts(list(with_runs(CronJob.objects.filter(pk=routine.pk))))
    assert "work:gpt-5" in explain_facts(facts).now
    assert routine.pk in CHECKS["preflight"]().detail


def test_a_second_problem_does_not_tell_the_first_one_again(stage: Stage) -> None:
    close_channel(stage)
    stage.check()
    lose_zone(stage)
    assert stage.check() == ["bad_channel", "unknown_timezone"]
    assert MailboxEvent.objects.filter(event_type="preflight").count() == 2


def test_what_was_found_of_a_job_that_was_changed_meanwhile_is_not_stored(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changes(job: CronJob, _lists: Any) -> list[preflight.Problem]:
        update_job(job.pk, {"name": "Else"})
        return [preflight.Problem("bad_model", "An old one.")]

    monkeypatch.setattr(preflight, "CHECKS", [changes])
    assert stage.check() == []
    assert JobPreflight.objects.get().requested, "it is checked again"


@pytest.mark.rule("10.0")
def test_an_inactive_owner_a_paused_automation_and_a_server_with_the_flag_off_are_not_checked(
    stage: Stage, settings: Any
) -> None:
    stage.list_models(status=401)
    users = type(stage.person.user).objects.filter(pk=stage.person.user.pk)
    users.update(is_active=False)
    assert stage.check() == []
    users.update(is_active=True)
    update_job(stage.job.pk, {"enabled": False})
    assert stage.check() == []
    update_job(stage.job.pk, {"enabled": True})
    settings.RONDO_PREFLIGHT = False
    assert stage.check() == []
    assert stage.site.asked == []


def test_tools_and_gates_that_are_gone_are_problems(stage: Stage) -> None:
    CronJob.objects.update(allow_tools=["current_time", "gone", "docs__search"], gate={"kind": "gone"})
    assert stage.check() == ["bad_allow_tools", "bad_gate"]
    [tools, _] = selectors.automation(stage.person.user, stage.job.pk).health.preflight
    assert "gone" in tools["text"]
    assert "current_time" not in tools["text"]
    assert code_of(lambda: update_job(stage.job.pk, {"allow_tools": ["gone2"]})) == "bad_allow_tools"


PRICED = {"gpt-5": {"input": "1.25", "output": "10"}}


@pytest.mark.parametrize(
    ("given", "prices", "found"),
    [
        ({"spent": 499}, {}, []),
        ({"spent": 0, "tokens": 0}, {}, ["budget"]),
        ({"period": "month", "spent": 700}, {}, ["budget"]),
        ({"usd": "0.0005"}, PRICED, ["budget"]),
        ({"usd": "0.0005"}, {"*": {"input": "0", "output": "0"}}, []),
        ({"usd": "0.0005", "tokens": 500}, {"*": {"input": "0", "output": "0"}}, ["budget"]),
    ],
)
def test_a_cap_is_a_problem_if_nothing_is_left_for_the_automations_model(
    stage: Stage, given: dict[str, Any], prices: dict[str, Any], found: list[str]
) -> None:
    Connection.objects.update(prices=prices)
    use_up(stage, **given)
    assert stage.check() == found


def test_a_cap_that_begins_anew_before_the_next_slot_is_no_problem(stage: Stage) -> None:
    use_up(stage)
    assert stage.check() == ["budget"]
    JobClock.objects.update(next_run_at=Now() + timedelta(days=1))
    assert stage.check() == []


def test_a_cap_that_refused_the_last_call_is_a_problem_though_something_is_left(stage: Stage) -> None:
    use_up(stage, spent=400)
    Spending.objects.update(told=100)
    assert stage.check() == [], "another call was refused, and this one may be smaller"
    ends_at: Any = Spending.objects.get().ends_at
    mark_stopped(stage.person.agent.pk, [stage.job.pk], ends_at.isoformat())
    assert stage.check() == ["budget"]
    assert "used up" not in explain(stage.person.user, stage.job.pk).now
    update_agent(stage.person.agent.pk, {"limits": {"day": {"tokens": 9000}}})
    assert JobPreflight.objects.get().requested, "it may be free again"
