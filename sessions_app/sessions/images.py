"""Read the images that programs send with a message."""

from __future__ import annotations

import base64
import binascii
import re

from agent_core.types import Image, media_type_of
from sessions_app.exceptions import BadInput
from sessions_app.memory.images import LARGEST_IMAGE, MOST_IMAGES

_DATA_URL = re.compile(r"data:image/[a-z0-9.+-]{1,20};base64,")
_LONGEST = LARGEST_IMAGE * 4 // 3 + 4  # characters in base64
KINDS = "PNG, JPEG, GIF or WebP"

__all__ = ["MOST_IMAGES", "image_in_base64", "image_in_url", "with_note"]


def image_in_url(url: str) -> Image:
    """Return the image in a data URL. BadInput, also for the address of an image: nothing is fetched for a program."""
    found = _DATA_URL.match(url)
    if found is None:
        raise BadInput("send the image itself as a data URL: data:image/png;base64,…", code="bad_image")
    return image_in_base64(url[found.end() :])


def image_in_base64(text: str) -> Image:
    """Return the image in a text of base64. BadInput."""
    if len(text) > _LONGEST:
        raise BadInput(f"an image may have at most {LARGEST_IMAGE // 1024**2} MB", code="bad_image")
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("the image is not encoded in base64", code="bad_image") from None
    media_type = media_type_of(content)
    if not media_type or len(content) > LARGEST_IMAGE:
        raise BadInput(
            f"only {KINDS} images of at most {LARGEST_IMAGE // 1024**2} MB are supported", code="bad_image"
        )
    return Image(media_type=media_type, content=content)


def with_note(text: str, images: int) -> str:
    """The text of a message with a note of its images, for pages and for models that see them no more."""
    note = "" if not images else "[image]" if images == 1 else f"[{images} images]"
    return "\n\n".join(each for each in (text, note) if each.strip())
