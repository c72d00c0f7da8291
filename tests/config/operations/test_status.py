"""`manage.py status`: what runs where now, on one screen and as JSON."""

from __future__ import annotations

import os
import re
import sys
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from automations.models import JobClock
from config.installation import VERSION
from config.operations import checks
from config.operations.status import read_status, status_lines
from config.web import address_in
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.models import Priority, Process, ProcessKind, Turn, Worker
from sessions_app.operations.processes import Presence
from sessions_app.queue.receive import MessageInput, receive
from tests.automations.jobs.made import HOURLY, new
from tests.automations.messages import due, later
from tests.config.operations.test_doctor import wrong
from tests.conftest import Person
from tests.fleet import until
from tests.up import run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.2")]


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


def test_a_server_with_nothing_in_it() -> None:
    assert status_lines(read_status())[:3] == ["web          none", "workers      none", "beats        none"]
    assert read_status().next_job is None


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


def test_a_silent_process_is_named_until_another_takes_its_place() -> None:
    report("h:1", silent=40, age=90)
    report("h:2", age=60)  # it ran beside it
    report("other:3", age=20)
    report("h:4", age=20, kind="beat")
    assert "silent: web h:1 for 40 s" in wrong(checks.processes())
    report("h:5", age=20)
    assert checks.processes().state == "ok"
    assert "h pid 1:" not in "\n".join(status_lines(read_status()))


def test_several_versions_are_a_warning() -> None:
    report("a:1")
    assert checks.processes().detail == f"1 run {VERSION}"
    report("b:2", kind="beat", version="0.0.9")
    found = checks.processes()
    assert (found.state, found.detail) == ("unknown", f"several versions run: 0.0.9, {VERSION}")


def test_a_process_without_a_word_for_a_day_is_forgotten() -> None:
    kept, gone = report("h:1", silent=23 * 3600), report("h:2", silent=25 * 3600)
    presence = Presence(ProcessKind.BEAT)
    presence.start()
    until(lambda: Process.objects.filter(kind="beat").exists())
    presence.stop()
    assert [each.pk for each in Process.objects.all()] == [kept.pk]
    assert gone.pk != kept.pk
    assert not Process.objects.filter(kind="beat").exists()


@pytest.mark.parametrize("wrong", [{"kind": "clock"}, {"age": -60}])
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
