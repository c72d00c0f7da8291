"""Every benchmark runs with tiny sizes. What it measures is never asserted: timing."""

import json
import sys
from pathlib import Path

import pytest

from tests.up import clean_environ, run

PATIENCE = 480  # seconds, on a busy machine
pytestmark = [pytest.mark.full, pytest.mark.processes, pytest.mark.timeout(PATIENCE + 20)]


def test_every_benchmark_gives_its_figures(tmp_path: Path) -> None:
    """With servers of its own: the log of PostgreSQL is read."""
    answer = tmp_path / "figures.json"
    command = (sys.executable, "-m", "benchmarks", "--tiny", "--json", str(answer))
    done = run(*command, env=clean_environ(), timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = {figure["name"]: figure["value"] for figure in json.loads(answer.read_text())["figures"]}
    assert len(figures) > 25
    assert all(value >= 0 for value in figures.values())
    assert 6 <= figures["SQL per chat turn"] <= 16
    assert 6 <= figures["SQL per automation's turn"] <= 18
    assert 4 <= figures["POST a message, SQL"] <= 5
    assert figures["SQL per fired job"] < 0.2  # a batch, not a loop
    assert (figures["turns that wait in one process"], figures["lock connections meanwhile"]) == (10, 1)
