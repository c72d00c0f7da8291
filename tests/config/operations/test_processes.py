"""What each process tells of itself, and what `status` and `doctor` make of it, from any terminal (rule 10.2)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from config import env
from config.installation import VERSION
from config.operations import facts, fleet_checks
from config.operations.fleet import read_fleet
from config.operations.status import read_status
from config.operations.status_text import status_lines
from config.web import address_in
from sessions_app.models import Process, ProcessKind, Worker
from sessions_app.operations.doctor import Finding
from sessions_app.operations.processes import Presence
from tests.api.conftest import start_web
from tests.fleet import Fleet, until
from tests.up import ROOT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.2")]

MARK = "hidden-from-all"


def report(
    name: str = "h:1", *, kind: str = "web", silent: float = 0, age: float = 0, **more: Any
) -> Process:
    """A process as it reported itself."""
    host, _, pid = name.partition(":")
    more = {"version": VERSION, "lost_after": 15, "settings": {}, "fingerprints": {}} | more
    seen, began = Now() - timedelta(seconds=silent), Now() - timedelta(seconds=age or silent)
    return Process.objects.create(host=host, pid=pid, kind=kind, seen_at=seen, started_at=began, **more)


def command(name: str, **environ: str) -> dict[str, Any]:
    """What `status` or `doctor` prints in another terminal."""
    done = subprocess.run(
        [sys.executable, "manage.py", name, "--json"], cwd=ROOT, env=os.environ | environ,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.full
@pytest.mark.processes
def test_another_terminal_is_told_of_the_processes_and_not_of_itself(fleet: Fleet) -> None:
    theirs = {"RONDO_DOORS": "mcp", "RONDO_SCHEDULER_CRON_JOBS": "0", "RONDO_WORKER_LOST_SECONDS": "20"}
    fleet.environ |= theirs
    fleet.worker()
    fleet.beat()
    url, web = start_web(fleet.folder, **theirs)
    fleet.processes.append(web)
    until(lambda: Process.objects.count() == 3)
    mine = {
        "RONDO_DOORS": "openai",
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
        "RONDO_WORKER_LOST_SECONDS": "0.1",
    }
    told = command("status", **mine)
    known = {each["kind"]: each for each in told["processes"]}
    assert set(known) == {"web", "worker", "beat"}
    assert known["worker"]["id"] == str(Worker.objects.get().pk) == told["workers"][0]["id"]
    assert f"http://{known['web']['address']}" == url
    for each in known.values():
        assert (each["version"], each["alive"], each["settings"]["RONDO_DOORS"]) == (VERSION, True, "mcp")
        assert each["settings"]["CELERY_BROKER_URL"].startswith("redis://127.0.0.1:")
    assert told["workers"][0]["alive"]
    assert told["flags"]["scheduler.cron_jobs"] is False
    checked = {each["name"]: each for each in command("doctor", **mine)["checks"]}
    for name in ("broker", "lock_connection", "workers", "processes", "versions"):
        assert checked[name]["state"] == "ok", checked[name]
    assert "CELERY_BROKER_URL" in checked["fleet_settings"]["detail"].partition("this terminal has")[2]
    for process in fleet.processes:
        process.stop()
    assert not Process.objects.exists()


def test_one_process_replaces_one() -> None:
    report("h:1", silent=40, age=90)
    report("h:2", silent=30, age=90)
    report("h:3", age=20)
    report("h:4", age=60)  # it ran beside them
    report("other:5", age=20)
    report("h:6", age=20, kind="beat")
    assert [each.pid for each in read_fleet().silent] == [1]
    assert not fleet_checks.processes().ok
    lines = "\n".join(status_lines(read_status()))
    assert re.search(r"^web +h pid 1: SILENT for \d+ s, ", lines, re.MULTILINE)
    report("h:7", age=20)
    assert fleet_checks.processes().ok


def test_a_process_without_a_word_for_a_day_is_forgotten() -> None:
    kept, gone = report("h:1", silent=23 * 3600), report("h:2", silent=25 * 3600)
    presence = Presence(ProcessKind.BEAT)
    presence.start()
    until(lambda: Process.objects.filter(kind="beat").exists())
    presence.stop()
    assert [each.pk for each in Process.objects.all()] == [kept.pk]
    assert gone.pk != kept.pk
    assert not Process.objects.filter(kind="beat").exists()


def test_several_versions_and_settings_are_named() -> None:
    report("a:1", settings={"TURN_SHARDS": "8", "RONDO_DOORS": "mcp", "DB_POOL_SIZE": "4"})
    report("a:2", kind="beat", settings={"TURN_SHARDS": "8", "RONDO_DOORS": "mcp"})
    assert fleet_checks.versions() == Finding(ok=True, detail=f"all run {VERSION}")
    assert fleet_checks.fleet_settings().state == "ok"
    report(
        "b:3", version="0.0.9", settings={"TURN_SHARDS": "8", "RONDO_DOORS": "openai", "DB_POOL_SIZE": "9"}
    )
    report("c:4", silent=99, version="0.0.1", settings={"TURN_SHARDS": "1"})  # it does not run
    versions, found = fleet_checks.versions(), fleet_checks.fleet_settings()
    assert (versions.state, versions.detail) == (
        "unknown",
        f"{VERSION} in beat a:2, web a:1; 0.0.9 in web b:3",
    )
    assert found.state == "unknown"
    assert found.detail.startswith("RONDO_DOORS is mcp, but openai in web b:3")
    assert found.cure
    text = "\n".join(status_lines(read_status()))
    assert f"WARNING      several versions run: {VERSION} in beat a:2, web a:1; 0.0.9 in web b:3" in text
    assert "RONDO_DOORS is mcp, but openai in web b:3" in text
    report("d:5", settings={"TURN_SHARDS": "4"})
    assert fleet_checks.fleet_settings().state == "wrong"


def test_hidden_settings_are_compared_and_not_shown() -> None:
    for number, key in enumerate(("1", "1", "2")):
        report(f"h:{number}", fingerprints={"OPENAI_API_KEY": f"print-{key}", "SECRET_KEY": "same"})
    found = fleet_checks.fleet_settings()
    assert found.detail.startswith("OPENAI_API_KEY differs: web h:2")
    assert "print-" not in found.words + "\n".join(status_lines(read_status())) + json.dumps(
        read_status().to_json()
    )
    report("h:9", fingerprints={"OPENAI_API_KEY": "print-3", "SECRET_KEY": "another"})
    found = fleet_checks.fleet_settings()
    assert found.state == "wrong"
    assert found.detail.startswith("SECRET_KEY differs: web h:9")
    assert "OPENAI_API_KEY" not in found.detail.partition(";")[0]  # its fingerprint is made with the key


def test_what_a_process_tells_holds_no_secret(settings: Any) -> None:
    hidden = {
        "SECRET_KEY": MARK * 2, "SECRET_KEY_FALLBACKS": MARK * 3, "OPENAI_API_KEY": MARK, "RONDO_WATCHER_TOKEN": MARK,
        "DATABASE_URL": f"postgresql://u:{MARK}@h/n", "DATABASE_LOCK_URL": f"postgresql://u:{MARK}@h/n",
        "CELERY_BROKER_URL": f"amqp://u:{MARK}@broker.example:5672//v?key={MARK}",
        "EMAIL_URL": f"smtp://u:{MARK}@mail.example", "OPENAI_BASE_URL": f"https://u:{MARK}@models.example",
        "RONDO_TELEGRAM_URL": f"https://bots.example/{MARK}", "RONDO_NOTIFY": json.dumps({"team": f"slack://{MARK}"}),
    }  # fmt: skip
    settings.ENV = env.load(hidden)
    told = facts.facts()
    assert MARK not in json.dumps([told.settings, told.fingerprints])
    assert told.settings["CELERY_BROKER_URL"] == "amqp://broker.example:5672//v"
    assert told.fingerprints["OPENAI_API_KEY"] != told.fingerprints["RONDO_WATCHER_TOKEN"]
    # a variable that is added later is hidden until someone has thought about it
    known = {each.name for each in env.variables()}
    assert not facts.SHOWN - known
    plain = {"RONDO_CONTEXT_TOKENS", "RONDO_FETCH_URL"}  # a number and a switch
    assert {each for each in facts.SHOWN if re.search("KEY|TOKEN|SECRET|PASSWORD|URL|DSN", each)} == plain
    for name in sorted(known - facts.SHOWN - {"CELERY_BROKER_URL", "DATABASE_URL", "DATABASE_LOCK_URL"}):
        assert re.fullmatch(r"([0-9a-f]{16})?", told.fingerprints[name]), name


def test_values_written_in_another_way_are_the_same(settings: Any) -> None:
    told = []
    needed = {"SECRET_KEY": "k" * 20, "DATABASE_URL": "postgresql://h/n", "CELERY_BROKER_URL": "amqp://h"}
    for https, hosts, rate in (("1", "a,b", "60/min"), ("true", " a, b ", "60/min")):
        settings.ENV = env.load(needed | {"HTTPS": https, "ALLOWED_HOSTS": hosts, "RONDO_THROTTLE": rate})
        told.append(facts.facts())
    assert told[0] == told[1]
    usual = facts.defaults()
    settings.ENV = env.load(needed)
    assert {name: told for name, told in facts.facts().settings.items() if name in usual} == usual


@pytest.mark.parametrize("wrong", [{"kind": "clock"}, {"lost_after": 0}, {"age": -60}])
def test_the_database_refuses_a_process_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        report(**wrong)


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ([], "127.0.0.1:8000"),
        (["--host", "0.0.0.0", "--port=9000"], "0.0.0.0:9000"),
        (["--host", "::1", "--workers", "2"], "[::1]:8000"),
        (["--uds", "/run/rondo"], ""),
    ],
)
def test_the_address_of_a_web_process(arguments: list[str], address: str) -> None:
    assert address_in(arguments) == address


def test_a_presence_that_ended_never_comes_back() -> None:
    presence = Presence(ProcessKind.WORKER)
    presence.start(own_id=uuid.uuid4())
    until(Process.objects.exists)
    presence.stop()
    presence._report()  # one that was under way
    assert not Process.objects.exists()
