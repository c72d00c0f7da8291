"""Images in people's messages. A file is an image by its first bytes, whatever it is called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

TOKENS: Final = 1_000  # of an image in a request, roughly
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image of a type that providers read."""

    media_type: str
    content: bytes = field(repr=False)


def media_type_of(content: bytes) -> str:
    """Return the type of a PNG, JPEG, GIF or WebP file; empty for any other."""
    if content.startswith(_PNG):
        return "image/png"
    if content.startswith(_JPEG):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else ""
