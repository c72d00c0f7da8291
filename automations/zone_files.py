"""The data of time zones: found as the library finds them, and read anew when they were replaced (rule 4.6)."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import zoneinfo
from dataclasses import dataclass
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from zoneinfo import ZoneInfo

from automations.schedule_errors import ScheduleError

_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", re.ASCII)
_MAX_NAME = 64
# Files of the zone folder that are no zones: the host's setting, leap-second copies, a place-holder.
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})
_NO_FOLDERS = ("right/", "posix/")
_PACKAGE = str(files("tzdata") / "zoneinfo")  # where the library looks last


@dataclass(frozen=True, slots=True)
class _File:
    """A zone's data on disk; what replaces it is another file."""

    path: str
    inode: int
    modified: int
    size: int


_loaded: dict[str, tuple[_File, ZoneInfo]] = {}


def load_zone(name: str) -> ZoneInfo:
    """The zone of an IANA name, exactly as written. Raises ScheduleError unknown_timezone.

    A file that was replaced is read anew: every process plans by the data there are. While it is away or half
    written, what was read before holds.
    """
    known = _loaded.get(name)
    file = _file_of(name)
    if known is not None and file in (None, known[0]):
        return known[1]
    data = None if file is None else _data(Path(file.path), name)
    if data is None and known is not None:
        return known[1]
    if file is None or data is None:
        raise unknown_zone(name)
    _loaded[name] = (file, data[1])
    return data[1]


def unknown_zone(name: str) -> ScheduleError:
    """The refusal of a name without data."""
    return ScheduleError("unknown_timezone", f"There is no time zone {name[:_MAX_NAME]!r}.")


def _file_of(name: str) -> _File | None:
    """Where the library finds the zone."""
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
            return _File(path, found.st_ino, found.st_mtime_ns, found.st_size)
    return None


def fingerprint(name: str) -> str | None:
    """What tells a zone's data from any other, 64 characters; None: there are none, or they are no zone's."""
    file = _file_of(name)
    data = None if file is None else _data(Path(file.path), name)
    return None if data is None else hashlib.sha256(data[0]).hexdigest()


class _Whole(BytesIO):
    """The library reads up to a line break that a file cut short does not have, and would read for ever."""

    def read(self, size: int | None = -1, /) -> bytes:
        """So many bytes, or EOFError."""
        data = super().read(size)
        if size is not None and len(data) < size:
            raise EOFError
        return data


def _data(path: Path, name: str) -> tuple[bytes, ZoneInfo] | None:
    """A file's bytes, and the zone that they are; None for what cannot be read as one."""
    try:
        data = path.read_bytes()
        return data, ZoneInfo.from_file(_Whole(data), key=name)
    except (ValueError, OSError, EOFError, struct.error):
        return None


def zone_or_utc(name: str) -> ZoneInfo:
    """The zone to show instants in; UTC for a name whose data are gone."""
    try:
        return load_zone(name)
    except ScheduleError:
        return load_zone("UTC")
