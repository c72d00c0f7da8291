"""Figures with their targets, and the table of all figures."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

KIBIBYTES_PER_GIBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One result. `at_most` or `at_least`: its target in the same unit, if it has one."""

    name: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def target(self) -> str:
        """The target as the table shows it."""
        if self.at_most is not None:
            return f"≤ {_number(self.at_most)}"
        return f"≥ {_number(self.at_least)}" if self.at_least is not None else ""

    @property
    def verdict(self) -> str:
        """`met`, or by how much it was missed."""
        if self.at_most is not None and self.value > self.at_most:
            return f"MISSED by {self.value / self.at_most - 1:.0%}"
        if self.at_least is not None and self.value < self.at_least:
            return f"MISSED by {1 - self.value / self.at_least:.0%}"
        return "met" if self.target else ""


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def table(figures: Iterable[Figure]) -> str:
    """One line per figure: name, value, target, verdict, note."""
    rows = [("figure", "measured", "target", "verdict", "")]
    rows += [(f.name, f"{_number(f.value)} {f.unit}".strip(), f.target, f.verdict, f.note) for f in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    rows.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2], "-" * widths[3], ""))
    return "\n".join(_line(row, widths).rstrip() for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        row[0].ljust(widths[0]),
        row[1].rjust(widths[1]),
        row[2].rjust(widths[2]),
        row[3].ljust(widths[3]),
    ]
    return "  ".join([*cells, row[4]])


def machine(server: str) -> str:
    """The machine in one line; `server` is PostgreSQL's version."""
    memory = Path("/proc/meminfo").read_text().split()[1]
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores ({_processor()}), "
        f"{int(memory) / KIBIBYTES_PER_GIBIBYTE:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, PostgreSQL {server}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def write_json(path: Path, about: str, figures: Iterable[Figure]) -> None:
    """`{"machine": str, "figures": [{name, value, unit, at_most, at_least, note}]}`."""
    path.write_text(
        json.dumps({"machine": about, "figures": [asdict(figure) for figure in figures]}, indent=1)
    )
