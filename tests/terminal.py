"""A command of `manage.py` in a terminal of its own, with a person who types."""

import os
import pty
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.fleet import until

ROOT = Path(__file__).resolve().parent.parent
CTRL_C, CTRL_D = "\x03", "\x04"
# the shell opens the terminal as the leader of a new session: Ctrl-C then goes to the command
_IN_TERMINAL = ("sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1')
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass(kw_only=True)
class Terminal:
    """Runs the command until the block ends. `text`: what the terminal shows, without colours."""

    arguments: tuple[str, ...]
    _pieces: list[bytes] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        command = [sys.executable, str(ROOT / "manage.py"), *self.arguments]
        self.process = subprocess.Popen(
            [*_IN_TERMINAL, os.ttyname(slave), *command], cwd=ROOT, start_new_session=True
        )
        self._slave = slave
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._slave)  # the reader then finds the end
        self._reader.join(10)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                self._pieces.append(os.read(self._master, 65536))
            except OSError:
                return

    @property
    def raw(self) -> str:
        return b"".join(self._pieces).decode(errors="replace")

    @property
    def text(self) -> str:
        return _COLOURS.sub("", self.raw).replace("\r", "")

    def type(self, text: str, enter: str = "\n") -> None:
        os.write(self._master, f"{text}{enter}".encode())

    def press(self, key: str) -> None:
        self.type(key, enter="")

    def shows(self, words: str, times: int = 1) -> None:
        """Wait until it is shown so often."""

        def shown() -> bool:
            assert self.process.poll() is None or self.text.count(words) >= times, self.text
            return self.text.count(words) >= times

        until(shown, 30, f"{words!r} in:\n{self.text}")

    def ends(self) -> int:
        """Wait for the exit code."""
        return self.process.wait(20)
