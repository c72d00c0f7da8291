"""The text of a PDF, read by a process of its own, which a hostile file can neither fill nor hold.

The process is this file as a script: it is given the PDF alone, not the server's environment, and the system bounds its
memory, its time and what it writes.
"""

import io
import resource
import subprocess
import sys
import tempfile
from threading import BoundedSemaphore

MEMORY = 512 * 1024 * 1024  # bytes
MOST_AT_ONCE = 2  # in a process of the server
WAIT = 2.0  # seconds for one of these places
MOST_OPEN = 64  # files of the process, its modules among them
LOCKED = 3  # its exit status for a PDF with a password
_room = BoundedSemaphore(MOST_AT_ONCE)


class UnreadablePdf(Exception):
    """The text of the PDF cannot be had. The message says why, after the file's name."""


class NoRoom(Exception):
    """Too many other PDFs are being read."""


def text_of_pdf(content: bytes, most: int, seconds: float) -> str:
    """Return the text of a PDF, at most `most` characters, within these seconds. UnreadablePdf, NoRoom."""
    if seconds <= 0:
        raise UnreadablePdf("takes too long to read, with the PDFs before it")
    if not _room.acquire(timeout=min(seconds, WAIT)):
        raise NoRoom
    bounds = (most, int(seconds) + 1, MEMORY)
    command = [sys.executable, "-I", __file__, *map(str, bounds)]
    try:
        with tempfile.TemporaryFile() as said:
            status = subprocess.run(
                command,
                input=content,
                stdout=said,
                stderr=subprocess.DEVNULL,
                timeout=seconds,
                env={},
                check=False,
            ).returncode
            said.seek(0)
            text = said.read().decode(errors="replace").strip()[:most]
    except subprocess.TimeoutExpired:
        raise UnreadablePdf("takes too long to read") from None
    finally:
        _room.release()
    if status:
        raise UnreadablePdf("has a password" if status == LOCKED else "cannot be read; it may be damaged")
    return text


def _print_text(most: int, seconds: int, memory: int) -> None:
    bounds = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: 4 * (most + 2),
        resource.RLIMIT_NOFILE: MOST_OPEN,
        resource.RLIMIT_CORE: 0,
    }
    for which, bound in bounds.items():
        resource.setrlimit(which, (bound, bound))
    from pypdf import PdfReader  # only here: the server does not read PDFs

    reader = PdfReader(io.BytesIO(sys.stdin.buffer.read()))
    if reader.is_encrypted and not reader.decrypt(""):
        sys.exit(LOCKED)
    for page in reader.pages:
        text = page.extract_text().strip()[:most] + "\n\n"
        sys.stdout.buffer.write(text.encode(errors="replace"))
        most -= len(text)
        if most <= 0:
            break


if __name__ == "__main__":
    _print_text(*map(int, sys.argv[1:]))
