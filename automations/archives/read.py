"""Read the lines of an archive that anybody may have made. All is bounded, and only `archive.jsonl` is opened."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from struct import error as StructError  # noqa: N812 - it is a class
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from agent_core.text.json_values import clean_value, values_at_most
from automations.archives.export import FORMAT, LINES, VERSION
from sessions_app.exceptions import SessionsError

LARGEST = 2_000_000_000  # bytes of all lines
LARGEST_READ = 16_000_000  # bytes at once, such as the directory of the zip
LONGEST_LINE = 16_000_000  # bytes
MOST_LINES = 5_000_000
MOST_VALUES = 100_000  # in one line


class ArchiveRefused(SessionsError):
    """It is not an archive that can be imported; the text names the line."""

    code = "bad_archive"


class _BoundedFile:
    """A file of which nobody reads much at once: a directory of millions of names fills no memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """At most LARGEST_READ bytes; a negative size: what is left."""
        found = self._file.read(LARGEST_READ + 1 if size < 0 else min(size, LARGEST_READ + 1))
        if len(found) > LARGEST_READ:
            raise ArchiveRefused("the directory of the archive is too large")
        return found


def read_lines(file: IO[bytes]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield number, kind and value of each line after the first. ArchiveRefused."""
    try:
        with ZipFile(_BoundedFile(file)) as archive:
            if archive.getinfo(LINES).compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise ArchiveRefused(
                    f"{LINES} is compressed in another way than deflate"
                )  # others unpack without bound
            with archive.open(LINES) as lines:
                yield from _checked(lines)
    except KeyError:
        raise ArchiveRefused(f"the archive has no {LINES}") from None
    except (BadZipFile, zlib.error, StructError, EOFError, NotImplementedError, RuntimeError, ValueError):
        raise ArchiveRefused("this is no zip archive that can be read") from None


def _checked(lines: IO[bytes]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    size = 0
    for number in range(1, MOST_LINES + 1):
        line = lines.readline(LONGEST_LINE + 1)
        size += len(line)
        if not line:
            if number == 1:
                raise ArchiveRefused(f"{LINES} is empty")
            return
        if len(line) > LONGEST_LINE or size > LARGEST:
            raise ArchiveRefused(f"line {number}: too long")
        kind, value = _parsed(number, line)
        if number > 1:
            yield number, kind, value
        elif (kind, value.get("format"), value.get("version")) != ("archive", FORMAT, VERSION):
            raise ArchiveRefused("line 1: this is no archive of Rondo in a version that can be read")
    raise ArchiveRefused(f"the archive has more than {MOST_LINES:,} lines")


def _parsed(number: int, line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        text = line.decode()
        if values_at_most(text) > MOST_VALUES:
            raise ArchiveRefused(f"line {number}: it has too many values")
        [(kind, value)] = clean_value(json.loads(text)).items()
    except (ValueError, RecursionError, AttributeError):
        raise ArchiveRefused(f"line {number}: it is no JSON object with one key") from None
    if not isinstance(value, dict):
        raise ArchiveRefused(f"line {number}: {kind[:60]!r} is no object")
    return kind, value
