"""Workers, beats, web, broker and PostgreSQL of a running system are killed in turn: every invariant holds."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.load import EVERY, SESSIONS, Load, counts, verdict
from tests.fleet import QUICK, until
from tests.up import Up, alive, clean_environ

pytestmark = [pytest.mark.full, pytest.mark.processes, pytest.mark.rule("2.3")]

VICTIMS = ("worker", "postgres", "beat", "broker", "web", "worker", "beat", "postgres", "worker")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    quick = {name: value for name, value in QUICK.items() if name != "RONDO_PLUGINS"}
    up = Up(folder=tmp_path, environ=clean_environ() | quick)
    up.start("--workers", "2", "--beats", "2")
    try:
        up.wait_ready()
        yield up
    finally:
        up.end()


def kill_and_see_it_replaced(up: Up, kind: str, chance: random.Random) -> None:
    victim = chance.choice(up.pids(kind))
    os.kill(victim, signal.SIGKILL)
    until(lambda: victim not in up.pids(kind) and all(map(alive, up.pids(kind))), 60)


@pytest.mark.rule("1.4")
def test_every_invariant_holds_whatever_dies(up: Up) -> None:
    load, chance = Load(system=up), random.Random(7)
    load.start()
    for kind in VICTIMS:
        time.sleep(EVERY)  # each of those who write has begun again
        kill_and_see_it_replaced(up, kind, chance)
    load.stop()
    assert verdict(up, load) == {}
    assert load.posted > len(VICTIMS)
    assert counts(up)["runs"] > SESSIONS
