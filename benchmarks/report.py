"""Figures with their targets, the table of all figures, and a run that is kept in a file."""

from __future__ import annotations

import json
import os
import platform
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

KIBIBYTES_PER_GIBIBYTE = 1024 * 1024
SECONDS = {"ms": 0.001, "s": 1.0}
LONGEST_ERROR = 300  # characters
_FLOOR_IN_WORDS = {"no-op": "no-op tasks", "commit": "commits", "commit of 16": "commits over 16 connections"}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One result. `at_most` or `at_least`: its target in the same unit, if it has one.

    `count`: a number that is the same on every machine. `more_is_better`: also true of rates and of a target at least.
    `floor`: with which of the machine's floors (`benchmarks.floor`) a time or rate is compared. `shape`: the 1st to
    99th percentile of what was measured, for a plot.
    """

    name: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""
    count: bool = False
    more_is_better: bool = False
    floor: str = "no-op"
    shape: tuple[float, ...] = field(default=(), repr=False)

    @property
    def target(self) -> str:
        """The target as the table shows it."""
        if self.at_most is not None:
            return f"≤ {number(self.at_most)}"
        return f"≥ {number(self.at_least)}" if self.at_least is not None else ""

    @property
    def verdict(self) -> str:
        """`met`, or by how much it was missed."""
        if self.at_most is not None and self.value > self.at_most:
            return f"MISSED by {self.value / self.at_most - 1:.0%}"
        if self.at_least is not None and self.value < self.at_least:
            return f"MISSED by {1 - self.value / self.at_least:.0%}"
        return "met" if self.target else ""

    @property
    def rises(self) -> bool:
        """Whether more is better."""
        return self.more_is_better or self.unit == "/s" or self.at_least is not None

    def on(self, floor: Mapping[str, float]) -> float | None:
        """How many operations of its floor the machine does in the time, or per item of a rate. None for others."""
        if self.floor not in floor or (self.unit not in SECONDS and self.unit != "/s"):
            return None
        if self.unit == "/s":
            return floor[self.floor] / self.value if self.value else None
        return self.value * SECONDS[self.unit] * floor[self.floor]


@dataclass(frozen=True, kw_only=True)
class Run:
    """The figures of a run. `sizes`: `full` or `quick`. `floor`: operations per second by name."""

    machine: str
    sizes: str
    floor: dict[str, float]
    figures: list[Figure]

    def write(self, path: Path) -> None:
        """Keep the run as JSON, with the fields of `Run` and `Figure` but no shapes."""
        kept = asdict(self)
        for figure in kept["figures"]:
            del figure["shape"]
        path.write_text(json.dumps(kept, indent=1) + "\n")


def read_run(path: Path) -> Run:
    """Read a run that was kept."""
    kept = json.loads(path.read_text())
    return Run(**kept | {"figures": [Figure(**figure) for figure in kept["figures"]]})


def number(value: float) -> str:
    """A number with about three digits."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def table(figures: Iterable[Figure], floor: Mapping[str, float]) -> str:
    """One line per figure: name, value, the same in operations of the floor, target, verdict, note."""
    rows = [("figure", "measured", "in its floor", "target", "verdict", "")]
    rows += [
        (f.name, f"{number(f.value)} {f.unit}".strip(), _on(f, floor), f.target, f.verdict, f.note)
        for f in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    rows.insert(1, (*("-" * width for width in widths), ""))  # type: ignore[arg-type]
    return "\n".join(_line(row, widths).rstrip() for row in rows)


def _on(figure: Figure, floor: Mapping[str, float]) -> str:
    many = figure.on(floor)
    return "" if many is None else f"{number(many)} {figure.floor}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *middle, verdict, note = row
    cells = [cell.rjust(width) for cell, width in zip(middle, widths[1:], strict=False)]
    return "  ".join([name.ljust(widths[0]), *cells, verdict.ljust(widths[-1]), note])


def floor_line(floor: Mapping[str, float]) -> str:
    """The floor in one line."""
    return "floor: " + ", ".join(f"{number(rate)} {_FLOOR_IN_WORDS[name]}/s" for name, rate in floor.items())


def machine(server: str) -> str:
    """The machine in one line; `server` is PostgreSQL's version."""
    memory = Path("/proc/meminfo").read_text().split()[1]
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores ({_processor()}), "
        f"{int(memory) / KIBIBYTES_PER_GIBIBYTE:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, PostgreSQL {server}, load {os.getloadavg()[2]:.1f}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def one_line(error: BaseException) -> str:
    """An error in one line: its class, the first and last line of its text, and where in the benchmarks it arose."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " … ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))[:LONGEST_ERROR]
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "benchmarks" in each.filename]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return ": ".join(filter(None, [type(error).__name__, text])) + where
