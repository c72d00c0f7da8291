"""Every benchmark runs with tiny sizes, and counts what it says. What it measures is never asserted: timing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.statements import Executed, parse_log

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 480  # seconds, on a busy machine

pytestmark = pytest.mark.timeout(PATIENCE + 20)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All figures of one run with servers of its own: the log of PostgreSQL is read."""
    answer = tmp_path_factory.mktemp("benchmarks") / "figures.json"
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in {"DATABASE_URL", "DATABASE_LOCK_URL", "CELERY_BROKER_URL"}
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--tiny", "--json", str(answer)],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {figure["name"]: figure for figure in json.loads(answer.read_text())["figures"]}


@pytest.mark.processes
def test_every_benchmark_gives_its_figures(figures: dict[str, dict[str, Any]]) -> None:
    assert {
        "turns to no-op tasks",
        "automations' turns to chat turns",
        "message to first model request, p99",
        "message beside a session with 150 queued turns to none",
        "SQL per chat turn",
        "SQL per automation's turn",
        "SQL per message received",
        "SQL per fired job",
        "POST a message, processor",
        "GET sessions, 20 of 30, processor",
        "fire 10: 40 jobs to 20",
        "django-celery-beat to Rondo, 20, nothing due",
        "django-celery-beat to Rondo, 20, an edit",
        "django-celery-beat to Rondo, 20, 5 due",
        "claim beside 50 queued rows to none",
        "context of 1,000 messages to 100",
        "context of 300 messages to 100",
        "memory per waiting turn",
        "memory of a beat process at rest",
        "request beside 6 open streams to none",
        "deposits by many at once",
        "updates drained",
        "event to 6 windows, one session",
        "event to 6 windows, a session each",
        "beat's time for an hour of 6 heartbeats",
        "heartbeat's turn late, among 6, p99",
        "heartbeat's turn to chat turn",
    } <= set(figures)
    assert all(figure["value"] >= 0 for figure in figures.values())


@pytest.mark.processes
def test_a_chat_turn_keeps_to_its_statements(figures: dict[str, dict[str, Any]]) -> None:
    for whose in ("chat turn", "automation's turn"):
        assert 6 <= figures[f"SQL per {whose}"]["value"] <= 8
        assert "lock 2" in figures[f"SQL per {whose}, round trips"]["note"]
    assert figures["SQL per fired job"]["value"] < 0.2  # a batch, not a loop


@pytest.mark.processes
def test_a_request_keeps_to_its_statements(figures: dict[str, dict[str, Any]]) -> None:
    assert 4 <= figures["POST a message, SQL"]["value"] <= 5
    assert figures["POST with a key, SQL"]["value"] >= 5
    assert figures["GET a turn, SQL"]["value"] >= 3


@pytest.mark.processes
def test_a_heartbeat_is_counted_beside_a_chat_turn(figures: dict[str, dict[str, Any]]) -> None:
    beside, beat = (
        figures["SQL per chat turn beside it"]["value"],
        figures["SQL per heartbeat's turn"]["value"],
    )
    assert 6 <= beside < beat
    assert "for 1 s" in figures["heartbeat's turn late, among 6"]["note"]


@pytest.mark.processes
def test_all_turns_wait_at_once_on_one_lock_connection(figures: dict[str, dict[str, Any]]) -> None:
    assert figures["turns that wait in one process"]["value"] == 10
    assert figures["lock connections meanwhile"]["value"] == 1


def test_statements_are_read_from_the_log() -> None:
    nothing = " "  # a health check is an empty statement
    log = f"""\
2026-11-21 10:00:00.000 UTC [7] LOG:  statement: BEGIN
2026-11-21 10:00:00.000 UTC [9] LOG:  statement: SELECT of somebody else
2026-11-21 10:00:00.001 UTC [7] LOG:  statement: SELECT a
\tFROM b
2026-11-21 10:00:00.001 UTC [8] LOG:  execute <unnamed>: SELECT pg_try_advisory_lock($1)
2026-11-21 10:00:00.001 UTC [8] DETAIL:  Parameters: $1 = '1'
2026-11-21 10:00:00.002 UTC [7] LOG:  statement:{nothing}
"""
    found = list(parse_log(log, {7: "pool", 8: "lock"}))
    assert found == [
        Executed(kind="pool", text="BEGIN"),
        Executed(kind="pool", text="SELECT a FROM b"),
        Executed(kind="lock", text="SELECT pg_try_advisory_lock($1)"),
        Executed(kind="pool", text=""),
    ]
    assert [each.role for each in found] == ["transaction", "statement", "statement", "check"]
