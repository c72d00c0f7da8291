"""Memory and connections of a worker process in which hundreds of turns wait for their model.

The model is a server in another process, which answers only when it is told to.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import data, fleet
from benchmarks.processor import resident_mebibytes
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes
from config.supervisor.spawn import spawn

TARGET_MEBIBYTES = 0.3
TARGET_TURNS = 500
SPARE_SLOTS = 12


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Measure memory before and while turns wait. Then release all; they must succeed."""
    count = sizes.waiting
    with _model(servers.folder) as port:
        agent = data.person("openai-chat:held")
        environ = {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
            "OPENAI_API_KEY": "none",
            "RONDO_MODELS": "openai-chat:*",
        }
        environ["RONDO_TURNS_PER_USER"] = "0"
        with fleet.worker(servers.folder, "holding", count + SPARE_SLOTS, **environ) as worker:
            _warm_up(agent)
            before = resident_mebibytes(worker.child.pid)
            targets = data.sessions(agent, count)
            data.queue_messages(targets, 1, "[[hold:bench]] Hello")
            fleet.until(lambda: _held(port) == count, f"{count} turns wait for the model")
            time.sleep(sizes.settle_seconds)
            held = resident_mebibytes(worker.child.pid)
            connections = _connections(servers.database_url)
            say(f"{count} wait: {before:.0f} MiB before, {held:.0f} MiB now")
            _control(port, "release", {"all": True})
            began = time.monotonic()
            fleet.until(lambda: data.count_succeeded(targets) == count, "all turns have ended well")
            drained = time.monotonic() - began
    target = TARGET_MEBIBYTES if count >= TARGET_TURNS else None
    return [
        Figure(
            name="turns that wait in one process",
            value=count,
            at_least=TARGET_TURNS if target else None,
            count=True,
            more_is_better=True,
        ),
        Figure(
            name="memory per waiting turn",
            value=(held - before) / count,
            unit="MiB",
            at_most=target,
            note=f"{before:.0f} MiB before, {held:.0f} MiB with {count}",
        ),
        Figure(name="lock connections meanwhile", value=connections["lock"], at_most=1, count=True),
        Figure(
            name="all connections of that process",
            value=sum(connections.values()),
            note=_describe(connections),
        ),
        Figure(name="seconds until all ended after the release", value=drained, unit="s"),
    ]


@contextmanager
def _model(folder: Path) -> Iterator[int]:
    port_file = folder / "model.port"
    child = spawn(
        [sys.executable, "-m", "tests.model_server", "--port-file", port_file],
        log=folder / "model.log",
        cwd=fleet.ROOT,
        environ=os.environ,
    )
    try:
        fleet.until(port_file.exists, "the model server is ready", 30)
        yield int(port_file.read_text())
    finally:
        child.kill()
        child.wait()


def _control(port: int, what: str, body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/control/{what}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.loads(answer.read() or b"null")


def _held(port: int) -> int:
    held: dict[str, int] = _control(port, "held")["held"]
    return held.get("bench", 0)


def _warm_up(agent: Any) -> None:
    """Run one turn, so that late imports are done."""
    targets = data.sessions(agent, 1)
    data.queue_messages(targets, 1)
    fleet.until(lambda: data.count_succeeded(targets) == 1, "the first turn has ended")


def _connections(url: str) -> dict[str, int]:
    """Number of connections of the worker by purpose."""
    with psycopg.connect(url, autocommit=True, application_name="watch") as watch:
        rows = watch.execute(
            "SELECT application_name, count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND (application_name = 'bench holding' OR application_name LIKE 'rondo %') GROUP BY 1"
        ).fetchall()
    counted: dict[str, int] = dict(rows)
    from_here = 1  # the publisher of this process
    return {
        "pool": counted.pop("bench holding", 0),
        "lock": counted.pop("rondo lock", 0),
        "publish": counted.pop("rondo publish", from_here) - from_here,
        **counted,
    }


def _describe(connections: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in connections.items())
