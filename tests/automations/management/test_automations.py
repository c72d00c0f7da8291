"""`manage.py automations`: list, add with a preview, change, explain, runs; `manage.py routine`: one JSON object, exit
0 or 1; `manage.py spending` and `manage.py agent`."""

import io
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models.functions import Now

from automations.models import CronJob, RunRecord, RunState
from sessions_app.connections.edit import add_connection
from sessions_app.models import Agent, Session, UserLimits
from tests.admin.conftest import make_turn
from tests.automations.jobs.made import new, past_run
from tests.conftest import Person, new_person

DAY = r"  \w{3} \d{4}-\d\d-\d\d 09:00:00 C"


def told(command: str, *arguments: str) -> str:
    out = io.StringIO()
    call_command(command, *arguments, stdout=out)
    return out.getvalue()


automations, spending = partial(told, "automations"), partial(told, "spending")


def refused(*arguments: str, by: Callable[..., object] = automations) -> str:
    with pytest.raises(CommandError) as error:
        by(*arguments)
    return str(error.value)


def test_adding_shows_the_next_five_runs(person: Person) -> None:
    shown = automations("add", "Sum up the news", "--cron", "0 9 * * *", "--timezone", "Europe/Berlin")
    job: Any = CronJob.objects.get()
    lines = shown.splitlines()
    assert lines[0] == f"Added {job.pk}: Sum up the news"
    assert lines[1] == "Runs every day at 09:00 (Europe/Berlin):"
    assert len([line for line in lines if re.match(DAY, line)]) == 5
    assert job.session.key == "unified:default"
    assert (job.expr, job.timezone, job.source) == ("0 9 * * *", "Europe/Berlin", "manual")
    explained = automations("explain", job.pk)
    assert explained.startswith(f"{job.name}: every day at 09:00 (Europe/Berlin) (scheduled)\nNext run: ")
    assert len(re.findall(DAY, explained)) == 5


def test_a_preview_adds_nothing(person: Person) -> None:
    shown = automations("add", "Breathe", "--every", "300", "--preview")
    assert shown.startswith("Runs every 5 minutes:\n")
    assert len(shown.splitlines()) == 6
    assert not CronJob.objects.exists()


def test_one_run_at_a_time_in_a_session(session: Session) -> None:
    named = ("--session", str(session.pk), "--name", "Call")
    automations("add", "Call home", "--at", "2031-05-01T09:00", *named)
    job: Any = CronJob.objects.get()
    assert (job.session_id, job.name, job.at.isoformat()) == (session.pk, "Call", "2031-05-01T09:00:00+00:00")


def test_the_list_names_state_schedule_and_next_run(session: Session) -> None:
    assert automations() == "demo has no automations.\n"
    automations("add", "first", "--every", "3600")
    automations("add", "second\x1b[31m", "--cron", "30 8 * * 1-5", "--session", str(session.pk))
    CronJob.objects.filter(name="first").update(enabled=False)
    first, second = automations("list", "--agent", "ada/demo").splitlines()
    assert automations("--agent", "ada/demo").splitlines() == [first, second]
    assert re.match(r"\w+ +paused +first +every hour; next: -$", first)
    assert re.match(r"\w+ +scheduled +second.* on weekdays at 08:30 \(UTC\); next: .*08:30", second)
    assert "\x1b" not in second
    assert automations("list", "--session", str(session.pk)).splitlines() == [second]


@pytest.mark.rule("11.1")
def test_caps_are_added_and_listed_with_what_the_runs_cost(person: Person) -> None:
    given = {"run": {"tokens": 20000}, "day": {"usd": "1.5"}}
    shown = automations("add", "Breathe", "--every", "3600", "--limits", json.dumps(given))
    job = CronJob.objects.get()
    assert job.limits == {"run": {"tokens": 20000}, "day": {"usd": "1.50"}}
    assert "20,000 tokens a run, $1.50 a day" in shown
    assert "20,000 tokens a run, $1.50 a day" in automations()
    assert "--limits must be JSON" in refused("add", "x", "--every", "60", "--limits", "1 dollar")
    assert "no period" in refused("add", "x", "--every", "60", "--limits", '{"week": {}}')
    used = {"requests": 2, "usd": "0.020000"}
    ended = {"state": RunState.SUCCEEDED, "scheduled_for": Now(), "finished_at": Now()}
    RunRecord.objects.create(run_id="a", job=job, usage=used, **ended)
    assert "runs in 30 days: 1, $0.020000, $0.020000 a run" in automations()


@pytest.mark.rule("11.6", "11.7")
def test_an_update_changes_the_given_fields_and_null_clears_them(person: Person) -> None:
    url, limits = "https://example.org/news", '{"run": {"tokens": 9}, "day": {"usd": "0.50"}}'
    chosen = ["--watch", url, "--pointer", "/0", "--max-output-tokens", "100", "--tools", "current_time"]
    chosen += ["--model", "offline", "--fallback-model", "openai-chat:spare"]
    automations("add", "Breathe", "--every", "3600", "--limits", limits, *chosen)
    job = CronJob.objects.get()
    assert job.fallback_model == "openai-chat:spare"
    assert job.pk in refused("add", "Breathe", "--every", "3600"), "an equal one"
    for shown in (automations(), automations("explain", job.pk)):
        for part in (url, "max_output_tokens: 100", 'allow_tools: ["current_time"]', "model: offline"):
            assert part in shown
    changed = automations(
        "update", job.pk, "--name", "Rest", "--cron", "0 9 * * *", "--limits", '{"run": null}'
    )
    assert changed.startswith("Changed Rest.\nRest: every day at 09:00 (UTC)")
    job.refresh_from_db()
    assert (job.message, job.max_output_tokens, job.limits) == ("Breathe", 100, {"day": {"usd": "0.50"}})
    assert job.gate == {"kind": "http_changed", "url": url, "pointer": "/0"}
    unset = ("--watch", "null", "--max-output-tokens", "null", "--tools", "null", "--model", "")
    automations("update", job.pk, *unset, "--enabled", "false")
    job.refresh_from_db()
    assert (job.gate, job.max_output_tokens, job.allow_tools, job.model) == (None, None, None, "")
    assert (job.enabled, job.schedule_kind) == (False, "cron")
    assert "--pointer belongs to --watch" in refused("update", job.pk, "--pointer", "/0")
    assert "no such" in refused("update", "nothing", "--watch", "null")


@pytest.mark.rule("11.2", "11.3")
def test_runs_are_listed_by_what_they_need_and_tried_again(session: Session) -> None:
    job = new(session, name="news")
    empty = past_run(job, 1, RunState.SUCCEEDED, attention="empty", usage={"requests": 1, "usd": "0.010000"})
    failed = past_run(job, 2, RunState.FAILED, "model_auth", turn=make_turn(session))
    good = past_run(job, 3, RunState.SUCCEEDED)
    lines = automations("runs", "--agent", "demo").splitlines()
    assert [line.split()[0] for line in lines] == [empty.pk, failed.pk, good.pk]
    [line] = automations("runs", "--attention", "empty").splitlines()
    assert (line.split()[0], line.split()[-1]) == (empty.pk, "$0.010000")
    assert "no such runs" in automations("runs", "--attention", "undelivered", "--state", "succeeded")
    assert "has not failed" in refused("retry", job.pk), "its last run"
    assert "attempt 2" in automations("retry", failed.pk)
    assert refused("retry", failed.pk)
    assert "no such run" in refused("retry", f"{job.pk}:9")
    new_person("bob")
    assert "no such runs" in automations("runs", "--agent", "bob/demo")


@pytest.mark.rule("11.1")
def test_caps_and_prices_are_shown_and_set(person: Person) -> None:
    user = person.user
    mine = add_connection(user, "work", {"provider": "openai-chat", "secret": "key-of-a-test"})
    servers = add_connection(None, "work", {"provider": "openai-chat", "secret": "key-of-a-test"})
    make_turn(Session.objects.get(key="unified:default"), model="work:m", usage={"requests": 1, "usd": "0.5"})
    limits = ("--limits", '{"day": {"usd": "1.5"}, "run": {"tokens": 9}}')
    for which, row in (
        ((), person.agent),
        (("--user", "ada"), None),
        (("--connection", "work", "--user", "ada"), mine),
        (("--connection", "work"), servers),
    ):
        assert "no caps" in spending(*which)
        assert "$0.00 of $1.50 a day spent" in spending(*which, *limits)
        assert "1 call, " in spending(*which)
        assert "9 tokens a run" not in spending(*which, "--limits", '{"run": null}')
        stored = UserLimits.objects.get(pk=user.pk) if row is None else type(row).objects.get(pk=row.pk)
        assert stored.limits == {"day": {"usd": "1.50"}}
    assert "  work:m: 1 call, " in spending("--user", "ada", "--by", "model")
    priced = ("--prices", '{"m": {"input": "1", "output": "8"}}')
    assert '"output": "8"' in spending("--connection", "work", "--user", "ada", *priced)
    mine.refresh_from_db()
    servers.refresh_from_db()
    assert (mine.prices.keys(), servers.prices) == ({"m"}, {})
    for which, text in (
        (("--user", "ada", *priced), "--prices belongs to --connection"),
        (("--agent", "demo", "--user", "ada"), "given alone"),
        (("--limits", "free"), "must be JSON"),
        (("--limits", '{"day": {"usd": "free"}}'), "usd"),
        (("--user", "nobody"), "no user"),
        (("--connection", "nothing"), "no connection"),
    ):
        assert text in refused(*which, by=spending), which


def agent(*arguments: str) -> Any:
    return json.loads(told("agent", *arguments))


@pytest.mark.rule("3.5", "5.1", "11.1")
def test_an_agents_heartbeat_servers_and_caps_are_shown_and_set(person: Person) -> None:
    server = {"url": "https://example.org/mcp", "headers": {"X-Key": "secret"}, "own": True}
    given = {
        "heartbeat": {"enabled": True},
        "mcp_servers": {"notes": server},
        "limits": {"day": {"tokens": 9}},
    }
    changed = agent("--set", json.dumps(given))
    assert changed == agent("--agent", "ada/demo")
    notes = changed["mcp_servers"]["notes"]
    assert (notes["own"], notes["trusted"], notes["headers"]) == (True, False, {"X-Key": "***"})
    assert (changed["heartbeat"]["enabled"], changed["limits"]["day"]["spent"]["tokens"]) == (True, 0)
    again = agent("--set", json.dumps({"mcp_servers": {"notes": notes | {"own": False}}}))
    assert again["mcp_servers"]["notes"]["own"] is False
    assert Agent.objects.get().mcp_servers["notes"]["headers"] == {"X-Key": "secret"}
    for bad in ("on", "[]", '{"heartbeat": true}', '{"heartbeat": {"enabled": 1}}', '{"owner": "bob"}'):
        refused("--set", bad, by=agent)


def test_a_rule_and_its_days_are_given_and_changed(session: Session) -> None:
    given = (
        "--rule",
        "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO",
        "--starts-at",
        "2026-11-30T09:00",
        "--except",
        "2026-12-28",
    )
    shown = automations("add", "Look back", *given, "--except-holidays", "DE")
    words = "every two weeks on Monday at 09:00 except on public holidays in Germany and on 28 Dec 2026 (UTC)"
    assert shown.splitlines()[1] == f"Runs {words}:"
    job = CronJob.objects.get()
    assert automations("update", job.pk, *given[:4]).splitlines()[0] == "Changed Look back."
    job.refresh_from_db()
    assert (job.schedule_kind, job.except_dates, job.except_holidays) == ("rrule", None, "")


REFUSED: list[tuple[tuple[str, ...], str]] = [
    (("--cron", "0 9 * * *", "--timezone", "Mars/Olympus"), "Mars/Olympus"),
    (("--every", "60", "--timezone", "UTC"), "--timezone belongs to --cron"),
    (("--every", "60", "--except", "2026-12-24"), "--except belongs to --cron or --rule"),
    (("--every", "60", "--starts-at", "2026-12-24T09:00"), "--starts-at belongs to --rule"),
    (("--rule", "FREQ=DAILY"), "`starts_at` must be a local time"),
    (("--at", "2001-01-01T09:00"), "has passed"),
    (("--every", "60", "--at", "2031-01-01T09:00"), "not allowed with"),
    ((), "required"),
    (("--every", "60", "--session", "no-such"), "no session 'no-such'"),
    (("--every", "60", "--agent", "nobody"), "no agent 'nobody'"),
]


def test_what_is_refused_stores_nothing(person: Person) -> None:
    for arguments, text in REFUSED:
        for more in ((), ("--preview",)):
            assert text.lower() in refused("add", "hello", *more, *arguments).lower(), arguments
    assert not CronJob.objects.exists()


def test_other_refusals_are_sentences(person: Person) -> None:
    assert "no such" in refused("explain", "nothing")
    assert "no such" in refused("explain", "\0")
    assert refused("add", "", "--every", "60")
    new_person("bob")
    assert "several agents; name one with --agent" in refused("list")
    assert automations("--agent", "bob/demo", "list")


def routine(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The command in this process: its answer, after a look at its exit code."""
    code = 0
    try:
        call_command("routine", *arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is (code == 0)
    assert code in {0, 1}
    return answer


@pytest.mark.rule("6.4", "6.5")
def test_add_list_update_and_remove(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    added = routine(
        capsys,
        *("add", "--agent", "demo", "--title", "每日摘要", "--description", "汇总", "--schedule", "1d"),
        *("--execution-mode", "isolated", "--timezone", "Asia/Shanghai", "--source", "import"),
        *("--timeout-seconds", "120", "--next-run-at", "2031-01-01T09:00"),
    )["routine"]
    assert (added["title"], added["execution_mode"], added["source"]) == ("每日摘要", "isolated", "import")
    assert (added["schedule"], added["timeout_seconds"]) == ("1d", 120)
    assert added["next_run_at"] == "2031-01-01T01:00:00+00:00"
    assert routine(capsys, "list", "--agent", "demo")["routines"] == [added]
    of = ("--agent", "demo", "--id", added["id"])
    changed = routine(capsys, "update", *of, "--schedule", "2h", "--enabled", "true")["routine"]
    assert (changed["schedule"], changed["enabled"], changed["title"]) == ("2h", True, "每日摘要")
    assert routine(capsys, "remove", "--agent", "demo", "--id", added["id"])["routine"]["enabled"] is False
    assert routine(capsys, "list", "--agent", "demo")["routines"] == []
    assert len(routine(capsys, "list", "--agent", "demo", "--include-disabled")["routines"]) == 1
    routine(capsys, "remove", "--agent", "demo", "--id", added["id"], "--hard")
    assert not CronJob.objects.exists()


@pytest.mark.rule("6.4", "6.5")
def test_refusals_have_a_code_and_a_sentence(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    agent = ("--agent", "demo")
    routine(capsys, "add", *agent, "--title", "Water", "--schedule", "1h")
    for arguments, code in [
        (("add", *agent, "--title", "water", "--schedule", "60m"), "duplicate_routine"),
        (("add", *agent, "--title", "x", "--schedule", "soon"), "bad_schedule"),
        (("add", "--agent", "nobody", "--title", "x"), "not_found"),
        (("update", *agent, "--id", "nope", "--title", "x"), "not_found"),
        (("remove", *agent, "--id", "nope"), "not_found"),
        (("add", *agent), "bad_call"),
    ]:
        error = routine(capsys, *arguments)["error"]
        assert (error["code"], bool(error["message"])) == (code, True), arguments
    assert routine(capsys, "add", *agent, "--title", "water", "--schedule", "1h", "--allow-duplicate")["ok"]


@pytest.mark.rule("11.1", "11.6")
def test_a_routine_gets_caps_and_a_gate(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    agent, gate = ("--agent", "demo"), {"kind": "http_changed", "url": "https://example.org/news"}
    limits = ("--limits", '{"day": {"usd": "1"}, "run": {"tokens": 9}}')
    added = routine(capsys, "add", *agent, "--title", "x", "--gate", json.dumps(gate), *limits)["routine"]
    day = added["limits"]["day"]
    assert (added["gate"]["url"], day["usd"], day["spent"]["tokens"]) == (gate["url"], "1.00", 0)
    assert added["health"]["failures_in_a_row"] == 0
    update = ("update", *agent, "--id", added["id"])
    assert routine(capsys, *update, "--limits", '{"run": null}')["routine"]["limits"].keys() == {"day"}
    for bad in ("free", '{"day": {"usd": "free"}}', "null"):
        assert routine(capsys, *update, "--limits", bad)["error"]["code"] == "bad_limits"
    assert routine(capsys, *update, "--policy", "null")["error"]["code"] == "bad_policy"
    assert routine(capsys, *update, "--title", "y")["routine"]["gate"] == added["gate"]
    assert routine(capsys, *update, "--gate", "null")["routine"]["gate"] is None


@pytest.mark.rule("6.4", "6.5")
def test_agents_of_one_name_are_named_with_users(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    new_person("bob")
    assert "ada/demo, bob/demo" in routine(capsys, "list", "--agent", "demo")["error"]["message"]
    added = routine(capsys, "add", "--agent", "bob/demo", "--title", "x", "--schedule", "1h")["routine"]
    assert CronJob.objects.get(pk=added["id"]).agent.owner.get_username() == "bob"
    of = ("--agent", "ada/demo", "--id", added["id"])
    assert routine(capsys, "remove", *of)["error"]["code"] == "not_found"
