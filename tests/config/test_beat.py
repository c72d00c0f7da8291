"""A beat process: it ends when it is told to, and takes no arguments (rule 10.0)."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from automations.jobs.edit import NewJob, create_job
from automations.models import RunRecord
from tests.conftest import Person
from tests.fleet import Fleet, until

pytestmark = pytest.mark.rule("10.0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_beat_fires_and_ends_cleanly_when_told(fleet: Fleet, person: Person, number: int) -> None:
    beat = fleet.beat()
    every = {"kind": "every", "seconds": 1}
    create_job(NewJob(session_id=person.session().pk, message="go", schedule=every))
    until(RunRecord.objects.exists)
    beat.signal(number)
    assert beat.child.wait(5) == 0


def test_a_beat_refuses_arguments_in_one_line() -> None:
    given = [sys.executable, "-m", "config.beat", "--max-interval", "5"]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "python -m config.beat takes no arguments: its settings are environment variables\n"
    )
