"""The images in a session's messages: read of what programs send, stored with the message, read for the model."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from django.db.models import Func, IntegerField

from agent_core.types import Image, media_type_of
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent, Engine, MessageImage, Session

KEY = "images"  # in Message.metadata: the ids of its images
MOST_IMAGES = 4  # in one message
MOST_SHOWN = 8  # in one request to a model, the newest
LARGEST_IMAGE = 3 * 1024 * 1024  # bytes
_DATA_URL = re.compile(r"data:image/[a-z0-9.+-]{1,20};base64,")
_LONGEST = LARGEST_IMAGE * 4 // 3 + 4  # characters in base64
KINDS = "PNG, JPEG, GIF or WebP"
LARGEST_SUM = 8 * 1024 * 1024  # bytes of the images in one request to a model


def store_images(session: Session, images: Iterable[Image]) -> list[str]:
    """Store the images of a message; returns their ids. BadInput if the session's agent does not see images."""
    if reason := why_blind(Agent.objects.get(pk=session.agent_id)):
        raise BadInput(reason, code="no_images")
    rows = [
        MessageImage(session_id=session.pk, media_type=each.media_type, content=each.content)
        for each in images
    ]
    return [str(row.pk) for row in MessageImage.objects.bulk_create(rows)]


def why_blind(agent: Agent) -> str:
    """Why the agent takes no images; empty if it does. Whether a provider's model sees, only the provider knows."""
    if agent.effective_model == "offline":
        return "the model 'offline' does not see images; give the agent a model that does"
    if agent.engine == Engine.PLANNER:
        return "an agent that plans takes no images; use an agent with the engine 'chat'"
    if not agent.model_settings.get("images", True):
        return "this agent takes no images: its model_settings.images is false"
    return ""


def read_images(agent: Agent, newest_first: Iterable[Mapping[str, Any]]) -> dict[str, Image]:
    """Return the newest images, by id, that these metadata of messages name. Nothing is read if they name none."""
    named = (each for metadata in newest_first for each in metadata.get(KEY, ()))
    ids = list(islice(named, MOST_SHOWN))
    if not ids or why_blind(agent):
        return {}
    rows = MessageImage.objects.filter(pk__in=map(uuid.UUID, ids), session__agent_id=agent.pk)
    size = Func("content", function="octet_length", output_field=IntegerField())
    sizes = {str(pk): size for pk, size in rows.values_list("pk", size)}
    fits = rows.filter(pk__in=_fitting(ids, sizes))
    return {str(row.pk): Image(media_type=row.media_type, content=bytes(row.content)) for row in fits}


def _fitting(ids: Iterable[str], sizes: Mapping[str, int]) -> list[str]:
    """The first of these images that have LARGEST_SUM together."""
    kept, total = [], 0
    for each in ids:
        total += sizes.get(each, 0)
        if total > LARGEST_SUM:
            break
        kept.append(each)
    return kept


def images_of(metadata: Mapping[str, Any], found: Mapping[str, Image]) -> tuple[Image, ...]:
    """Return those images of `found` that the message with this metadata names."""
    if not found:
        return ()
    return tuple(found[each] for each in metadata.get(KEY, ()) if each in found)


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
