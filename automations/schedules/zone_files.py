"""Time-zone data files: found where the standard library finds them, and reloaded when they are replaced (rule 4.6)."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import zoneinfo
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from zoneinfo import ZoneInfo

from automations.exceptions import ScheduleError

_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", re.ASCII)
_MAX_NAME = 64
# Files in the zone folder that are not zones: the host's setting, leap-second copies, a placeholder.
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})
_NO_FOLDERS = ("right/", "posix/")
_PACKAGE = str(files("tzdata") / "zoneinfo")  # the last place to look


_File = tuple[str, int, int, int]  # path, inode, time of change, size: a replaced file has another identity
_loaded: dict[str, tuple[_File, ZoneInfo]] = {}


def load_zone(name: str) -> ZoneInfo:
    """The zone with exactly this IANA name. ScheduleError unknown_timezone.

    A replaced file is reloaded, so every process plans by the current data. While the file is missing or incomplete,
    the data read before are used.
    """
    known = _loaded.get(name)
    file = _file_of(name)
    if known is not None and file in (None, known[0]):
        return known[1]
    data = None if file is None else _data(Path(file[0]), name)
    if data is None and known is not None:
        return known[1]
    if file is None or data is None:
        raise unknown_zone(name)
    _loaded[name] = (file, data[1])
    return data[1]


def unknown_zone(name: str) -> ScheduleError:
    """The error for a name without data."""
    return ScheduleError("unknown_timezone", f"There is no time zone {name[:_MAX_NAME]!r}.")


def _file_of(name: str) -> _File | None:
    """The file in which the library finds the zone; None for a name that is not a zone's."""
    if (
        len(name) > _MAX_NAME
        or not _NAME.fullmatch(name)
        or name in _NO_ZONES
        or name.startswith(_NO_FOLDERS)
    ):
        return None
    for folder in (*zoneinfo.TZPATH, _PACKAGE):
        path = f"{folder}/{name}"
        try:
            found = os.stat(path)  # noqa: PTH116 - in every plan; a Path costs more than the look
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):  # Europe is a folder
            return path, found.st_ino, found.st_mtime_ns, found.st_size
    return None


def fingerprint(name: str) -> str | None:
    """A hash of the zone's data, 64 characters; None when there are none or they cannot be read."""
    file = _file_of(name)
    data = None if file is None else _data(Path(file[0]), name)
    return None if data is None else hashlib.sha256(data[0]).hexdigest()


class _Whole(BytesIO):
    """Raises EOFError at the end. The library would read a truncated file for ever, looking for a line break."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Exactly so many bytes, or EOFError."""
        data = super().read(size)
        if size is not None and len(data) < size:
            raise EOFError
        return data


def _data(path: Path, name: str) -> tuple[bytes, ZoneInfo] | None:
    """A file's bytes and its zone; None when it cannot be read as a zone."""
    try:
        data = path.read_bytes()
        return data, ZoneInfo.from_file(_Whole(data), key=name)
    except (ValueError, OSError, EOFError, struct.error):
        return None


def zone_or_utc(name: str) -> ZoneInfo:
    """The zone to show instants in; UTC when the zone has no data."""
    try:
        return load_zone(name)
    except ScheduleError:
        return load_zone("UTC")
