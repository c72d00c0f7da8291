"""The images in a session's messages, as they are read for the model. `files.py` stores them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from django.db.models import Func, IntegerField

from agent_core.types import Image
from sessions_app.models import Agent, Attachment, Engine
from sessions_app.models.turn_input import IMAGES

MOST_SHOWN = 8  # in one request to a model, the newest
LARGEST_SUM = 8 * 1024 * 1024  # bytes of the images in one request to a model


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
    named = (each for metadata in newest_first for each in metadata.get(IMAGES, ()))
    ids = list(islice(named, MOST_SHOWN))
    if not ids or why_blind(agent):
        return {}
    rows = Attachment.objects.filter(pk__in=map(uuid.UUID, ids), session__agent_id=agent.pk)
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
    return tuple(found[each] for each in metadata.get(IMAGES, ()) if each in found)
