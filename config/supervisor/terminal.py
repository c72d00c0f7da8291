"""Output of `manage.py up` on the terminal."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

# Log lines of our own processes, as config.logs writes them. Those of the servers are not shown.
_IMPORTANT = re.compile(r'^\S+ (WARNING|ERROR|CRITICAL) |"level": "(warning|error|critical)"')
_LONGEST_LINE = 400  # characters of a log line on the terminal
_ERROR = re.compile(r"[\w.]*(Error|Exception)\w*: ")  # of a traceback; PostgreSQL's own lines may follow it
_REFUSAL = "CommandError: "
_LAST_LINES = 12  # among which the error is looked for
_MOST_LINES = 10  # of one log per check
_LARGEST = 64 * 1024 * 1024  # bytes of a log before it is rotated


def say(text: str) -> None:
    with suppress(OSError):  # even if the terminal was closed, we must stop the children
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print a line with the duration of the block."""
    began = time.monotonic()
    yield
    say(f"  {name:<44} {time.monotonic() - began:5.1f} s")


@dataclass(kw_only=True)
class Tail:
    """Shows important new lines of a log, and rotates it."""

    name: str
    log: Path
    _offset: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._offset = self.log.stat().st_size if self.log.exists() else 0

    def show(self) -> None:
        lines = [line for line in self._new_lines() if _IMPORTANT.search(line)]
        for line in lines[:_MOST_LINES]:
            say(f"{self.name}: {line[:_LONGEST_LINE]}")
        if len(lines) > _MOST_LINES:
            say(f"{self.name}: {len(lines) - _MOST_LINES} more in {self.log}")

    def _new_lines(self) -> list[str]:
        try:
            with self.log.open("rb") as log:
                log.seek(self._offset)
                added = log.read(_LARGEST)
        except OSError:
            return []
        complete = added[: added.rfind(b"\n") + 1]
        self._offset += len(complete)
        if self._offset > _LARGEST:
            self._rotate()
        return complete.decode(errors="replace").splitlines()

    def _rotate(self) -> None:
        # children append (O_APPEND), so after truncation they write from the start
        self.log.with_suffix(".old.log").write_bytes(self.log.read_bytes())
        with self.log.open("r+b") as log:
            log.truncate(0)
        self._offset = 0


def last_line(log: Path) -> str:
    """The line of a log that says why its process ended: the last one that names an error, or the last one."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    errors = [line for line in lines[-_LAST_LINES:] if _ERROR.match(line)]
    line = (errors or lines or [""])[-1]
    return line.removeprefix(_REFUSAL)[:_LONGEST_LINE]
