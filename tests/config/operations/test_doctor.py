"""`manage.py doctor` and `status`: each fault is made for real, named, and comes with its cure (rules 4.6, 10.2)."""

import json
import os
import re
import subprocess
import sys
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import update_job
from automations.models import CronJob, JobClock, RunRecord
from config.env import all_queues
from config.installation import VERSION
from config.operations import checks
from config.operations import doctor as server
from config.operations.checks import Finding, connections_usable
from config.operations.status import read_status, status_lines
from config.web import address_in
from sessions_app.channels import base as channels
from sessions_app.channels.notify import Notify
from sessions_app.connections.edit import add_connection
from sessions_app.hooks.edit import NewHook, add_hook
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.models import (
    Connection,
    Delivery,
    Hook,
    OnBusy,
    Priority,
    Process,
    ProcessKind,
    Session,
    Turn,
    Worker,
)
from sessions_app.operations.processes import Presence
from sessions_app.queue.receive import MessageInput, receive
from tests.automations.jobs.made import HOURLY, new
from tests.automations.messages import due, later
from tests.conftest import Person
from tests.fleet import until
from tests.services import with_database
from tests.up import run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("4.6", "10.2")]


def a_worker(*, silent: int = 0, queues: tuple[str, ...] | None = None) -> Worker:
    read = list(queues or all_queues(django_settings.TURN_SHARDS))
    return Worker.objects.create(host="h", pid=1, shards=read, heartbeat_at=Now() - timedelta(seconds=silent))


def wrong(finding: Finding) -> str:
    """Its words; it must be a fault with a cure."""
    assert not finding.ok
    assert finding.cure
    assert "\n" not in finding.words
    return finding.words


def doctor(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command, as an operator runs it."""
    return run(sys.executable, "manage.py", "doctor", *arguments, env=os.environ | environ)


def found_by(*arguments: str, **environ: str) -> dict[str, Any]:
    """What the command finds, by check."""
    checks = json.loads(doctor("--json", *arguments, **environ).stdout)["checks"]
    return {each["name"]: each for each in checks}


@pytest.mark.long("the only proof that the command itself names problems")
def test_problems_are_shown_with_their_fix_and_exit_code_1(person: Person) -> None:
    done = doctor()
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("WRONG   workers"))
    assert "no worker is alive" in lines[at]
    assert lines[at + 1].strip() == "→ start `celery -A config worker`"
    assert lines[-1] == f"2 of {len(server.CHECKS)} checks found something wrong"


def test_a_model_without_a_key(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    person.agent.model = "openai-chat:keyless"
    person.agent.save()
    assert "openai-chat:keyless" in wrong(server.check_models())


@pytest.mark.full
def test_an_unreachable_database_and_broker_are_reported_once_without_waiting() -> None:
    away = "postgresql://nobody@127.0.0.1:1/none"
    found = found_by(DATABASE_URL=away, DATABASE_LOCK_URL=away)
    assert "does not answer" in found["database"]["detail"]
    assert found["workers"]["detail"] == "not checked"
    assert found["broker"]["state"] == "ok", found["broker"]
    assert "CELERY_BROKER_URL" in found_by(CELERY_BROKER_URL="redis://127.0.0.1:1/0")["broker"]["cure"]


def test_configuration_that_does_not_fit_together(settings: Any) -> None:
    assert server.check_configuration().ok
    settings.RONDO_HEARTBEAT_SECONDS = settings.RONDO_WORKER_LOST_SECONDS
    assert "RONDO_WORKER_LOST_SECONDS" in wrong(server.check_configuration())
    settings.DEBUG = True
    assert "DEBUG" in wrong(server.check_configuration())


def test_migrations_that_were_not_applied() -> None:
    assert server.check_migrations().ok
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM django_migrations WHERE app = 'automations' AND id ="
            " (SELECT max(id) FROM django_migrations WHERE app = 'automations') RETURNING *"
        )
        row = cursor.fetchone()
        try:
            assert f"automations.{row[2]}" in wrong(server.check_migrations())
        finally:
            cursor.execute("INSERT INTO django_migrations VALUES (%s, %s, %s, %s)", row)


def test_queues_without_readers_and_workers_of_another_fleet() -> None:
    assert "no worker" in wrong(checks.workers())
    a_worker(silent=3600)
    assert "no worker" in wrong(checks.workers())
    a_worker(queues=tuple(queue for queue in all_queues(8) if queue != "turns.3"))
    assert checks.workers().ok
    assert "no worker reads turns.3" in wrong(checks.queues_read())
    a_worker(queues=(*all_queues(8), "turns.8"))
    assert "TURN_SHARDS" in wrong(checks.queues_read())


def test_a_lock_connection_to_another_database(settings: Any) -> None:
    assert checks.lock_connection().ok
    settings.DATABASE_LOCK_URL = with_database(settings.DATABASE_LOCK_URL, "postgres")
    assert "another database" in wrong(checks.lock_connection())
    settings.DATABASE_LOCK_URL = "postgresql://nobody@127.0.0.1:1/none"
    assert "connecting failed" in wrong(checks.lock_connection())


def test_a_lock_connection_through_a_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)  # a pooler greets with an id of its own
    assert "pooler" in wrong(checks.lock_connection())


def test_turns_that_nobody_runs_and_turns_past_their_time(person: Person) -> None:
    ago = timedelta(minutes=30)
    gone, handed_back, long, fine = (
        receive(person.session().pk, MessageInput(content=text)) for text in ("gone", "back", "long", "fine")
    )
    running = {"state": "running", "started_at": Now() - ago, "claimed_at": Now() - ago}
    alive, lost = a_worker(), a_worker(silent=600)
    Turn.objects.filter(pk=gone.pk).update(**running, claim=uuid.uuid4(), worker=lost.pk)
    Turn.objects.filter(pk=handed_back.pk).update(**running)
    Turn.objects.filter(pk=long.pk).update(**running, claim=uuid.uuid4(), worker=alive.pk)
    patient = {"policy": {"timeout_seconds": 7200}}
    Turn.objects.filter(pk=fine.pk).update(**running, claim=uuid.uuid4(), worker=alive.pk, metadata=patient)
    assert f"{gone.pk}, {handed_back.pk};" in wrong(checks.stuck_turns())
    assert f"{gone.pk}, {long.pk};" in wrong(checks.overlong_turns())
    Turn.objects.filter(pk__in=[gone.pk, handed_back.pk, long.pk]).delete()
    assert checks.stuck_turns().ok
    assert checks.overlong_turns().ok


def test_turns_that_wait_in_idle_sessions(person: Person, settings: Any) -> None:
    idle, busy = person.session(), person.session()
    hello = MessageInput(content="hello", on_busy=OnBusy.ENQUEUE)
    waiting, _behind, running = (receive(session.pk, hello) for session in (idle, busy, busy))
    assert checks.waiting_turns().ok
    Turn.objects.update(queued_at=Now() - timedelta(minutes=5), due_at=Now() - timedelta(minutes=5))
    Turn.objects.filter(pk=running.pk).update(state="running", claim=uuid.uuid4())
    assert f": {waiting.pk};" in wrong(checks.waiting_turns())
    settings.RONDO_TURNS_PER_USER = 1
    assert checks.waiting_turns().ok, "it waits for the owner's running turn"
    settings.RONDO_TURNS_PER_USER = 2
    Turn.objects.filter(pk=waiting.pk).update(due_at=Now() + timedelta(hours=1))
    assert checks.waiting_turns().ok


def test_addresses_that_lost_their_sender(person: Person, settings: Any, telegram: None) -> None:
    settings.RONDO_NOTIFY = {"team": "json://127.0.0.1/"}
    channels.register(Notify())
    try:
        session = person.session(channel="notify", address="team")
        add_hook(NewHook(agent_id=person.agent.pk, name="CI", channel="notify", address="team"))
        assert checks.channels_served().ok
        settings.RONDO_NOTIFY = {"crew": "json://127.0.0.1/"}
        words = wrong(checks.channels_served())
        assert f"session {session.key}: no service is named 'team'; use one of RONDO_NOTIFY: crew" in words
        assert f"hook {Hook.objects.get().pk}: no service" in words
        Session.objects.filter(pk=session.pk).update(last_route={"channel": "web", "chat_id": "", "meta": {}})
        Hook.objects.update(enabled=False)
        assert checks.channels_served().ok, "nothing goes there any more"
        there = {"channel": "notify", "chat_id": "team", "meta": {}}
        Session.objects.filter(pk=session.pk).update(channel="web", last_route=there)
        assert "team" in wrong(checks.channels_served()), "a person wrote from there"
    finally:
        channels.unregister("notify")


def test_connections_that_do_not_work(person: Person, settings: Any) -> None:
    place = "https://models.example/v1"
    there = {"provider": "openai-chat", "base_url": place, "secret": "key-of-a-provider"}
    ours, theirs = add_connection(None, "work", there), add_connection(person.user, "own", there)
    assert connections_usable().ok
    Connection.objects.filter(pk=theirs.pk).update(last_error="The API key is wrong.")
    assert connections_usable().ok, "the owner is told"
    Connection.objects.filter(pk=ours.pk).update(last_error="The model provider rejected the request (401).")
    assert "work: The model provider rejected the request (401)" in wrong(connections_usable())
    Connection.objects.update(last_error="")
    settings.SECRET_KEY = "x" * 50
    assert "own of a user: the secret of the connection 'own' cannot be read" in wrong(connections_usable())
    assert "key-of-a-provider" not in connections_usable().words


def test_legacy_jobs_whose_channel_nobody_serves(person: Person, telegram: None) -> None:
    job = CronJob.objects.create(
        agent=person.agent, name="garden", message="water", schedule_kind="at", at="2099-01-01T00:00Z",
        deliver=True, channel="telegram", to="42",
    )  # fmt: skip
    assert checks.legacy_channels().ok
    channels.unregister("telegram")
    assert f"{job.pk}: the channel 'telegram' is not set up" in wrong(checks.legacy_channels())
    CronJob.objects.update(enabled=False)
    assert checks.legacy_channels().ok


def test_failed_or_waiting_deliveries_and_unserved_channels_are_reported(person: Person) -> None:
    session = person.session()
    Session.objects.filter(pk=session.pk).update(channel="pigeon", chat_id="1")
    assert "pigeon (1 sessions)" in wrong(checks.channels_served())
    Session.objects.filter(pk=session.pk).update(state="archived")
    assert checks.channels_served().ok
    assert checks.deliveries_sent().ok
    row = Delivery.objects.create(
        session=session, session_key="k", idempotency_key="k", channel="pigeon", address="a", state="failed",
        last_error="gone", tried_at=Now(),
    )  # fmt: skip
    assert f"failed: {row.pk};" in wrong(checks.deliveries_sent())
    Delivery.objects.update(state="pending", next_attempt_at=None, created_at=Now() - timedelta(minutes=5))
    assert "1 due and not sent" in wrong(checks.deliveries_sent()), "nobody ever tried it"
    Delivery.objects.update(next_attempt_at=Now() + timedelta(hours=1))
    behind = Delivery.objects.get()
    behind.pk, behind.idempotency_key, behind.next_attempt_at = None, "k2", None
    behind.save()
    Delivery.objects.update(created_at=Now() - timedelta(minutes=5))
    assert checks.deliveries_sent().ok, "one that waits behind another waits for no sender"


def test_a_transaction_that_is_open_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.oldest_transaction().ok
    monkeypatch.setattr(checks, "LONGEST_TRANSACTION", 0.0)
    other = psycopg.connect(django_settings.DATABASE_LOCK_URL, application_name="forgotten")
    other.execute("SELECT 1")
    pid = other.info.backend_pid
    words = wrong(checks.oldest_transaction())
    assert "forgotten, idle in transaction" in words
    assert f"SELECT pg_terminate_backend({pid})" in words
    connection.cursor().execute(f"SELECT pg_terminate_backend({pid})")  # the cure
    until(lambda: checks.oldest_transaction().ok)
    other.close()


def test_jobs_that_were_set_aside(person: Person) -> None:
    job = new(person.session())
    assert checks.jobs_set_aside().ok
    CronJob.objects.filter(pk=job.pk).update(enabled=False, fault="poisoned")
    assert job.pk in wrong(checks.jobs_set_aside())
    update_job(job.pk, {"enabled": True})  # the cure
    assert checks.jobs_set_aside().ok


@pytest.mark.rule("11.1")
def test_caps_of_shared_connections_that_are_used_up(person: Person) -> None:
    limits: dict[str, Any] = {"day": {"tokens": 0}, "month": {"tokens": 9}}
    Connection.objects.create(name="own", provider="ollama", owner=person.user, limits=limits)
    shared = Connection.objects.create(name="shared", provider="ollama", limits={"month": {"tokens": 9}})
    assert server.check_caps().ok
    Connection.objects.filter(pk=shared.pk).update(limits=limits)
    said = wrong(server.check_caps())
    assert "shared for a day" in said
    assert "month" not in said
    assert "own" not in said.replace("unknown", "")


def test_schedules_that_cannot_be_read_and_zones_that_are_gone(person: Person) -> None:
    unreadable, never, nowhere = (new(person.session()) for _ in range(3))
    assert checks.schedules().ok
    assert checks.time_zones().ok
    CronJob.objects.filter(pk=unreadable.pk).update(expr="every morning")
    CronJob.objects.filter(pk=never.pk).update(expr="0 0 31 2 *")
    CronJob.objects.filter(pk=nowhere.pk).update(timezone="Atlantis/Center")
    words = wrong(checks.schedules())
    assert "2 can never fire" in words
    assert unreadable.pk in words
    assert never.pk in words
    assert nowhere.pk not in words
    assert "Atlantis/Center" in wrong(checks.time_zones())


def test_only_unfinished_enabled_jobs_without_a_next_slot_are_reported(person: Person) -> None:
    lost = new(person.session())
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    done = new(person.session(), schedule={"kind": "at", "at": soon})
    ended = new(person.session(), max_runs=1)
    JobClock.objects.update(next_run_at=None)
    JobClock.objects.filter(pk=done.pk).update(last_slot=done.at)
    JobClock.objects.filter(pk=ended.pk).update(runs_started=1)
    words = wrong(checks.plans())
    assert f": {lost.pk};" in words
    update_job(lost.pk, {"enabled": False})
    update_job(lost.pk, {"enabled": True})  # the cure
    assert checks.plans().ok


def _mended(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    with suppress(SystemExit):  # no worker runs
        call_command("doctor", "--mend", "--json")
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_a_far_future_last_slot_is_reported_and_repaired(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    with_run, without, near = (new(person.session(), schedule=HOURLY) for _ in range(3))
    JobClock.objects.filter(pk=with_run.pk).update(next_run_at=Now() - timedelta(seconds=5))
    assert fire_due_jobs().claimed == 1
    runs = RunRecord.objects.filter(job=with_run)
    latest = max(run.slots_to or run.scheduled_for for run in runs)
    far, soon = datetime.now(UTC) + timedelta(days=400), datetime.now(UTC) + timedelta(hours=23)
    JobClock.objects.filter(pk__in=[with_run.pk, without.pk]).update(last_slot=far)
    JobClock.objects.filter(pk=near.pk).update(last_slot=soon)
    words = wrong(checks.last_slots())
    assert with_run.pk in words
    assert near.pk not in words
    assert "--mend" in words
    before = datetime.now(UTC)
    answer = _mended(capsys)
    assert len(answer["mended"]) == 2
    assert next(check for check in answer["checks"] if check["name"] == "last_slots")["state"] == "ok"
    slots = dict(JobClock.objects.values_list("pk", "last_slot"))
    assert slots[with_run.pk] == latest
    now = slots[without.pk]
    assert now is not None
    assert before <= now <= datetime.now(UTC)
    assert slots[near.pk] == soon
    assert _mended(capsys)["mended"] == []


def test_what_runs_and_waits_is_counted(person: Person) -> None:
    busy, idle = person.session(), person.session()
    worker = Worker.objects.create(host="h", pid=1, shards=["turns.0", "turns.any"])
    turn = receive(busy.pk, MessageInput(content="hello"))
    began = {"claimed_at": Now(), "started_at": Now()}
    Turn.objects.update(state="running", claim=uuid.uuid4(), worker=worker.pk, **began)
    new(idle, name="Hourly", schedule=HOURLY)
    deposit(idle.pk, NewUpdate(event_type="news", summary="a"))
    deposit(idle.pk, NewUpdate(event_type="news", summary="b", priority=Priority.URGENT))
    shown = read_status().to_json()
    [told] = shown["workers"]
    assert (told["alive"], told["turns"], len(told["queues"])) == (True, [turn.pk], 2)
    assert (shown["people"]["running"], shown["people"]["waiting"]) == (1, 0)
    assert (shown["agents"], shown["sessions"]) == (1, {"primary": 1, "sub": 2})
    assert (shown["next_job"]["name"], shown["due_jobs"], shown["due_messages"]) == ("Hourly", 0, 0)
    assert 3500 < shown["next_job"]["seconds"] <= 3600
    assert shown["mailbox"] == {"waiting": 2, "urgent": 1}


def test_one_screen_for_a_person(person: Person) -> None:
    assert status_lines(read_status())[:3] == ["web          none", "workers      none", "beats        none"]
    assert read_status().next_job is None
    session = person.session()
    receive(session.pk, MessageInput(content="hello"))
    Turn.objects.update(queued_at=Now() - timedelta(minutes=7))
    job = new(session, name="Late", schedule=HOURLY)
    JobClock.objects.update(next_run_at=Now() - timedelta(hours=3))
    for number in range(30):
        heard = Now() - timedelta(seconds=600 if number == 20 else 0)
        about = {"heartbeat_at": heard, "shards": ["turns.0", "turns.any"]}
        Worker.objects.create(host=f"h{number:02}", pid=number, **about)
    due(later(session), ago=60)
    lines = status_lines(read_status())
    assert len(lines) <= 24
    assert all(len(line) < 120 for line in lines)
    silent = r"workers {6}h20 pid 20: SILENT for 10 min, running 0, reads turns.0, turns.any"
    assert re.fullmatch(silent, lines[1])
    text = "\n".join(lines)
    assert "and 24 more" in text
    assert "beats        none" in text
    assert "people       1 waiting, the oldest for 7 min; 0 running" in text
    assert f"Late ({job.pk}) overdue for 3 h" in text
    assert "1 due" in text
    assert "messages     1 due" in text


@pytest.mark.full
def test_a_database_that_is_away_is_told_in_one_line() -> None:
    environ = os.environ | {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    done = run(sys.executable, "manage.py", "status", env=environ)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "manage.py doctor" in done.stderr.splitlines()[-1]


def report(name: str = "h:1", *, silent: float = 0, age: float = 0, **more: Any) -> Process:
    """A process as it reported itself."""
    host, _, pid = name.partition(":")
    seen, began = Now() - timedelta(seconds=silent), Now() - timedelta(seconds=age or silent)
    more = {"version": VERSION, "kind": "web"} | more
    return Process.objects.create(host=host, pid=pid, seen_at=seen, started_at=began, **more)


def test_processes_of_all_machines_are_shown_with_their_version() -> None:
    report("a:1", address="10.0.0.1:8000", age=300)
    report("b:2", silent=40, age=90, version="0.0.9")
    text = "\n".join(status_lines(read_status()))
    assert re.search(r"^web +b pid 2: SILENT for \d+ s, 0\.0\.9 for \d+ s$", text, re.MULTILINE)
    assert f"a pid 1: alive, {VERSION} for 5 min, 10.0.0.1:8000" in text


def test_a_silent_process_is_named_until_another_takes_its_place_and_several_versions_are() -> None:
    report("h:1", silent=40, age=90)
    report("h:2", age=60)  # it ran beside it
    report("other:3", age=20)
    report("h:4", age=20, kind="beat")
    assert "silent: web h:1 for 40 s" in wrong(checks.processes())
    report("h:5", age=20)
    assert checks.processes().state == "ok"
    assert "h pid 1:" not in "\n".join(status_lines(read_status()))
    report("b:2", kind="beat", version="0.0.9")
    found = checks.processes()
    assert (found.state, found.detail) == ("unknown", f"several versions run: 0.0.9, {VERSION}")


def test_a_process_without_a_word_for_a_day_is_forgotten_and_one_that_ended_never_comes_back() -> None:
    kept, _gone = report("h:1", silent=23 * 3600), report("h:2", silent=25 * 3600)
    presence = Presence(ProcessKind.BEAT)
    presence.start(own_id=uuid.uuid4())
    until(lambda: Process.objects.filter(kind="beat").exists())
    presence.stop()
    presence._report()  # one that was under way
    assert [each.pk for each in Process.objects.all()] == [kept.pk]


def test_the_database_refuses_a_process_that_cannot_be() -> None:
    for given in ({"kind": "clock"}, {"age": -60}):
        with pytest.raises(IntegrityError), transaction.atomic():
            report(**given)


def test_the_address_of_a_web_process() -> None:
    for arguments, address in (
        ("", "127.0.0.1:8000"),
        ("--host 0.0.0.0 --port=9000", "0.0.0.0:9000"),
        ("--host ::1 --workers 2", "[::1]:8000"),
        ("--uds /run/rondo", ""),
    ):
        assert address_in(arguments.split()) == address
