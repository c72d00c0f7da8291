"""Bringing in the documents of an EverBot workspace: a folder with AGENTS.md, MEMORY.md and the like.

A document remembers what it was imported from, so a second import changes nothing, whatever people and the agent
wrote since; a file that changed takes its place only while nobody wrote here. HEARTBEAT.md goes the way of every
document: what it says of routines is applied where it is put.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from django.db import transaction

from sessions_app.agents import LONGEST_DOCUMENT, write_document
from sessions_app.exceptions import BadInput, SessionsError
from sessions_app.models import Document
from sessions_app.selectors import DOCUMENTS

LARGEST = 4 * LONGEST_DOCUMENT  # bytes of a file that may still be short enough


class Outcome(StrEnum):
    """What became of one document."""

    IMPORTED = "imported"
    UPDATED = "updated"
    ALREADY_THERE = "already there"
    KEPT = "kept"
    REFUSED = "refused"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One document. `revision` is the one that it has now; `note` says why it was kept or refused."""

    name: str
    outcome: Outcome
    revision: int = 0
    characters: int = 0
    note: str = ""

    def in_words(self) -> str:
        """`MEMORY.md: imported, 120 characters, revision 1`."""
        if self.outcome is Outcome.MISSING:
            return f"{self.name}: not in the folder"
        size = f", {self.characters:,} characters, revision {self.revision}" * (
            self.outcome != Outcome.REFUSED
        )
        return f"{self.name}: {self.outcome}{size}" + f" ({self.note})" * bool(self.note)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What an import did, or would do. `others`: what else lies in the folder, which is not brought in."""

    lines: tuple[Line, ...]
    others: tuple[str, ...]
    dry_run: bool

    def in_words(self) -> Iterator[str]:
        """For people."""
        if self.dry_run:
            yield "nothing is changed; this is what would be:"
        for line in self.lines:
            yield line.in_words()
        if self.others:
            yield f"not brought in: {', '.join(self.others)}"

    def to_json(self) -> dict[str, Any]:
        """As an object of plain values."""
        documents = [asdict(line) for line in self.lines]
        return {"ok": True, "dry_run": self.dry_run, "documents": documents, "others": list(self.others)}


class NoWorkspace(SessionsError):
    """This is no workspace: the folder has none of the documents."""

    code = "no_workspace"


def import_workspace(agent_id: int, folder: Path, *, replace: bool = False, dry_run: bool = False) -> Report:
    """Bring in what the folder holds; a document that is refused is so by itself. NoWorkspace, OSError.

    `replace`: also over what was written here.
    """
    entries = sorted(path.name for path in folder.iterdir())
    if not any((folder / name).is_file() for name in DOCUMENTS):
        raise NoWorkspace(f"{folder} has none of {', '.join(DOCUMENTS)}")
    lines = [_import(agent_id, folder / name, replace=replace, dry_run=dry_run) for name in DOCUMENTS]
    others = tuple(name for name in entries if name not in DOCUMENTS and not name.startswith("."))
    return Report(lines=tuple(lines), others=others, dry_run=dry_run)


def _import(agent_id: int, file: Path, *, replace: bool, dry_run: bool) -> Line:
    name = file.name
    if not file.is_file():
        return Line(name=name, outcome=Outcome.MISSING)
    try:
        text = _text(file)
        with transaction.atomic():
            line = _put(agent_id, name, text, replace=replace)
            transaction.set_rollback(dry_run)
    except (OSError, SessionsError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return Line(name=name, outcome=Outcome.REFUSED, note=str(reason))
    return line


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        data = opened.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise BadInput("the file is too large", code="document_too_long")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise BadInput("the file is not UTF-8", code="bad_document") from None


def _put(agent_id: int, name: str, text: str, *, replace: bool) -> Line:
    """In the transaction under way: the revision that was looked at is the one that is written over."""
    found = Document.objects.filter(agent_id=agent_id, name=name).first()
    there = found or Document(agent_id=agent_id, name=name, content="", revision=0)
    was_edited = there.content != "" and _digest(there.content) != there.imported_digest
    if there.content == text or (there.imported_digest == _digest(text) and not replace):
        outcome, note = (
            Outcome.ALREADY_THERE,
            "it reads differently here by now" if there.content != text else "",
        )
    elif was_edited and not replace:
        outcome, note = Outcome.KEPT, "it was written here; --replace puts the file in its place"
    else:
        outcome, note = (Outcome.UPDATED if there.content else Outcome.IMPORTED), ""
        written = write_document(agent_id, name, text, revision=there.revision)
        there, note = written.document, written.taken.problem if written.taken else ""
    if outcome is not Outcome.KEPT and there.pk:
        Document.objects.filter(pk=there.pk).update(imported_digest=_digest(text))
    return Line(name=name, outcome=outcome, revision=there.revision, characters=len(text), note=note)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
