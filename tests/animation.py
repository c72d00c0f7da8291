"""Pictures that move: PNG files of one size as the frames of one animated PNG, without another package."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A PNG file, and for how many milliseconds it is shown."""

    png: bytes
    shown: int


def animated(frames: Sequence[Frame]) -> bytes:
    """The animation, for ever. Who cannot show it shows the last frame, which is in it once more as a picture."""
    (head,) = _data(frames[-1].png, b"IHDR")
    assert all(_data(frame.png, b"IHDR") == [head] for frame in frames), (
        "the frames differ in size or colours"
    )
    parts = [_chunk(b"IHDR", head), _chunk(b"acTL", struct.pack(">II", len(frames), 0))]
    parts += [_chunk(b"IDAT", data) for data in _data(frames[-1].png, b"IDAT")]
    number = 0
    for frame in frames:
        width_and_height = head[:8]
        control = struct.pack(">I8sIIHHBB", number, width_and_height, 0, 0, frame.shown, 1000, 0, 0)
        parts.append(_chunk(b"fcTL", control))
        number += 1
        for data in _data(frame.png, b"IDAT"):
            parts.append(_chunk(b"fdAT", struct.pack(">I", number) + data))
            number += 1
    return b"".join([SIGNATURE, *parts, _chunk(b"IEND", b"")])


def _data(png: bytes, wanted: bytes) -> list[bytes]:
    return [data for kind, data in _chunks(png) if kind == wanted]


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    assert png.startswith(SIGNATURE)
    at = len(SIGNATURE)
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        yield kind, png[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
