"""The section on nanobot in docs/importing.md, followed: its commands, then the jobs run in a real worker and beat."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from automations.models import CronJob, RunRecord, RunState
from sessions_app.models import Delivery, Message, Session
from tests.conftest import Person, new_person
from tests.docs.pages import section
from tests.fleet import Fleet, until
from tests.up import ROOT

pytestmark = pytest.mark.rule("4.1")

PAGE = section("importing.md", "From nanobot")
SAMPLE = ROOT / "tests" / "data" / "nanobot_jobs.json"
STORE = ".nanobot/workspace/cron/jobs.json"


BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[str]:
    """The page's own command lines, in its order."""
    return [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]


def shown_output() -> list[str]:
    """What the page says that the import prints."""
    [block] = [block for kind, block in BLOCKS if not kind]
    return [without_what_varies(line) for line in block.splitlines()]


def without_what_varies(line: str) -> str:
    """Instants depend on the day, and the dream's id is made up."""
    line = re.sub(r"next run \S+?(?=[, ]|$)", "next run …", line)
    return re.sub(r"taken over, as \w+", "taken over, as …", line)


def typed(command: str, home: Path) -> str:
    """What the command prints for someone with this home folder."""
    program, *arguments = shlex.split(command.replace("~", str(home)))
    assert program == ".venv/bin/python", command
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home folder of a nanobot user."""
    store = tmp_path / STORE
    store.parent.mkdir(parents=True)
    shutil.copy(SAMPLE, store)
    return tmp_path


def succeeded(job_id: str, times: int) -> bool:
    return RunRecord.objects.filter(job=job_id, state=RunState.SUCCEEDED).count() >= times


@pytest.mark.processes
def test_who_follows_the_page_ends_with_their_jobs_running(fleet: Fleet, home: Path) -> None:
    person: Person = new_person("ada", dreams=True)
    fleet.worker()
    fleet.beat()
    look, take = commands()
    assert typed(look, home).splitlines()[-1] == "A dry run: nothing was stored."
    assert not CronJob.objects.filter(source="import").exists()
    assert [without_what_varies(line) for line in typed(take, home).splitlines()] == shown_output()
    until(lambda: succeeded("3f9c2a1b", 2) and succeeded("b2d4e6f8", 2), 60, "both intervals run")
    thread = Session.objects.get(key="web:9d1e")
    answers = Message.objects.filter(session=thread, role="assistant")
    assert "drink tea" in answers[0].content.lower()
    told = Delivery.objects.filter(session__key="cron:b2d4e6f8", channel="telegram", address="4242")
    assert told.count() >= 2
    before = CronJob.objects.count()
    assert typed(take, home).splitlines()[-1].endswith("4 already there.")
    assert CronJob.objects.count() == before
    assert CronJob.objects.get(agent=person.agent, system_event="dream").expr == "30 4 * * *"


def test_the_undo_link_lists_only_imported_jobs(admin_client: object, person: Person) -> None:
    [address] = re.findall(r"`(/admin/automations/cronjob/\?\S+)`", PAGE)
    job = CronJob.objects.create(
        agent=person.agent, name="old garden", source="import", schedule_kind="at", at="2027-01-01T00:00Z"
    )
    mine = CronJob.objects.create(
        agent=person.agent, name="my own", schedule_kind="at", at="2027-01-01T00:00Z"
    )
    listed = admin_client.get(address).content.decode()  # type: ignore[attr-defined]
    assert job.name in listed
    assert mine.name not in listed
