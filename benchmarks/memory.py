"""Memory of a worker, a beat and a web process at rest: started, and without work or requests so far."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks import fleet
from benchmarks.held import pid_of
from benchmarks.processor import resident_mebibytes
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

TARGETS = {"worker": 150.0, "beat": 90.0, "web": 150.0}  # MiB


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Start one process after the other, each with production's settings, and let each settle."""
    found: dict[str, float] = {}
    with fleet.worker(servers.folder, "resting", sizes.concurrency, RONDO_PLUGINS="") as worker:
        found["worker"] = _settled(worker.child.pid, sizes)
    with fleet.beat(servers.folder, RONDO_PLUGINS="") as beat:
        found["beat"] = _settled(beat.child.pid, sizes)
    with fleet.web(servers.folder, RONDO_PLUGINS="") as port:
        found["web"] = _settled(pid_of(port), sizes)
    say(", ".join(f"{kind} {mebibytes:.0f} MiB" for kind, mebibytes in found.items()))
    return [
        Figure(name=f"memory of a {kind} process at rest", value=mebibytes, unit="MiB", at_most=TARGETS[kind])
        for kind, mebibytes in found.items()
    ]


def _settled(pid: int, sizes: Sizes) -> float:
    time.sleep(sizes.settle_seconds)  # pools and threads of the start
    return resident_mebibytes(pid)
