"""What people send in a conversation: files that come with a message, and a message that is sent again."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import BigIntegerField, Func
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from agent_core.types import IMAGE_TYPES
from interfaces.http.server.headers import DATA, POLICY
from interfaces.web.pages import person, signed_in
from sessions_app.memory.files import KINDS as KINDS_OF_IMAGES
from sessions_app.memory.files import (
    LARGEST_FILES,
    LARGEST_IMAGE,
    MEGABYTE,
    MOST_FILES,
    GivenFile,
    ids_in,
    read_files,
)
from sessions_app.memory.images import why_blind
from sessions_app.models import Agent, Attachment, Turn, TurnKind, TurnState
from sessions_app.models.message import PDF, TEXT

KINDS = {PDF: "PDF", TEXT: "Text"}
TEXTS = (
    ".md",
    ".json",
    ".csv",
    ".yaml",
    ".toml",
    ".xml",
    ".log",
    ".ini",
    ".tex",
)  # what browsers do not call text


@dataclass(frozen=True, kw_only=True)
class ShownFile:
    """A file of a message, as a page shows it. `kind`: what people call its type; empty for an image."""

    id: uuid.UUID
    name: str
    kind: str
    size: int


def bounds_of_files(agent: Agent) -> dict[str, Any]:
    """What the form of a message says of its files. `blind`: why the agent takes no images."""
    return {
        "most": MOST_FILES,
        "largest": LARGEST_FILES,
        "largest_image": LARGEST_IMAGE,
        **{
            f"{name}_mb": size // MEGABYTE
            for name, size in (("most", LARGEST_FILES), ("image", LARGEST_IMAGE))
        },
        "images": KINDS_OF_IMAGES,
        "accept": ",".join((*(() if why_blind(agent) else IMAGE_TYPES), PDF, "text/*", *TEXTS)),
        "blind": why_blind(agent),
    }


def given_files(request: HttpRequest) -> tuple[GivenFile, ...]:
    """The files of a form. BadInput."""
    files = request.FILES.getlist("files")
    return read_files(person(request).pk, [(each.name or "", each.read()) for each in files])


def shown_files(user: User, metadata: Iterable[Mapping[str, Any]]) -> dict[uuid.UUID, ShownFile]:
    """The files that these metadata of messages name, by id. Nothing is read if they name none."""
    ids = [each for about in metadata for each in ids_in(about)]
    if not ids:
        return {}
    rows = Attachment.objects.filter(pk__in=ids, session__owner=user)
    size = Func("content", function="octet_length", output_field=BigIntegerField())
    return {
        pk: ShownFile(id=pk, name=name, kind=KINDS.get(media_type, ""), size=size)
        for pk, name, media_type, size in rows.values_list("pk", "name", "media_type", size)
    }


def files_in(about: Mapping[str, Any], found: Mapping[uuid.UUID, ShownFile]) -> tuple[ShownFile, ...]:
    """Those of `found` that the metadata of a message name."""
    return tuple(found[each] for each in ids_in(about) if each in found)


def may_be_sent_again(turn: Turn) -> bool:
    """Whether it is a person's message without an answer. One to a question is not: the question says what it means."""
    given = turn.input
    is_own = turn.kind == TurnKind.MESSAGE and given.posted_by is None and not given.by_program
    is_unanswered = turn.state in {TurnState.FAILED, TurnState.CANCELLED}
    return is_own and is_unanswered and not (given.question or given.execution)


@require_safe
@signed_in
def attachment(request: HttpRequest, attachment_id: uuid.UUID) -> HttpResponseBase:
    """A file of the person's. Only images are shown in place; nothing in any of them is run.

    The browser keeps it and asks each time whether it may still show it.
    """
    rows = Attachment.objects.filter(session__owner=person(request), pk=attachment_id)
    etag = f'"{attachment_id}"'
    kept: HttpResponseBase | None = get_conditional_response(request, etag=etag) if rows.exists() else None
    response = kept or _whole(get_object_or_404(rows))
    response.headers["ETag"] = etag
    response.headers["Cache-Control"] = "private, no-cache"
    response.headers[POLICY] = f"{DATA}; sandbox"
    return response


def _whole(file: Attachment) -> HttpResponse:
    is_shown = file.media_type in IMAGE_TYPES
    kind = f"{TEXT}; charset=utf-8" if file.media_type == TEXT else file.media_type
    disposition = content_disposition_header(not is_shown, file.name or "image") or "inline"
    headers = {"Content-Disposition": disposition}
    return HttpResponse(bytes(file.content), content_type=kind, headers=headers)
