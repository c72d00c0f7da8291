"""A folder of time-zone data of one's own, which this process and the ones that it starts look into first."""

import os
import struct
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from automations.schedules import zone_files


def tzif(rule: str, *, standard: int = 0) -> bytes:
    """A version 2 file without transitions: everything follows from its rule, such as `CET-1CEST,M3.5.0,M10.5.0/3`.

    `standard`: seconds ahead of UTC before any rule applies.
    """
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    kind = struct.pack(">lBB", standard, 0, 0) + b"LMT\0"
    block = b"TZif2" + bytes(15) + counts + kind
    return block + block + f"\n{rule}\n".encode()


@dataclass(frozen=True, kw_only=True)
class ZoneFolder:
    """Zones by their rules."""

    path: Path

    def write(self, name: str, rule: str) -> None:
        """As packages do it: a new file takes the old one's place."""
        self.write_bytes(name, tzif(rule))

    def write_bytes(self, name: str, data: bytes) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"{target.name}.new")
        new.write_bytes(data)
        new.replace(target)

    def remove(self, name: str) -> None:
        (self.path / name).unlink()


@contextmanager
def zone_folder(path: Path) -> Iterator[ZoneFolder]:
    """The library looks here first, until the end; what it read from here is forgotten then."""
    before, given = zoneinfo.TZPATH, os.environ.get("PYTHONTZPATH")
    folders = [str(path), *before]
    zoneinfo.reset_tzpath(to=folders)
    os.environ["PYTHONTZPATH"] = os.pathsep.join(folders)
    try:
        yield ZoneFolder(path=path)
    finally:
        zoneinfo.reset_tzpath(to=before)
        os.environ.pop("PYTHONTZPATH")
        if given is not None:
            os.environ["PYTHONTZPATH"] = given
        zone_files._loaded.clear()
