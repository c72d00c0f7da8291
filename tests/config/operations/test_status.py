"""`manage.py status`: what runs where now, on one screen and as JSON."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from automations.jobs.edit import NewJob, create_job
from automations.models import JobClock
from config.operations.status import read_status, status_lines
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.models import Priority, Turn, Worker
from sessions_app.queue.receive import MessageInput, receive
from tests.automations.messages import due, later
from tests.conftest import Person
from tests.up import ROOT


def test_what_runs_and_waits_is_counted(person: Person) -> None:
    busy, idle = person.session(), person.session()
    worker = Worker.objects.create(host="h", pid=1, shards=["turns.0", "turns.any"])
    turn = receive(busy.pk, MessageInput(content="hello"))
    Turn.objects.update(
        state="running", claim=uuid.uuid4(), claimed_at=Now(), started_at=Now(), worker=worker.pk
    )
    create_job(
        NewJob(session_id=idle.pk, message="go", name="Hourly", schedule={"kind": "every", "seconds": 3600})
    )
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
    job = create_job(
        NewJob(session_id=session.pk, message="go", name="Late", schedule={"kind": "every", "seconds": 3600})
    )
    JobClock.objects.update(next_run_at=Now() - timedelta(hours=3))
    for number in range(30):
        heard = Now() - timedelta(seconds=600 if number == 20 else 0)
        Worker.objects.create(
            host=f"h{number:02}", pid=number, heartbeat_at=heard, shards=["turns.0", "turns.any"]
        )
    due(later(session), ago=60)
    lines = status_lines(read_status())
    assert len(lines) <= 24
    assert all(len(line) < 120 for line in lines)
    assert re.fullmatch(
        r"workers {6}h20 pid 20: SILENT for 10 min, running 0, reads turns.0, turns.any", lines[1]
    )
    text = "\n".join(lines)
    assert "and 24 more" in text
    assert "beats        none" in text
    assert "people       1 waiting, the oldest for 7 min; 0 running" in text
    assert f"Late ({job.pk}) overdue for 3 h" in text
    assert "1 due" in text
    assert "messages     1 due" in text


@pytest.mark.django_db(transaction=True)
def test_a_server_with_nothing_in_it() -> None:
    assert status_lines(read_status())[:3] == ["web          none", "workers      none", "beats        none"]
    assert read_status().next_job is None


@pytest.mark.full
def test_a_database_that_is_away_is_told_in_one_line() -> None:
    environ = os.environ | {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    command = [sys.executable, "manage.py", "status"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "manage.py doctor" in done.stderr.splitlines()[-1]
