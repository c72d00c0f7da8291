"""The files that come with messages: checked by their content, stored with the session, shown to a model as text.

Images are shown to models that see as they are (`images.py`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from django.db.models import QuerySet

from agent_core.text import fence
from agent_core.types import IMAGE_TYPES, media_type_of
from sessions_app.exceptions import BadInput, TooSoon
from sessions_app.limits import quotas
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.memory.images import why_blind
from sessions_app.memory.pdf_text import NoRoom, UnreadablePdf, text_of_pdf
from sessions_app.models import Agent, Attachment, Session, Turn
from sessions_app.models.message import LONGEST_FILE_NAME, PDF, TEXT
from sessions_app.models.turn_input import FILES, IMAGES, UNSEEN_IMAGES
from sessions_app.postgres.rows import release_connection
from sessions_app.single_line import one_line

MEGABYTE = 1024 * 1024
MOST_FILES = 4  # of one message
LARGEST_IMAGE = 3 * MEGABYTE  # bytes
LARGEST_FILES = 6 * MEGABYTE  # of one message
LONGEST_TEXT = 100_000  # characters that a model is shown of the files of a message
READ_SECONDS = 5.0  # for all PDFs of a message
PDFS = Rate(limit=30, seconds=60)  # of one user
KINDS = "PNG, JPEG, GIF or WebP"
_reading: dict[int, object] = {}  # the users of whom this process reads a PDF
_CUT = "\n(cut: the file is longer)"
_LONGEST_BASE64 = LARGEST_FILES * 4 // 3 + 4  # characters
_DATA_URL = re.compile(r"data:image/[a-z0-9.+-]{1,20};base64,")
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenFile:
    """A checked file of a new message. `text`: what a model is shown; empty for an image."""

    media_type: str
    content: bytes = field(repr=False)
    name: str = ""
    text: str = field(default="", repr=False)


def read_files(owner_id: int, given: Sequence[tuple[str, bytes]]) -> tuple[GivenFile, ...]:
    """Check files, each with its name: images, PDFs and texts. BadInput, TooSoon."""
    if len(given) > MOST_FILES:
        raise BadInput(f"a message may have at most {MOST_FILES} files", code="bad_file")
    if sum(len(content) for _, content in given) > LARGEST_FILES:
        most = f"{LARGEST_FILES // MEGABYTE} MB"
        raise BadInput(f"the files of a message may have at most {most} together", code="bad_file")
    ends, most_text = time.monotonic() + READ_SECONDS, LONGEST_TEXT // max(len(given), 1)
    return tuple(_read(owner_id, name, content, most_text, ends) for name, content in given)


def _read(owner_id: int, name: str, content: bytes, most: int, ends: float) -> GivenFile:
    name = one_line(name, LONGEST_FILE_NAME) or "file"
    if media_type := media_type_of(content):
        if len(content) > LARGEST_IMAGE:
            raise BadInput(f"{name!r}: {_TOO_LARGE}", code="bad_file")
        return GivenFile(media_type=media_type, content=content, name=name)
    if content.startswith(b"%PDF-"):
        media_type, text = PDF, _text_of_pdf(owner_id, name, content, most, ends)
    else:
        media_type, text = TEXT, _plain_text(name, content)
    if not text.strip():
        hint = "send pictures of its pages" if media_type == PDF else "it is empty"
        raise BadInput(f"{name!r} has no text: {hint}", code="bad_file")
    shown = text if len(text) <= most else text[:most] + _CUT
    return GivenFile(media_type=media_type, content=content, name=name, text=shown)


def _text_of_pdf(owner_id: int, name: str, content: bytes, most: int, ends: float) -> str:
    if wait := take_allowance(f"pdfs:{owner_id}", PDFS):
        raise BadInput(f"too many PDFs; try again in {wait:.0f} seconds", code="bad_file")
    mine = object()
    try:
        if _reading.setdefault(owner_id, mine) is not mine:
            raise NoRoom
        release_connection()  # while it is read
        return text_of_pdf(content, most + 1, ends - time.monotonic()).replace("\x00", "")
    except NoRoom:
        refused = TooSoon("Other PDFs are being read; send the message again in a few seconds.")
        refused.retry_after = ceil(READ_SECONDS)
        raise refused from None
    except UnreadablePdf as error:
        raise BadInput(f"{name!r} {error}", code="bad_file") from None
    finally:
        if _reading.get(owner_id) is mine:
            del _reading[owner_id]


def _plain_text(name: str, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\x00"
    if _NO_TEXT.search(text):
        kinds = f"{KINDS} images, PDFs and texts in UTF-8"
        raise BadInput(f"{name!r} is of another kind; {kinds} can be attached", code="bad_file")
    return text


_TOO_LARGE = f"only {KINDS} images of at most {LARGEST_IMAGE // MEGABYTE} MB are supported"


def image_in_url(url: str) -> GivenFile:
    """Return the image in a data URL. BadInput, also for the address of an image: nothing is fetched for a program."""
    found = _DATA_URL.match(url)
    if found is None:
        raise BadInput("send the image itself as a data URL: data:image/png;base64,…", code="bad_image")
    return image_in_base64(url[found.end() :])


def image_in_base64(text: str) -> GivenFile:
    """Return the image in a text of base64. BadInput."""
    content = in_base64(text, "bad_image")
    media_type = media_type_of(content)
    if not media_type or len(content) > LARGEST_IMAGE:
        raise BadInput(_TOO_LARGE, code="bad_image")
    return GivenFile(media_type=media_type, content=content)


def in_base64(text: str, code: str = "bad_file") -> bytes:
    """Return the content of a file in a text of base64. BadInput with this code."""
    if len(text) > _LONGEST_BASE64:
        raise BadInput(f"a file may have at most {LARGEST_FILES // MEGABYTE} MB", code=code)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("the file is not encoded in base64", code=code) from None


def store_files(session: Session, given: Sequence[GivenFile]) -> dict[str, Any]:
    """Store the files of a message; returns the metadata that name them. BadInput if its agent does not see images."""
    if any(not each.text for each in given) and (reason := why_blind(Agent.objects.get(pk=session.agent_id))):
        raise BadInput(reason, code="no_images")
    quotas.count_stored(session.owner_id, sum(len(each.content) for each in given))
    rows = Attachment.objects.bulk_create(
        Attachment(
            session_id=session.pk,
            media_type=each.media_type,
            name=each.name,
            content=each.content,
            text=each.text,
        )
        for each in given
    )
    ids: dict[str, Any] = {}
    for row in rows:
        ids.setdefault(IMAGES if row.is_image else FILES, []).append(str(row.pk))
    return ids


def digest_of(given: Sequence[GivenFile]) -> str:
    """What tells the files of a message from others; empty without files."""
    parts = [(each.name, hashlib.sha256(each.content).hexdigest()) for each in given]
    return hashlib.sha256(repr(parts).encode()).hexdigest() if parts else ""


def ids_in(metadata: Mapping[str, Any]) -> list[uuid.UUID]:
    """Return the ids of all files that the metadata of a message name."""
    return [uuid.UUID(each) for key in (IMAGES, UNSEEN_IMAGES, FILES) for each in metadata.get(key, ())]


def delete_files(turn: Turn) -> None:
    """Delete the files of a message that was withdrawn before it was read."""
    if ids := ids_in(turn.input.message):
        Attachment.objects.filter(pk__in=ids).delete()


def files_of(turn: Turn) -> tuple[GivenFile, ...]:
    """Return copies of the files of a turn's message, for another message."""
    return tuple(
        GivenFile(media_type=row.media_type, content=bytes(row.content), name=row.name, text=row.text)
        for row in _rows(turn.input.message, Attachment.objects.filter(session=turn.session_id))
    )


def _rows(metadata: Mapping[str, Any], rows: QuerySet[Attachment]) -> list[Attachment]:
    ids = ids_in(metadata)
    found = rows.in_bulk(ids)
    return [found[each] for each in ids if each in found]


def with_texts(said: str, turn: Turn, agent_id: int) -> str:
    """Return what a model is shown of a message: what the person said, and its files as data that others may have
    written.
    """
    if FILES not in turn.input.message:
        return said
    rows = _rows(turn.input.message, Attachment.objects.filter(session__agent=agent_id).exclude(text=""))
    texts = (fence.fenced(fence.FILE, f"{row.name}\n\n{row.text}") for row in rows)
    return "\n\n".join((said, *texts))


def with_note(text: str, files: Iterable[GivenFile]) -> str:
    """The text of a message with a note of its files, for lists and for models that see its images no more."""
    kinds = [each.media_type in IMAGE_TYPES for each in files]
    return "\n\n".join(
        each for each in (text, note_of(kinds.count(True), kinds.count(False))) if each.strip()
    )


def note_of(images: int, files: int) -> str:
    """The note that stands for so many images and files; empty for none."""
    counts = ((images, "image"), (files, "file"))
    return " ".join(f"[{kind}]" if count == 1 else f"[{count} {kind}s]" for count, kind in counts if count)


def without_note(text: str, metadata: Mapping[str, Any]) -> str:
    """The text of a message with these metadata without the note of its files, for those who are shown them."""
    images, files = (
        sum(len(metadata.get(key, ())) for key in keys) for keys in ((IMAGES, UNSEEN_IMAGES), (FILES,))
    )
    return text.removesuffix(note_of(images, files)).rstrip() if images or files else text
