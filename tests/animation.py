"""Pictures that move: PNG files of one size as the frames of one animated PNG, without another package."""

import struct
import zlib
from collections.abc import Sequence
from itertools import count

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def animated(frames: Sequence[tuple[bytes, int]]) -> bytes:
    """The animation, for ever, of PNG files with the milliseconds for which each is shown.

    Who cannot show it shows the last frame, which is in it once more as a picture.
    """
    last = frames[-1][0]
    (head,) = _data(last, b"IHDR")
    assert all(_data(png, b"IHDR") == [head] for png, _ in frames), "the frames differ in size or colours"
    parts = [_chunk(b"IHDR", head), _chunk(b"acTL", struct.pack(">II", len(frames), 0))]
    parts += [_chunk(b"IDAT", data) for data in _data(last, b"IDAT")]
    numbers = count()
    for png, shown in frames:
        control = struct.pack(">I8sIIHHBB", next(numbers), head[:8], 0, 0, shown, 1000, 0, 0)
        parts.append(_chunk(b"fcTL", control))
        for data in _data(png, b"IDAT"):
            parts.append(_chunk(b"fdAT", struct.pack(">I", next(numbers)) + data))
    return b"".join([SIGNATURE, *parts, _chunk(b"IEND", b"")])


def _data(png: bytes, wanted: bytes) -> list[bytes]:
    """The data of the chunks of this kind."""
    found, at = [], len(SIGNATURE)
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        if kind == wanted:
            found.append(png[at + 8 : at + 8 + length])
        at += 12 + length
    return found


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
