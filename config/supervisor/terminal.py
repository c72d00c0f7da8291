"""What a person sees while the system starts, runs and stops."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

# Lines of our own processes, as config.logs writes them. What servers say while clients come and go is noise.
_IMPORTANT = re.compile(r'^\S+ (WARNING|ERROR|CRITICAL) |"level": "(warning|error|critical)"')
_LINE = 400  # characters of a log line that the terminal shows
_BURST = 10  # lines of one log shown per look
_LARGEST = 64 * 1024 * 1024  # bytes of a log before its older part is dropped


def say(text: str) -> None:
    with suppress(OSError):  # a terminal that was closed must not keep us from stopping what runs
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


@contextmanager
def step(name: str) -> Iterator[None]:
    """One line per step, with its seconds."""
    began = time.monotonic()
    yield
    say(f"  {name:<44} {time.monotonic() - began:5.1f} s")


@dataclass(kw_only=True)
class Tail:
    """Shows the important lines that are added to a log."""

    name: str
    log: Path
    _offset: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._offset = self.log.stat().st_size if self.log.exists() else 0

    def show(self) -> None:
        lines = [line for line in self._new_lines() if _IMPORTANT.search(line)]
        for line in lines[:_BURST]:
            say(f"{self.name}: {line[:_LINE]}")
        if len(lines) > _BURST:
            say(f"{self.name}: {len(lines) - _BURST} more in {self.log}")

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
        # Children append (O_APPEND), so a file cut to nothing goes on from its beginning.
        self.log.with_suffix(".old.log").write_bytes(self.log.read_bytes())
        with self.log.open("r+b") as log:
            log.truncate(0)
        self._offset = 0


def last_line(log: Path) -> str:
    """The last thing that a program said before it failed."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1][:_LINE] if lines else ""
