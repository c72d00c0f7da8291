"""Processor time and memory of other processes, from /proc (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")  # a second
_PARENT, _USER, _OWN_END, _ENDED_CHILDREN_END = 1, 11, 13, 15  # columns of `stat` after the name


def processor_seconds(pid: int) -> float:
    """Processor time of a process with all its threads, of its children and of children that ended."""
    total = 0
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            total += _ticks(each, pid)
    return total / _TICKS


def _ticks(process: Path, root: int) -> int:
    try:
        columns = (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it ended; its parent counts it
    if int(process.name) == root:
        return sum(map(int, columns[_USER:_ENDED_CHILDREN_END]))
    return sum(map(int, columns[_USER:_OWN_END])) if int(columns[_PARENT]) == root else 0


def resident_mebibytes(pid: int) -> float:
    """Memory that a process holds, with what it shares with others."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)
