"""A beat process: it ends when it is told to, and takes no arguments (rule 10.0)."""

import signal
import sys

import pytest

from automations.models import RunRecord
from tests.automations.jobs.made import EVERY_SECOND, new
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.up import run

pytestmark = pytest.mark.rule("10.0")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_beat_fires_and_ends_cleanly_when_told(fleet: Fleet, person: Person, number: int) -> None:
    beat = fleet.beat()
    new(person.session(), schedule=EVERY_SECOND)
    until(RunRecord.objects.exists)
    beat.signal(number)
    assert beat.child.wait(5) == 0


def test_a_beat_refuses_arguments_in_one_line() -> None:
    done = run(sys.executable, "-m", "config.beat", "--max-interval", "5")
    words = "python -m config.beat takes no arguments: its settings are environment variables\n"
    assert (done.returncode, done.stderr) == (1, words)
