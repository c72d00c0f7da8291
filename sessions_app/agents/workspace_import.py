"""Import the documents of an EverBot workspace: a folder with AGENTS.md, MEMORY.md and the like.

Each document stores a digest of the file it was imported from. A second import of the same files changes nothing. A
changed file replaces the document only if nobody has edited the document since. HEARTBEAT.md is written like every
document, so its routines are applied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from django.db import transaction

from sessions_app.agents.documents import LONGEST_DOCUMENT, write_document
from sessions_app.exceptions import BadInput, SessionsError
from sessions_app.models import Document
from sessions_app.models.agent import DOCUMENTS

LARGEST = 4 * LONGEST_DOCUMENT  # bytes; a longer file has too many characters in any case


class WorkspaceOutcome(StrEnum):
    """The outcome for one document."""

    IMPORTED = "imported"
    UPDATED = "updated"
    ALREADY_THERE = "already there"
    KEPT = "kept"
    REFUSED = "refused"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class WorkspaceLine:
    """The result for one document. `revision` is its current one; `note` says why it was kept or refused."""

    name: str
    outcome: WorkspaceOutcome
    revision: int = 0
    characters: int = 0
    note: str = ""

    def in_words(self) -> str:
        """Describe it: `MEMORY.md: imported, 120 characters, revision 1`."""
        if self.outcome is WorkspaceOutcome.MISSING:
            return f"{self.name}: not in the folder"
        size = f", {self.characters:,} characters, revision {self.revision}" * (
            self.outcome != WorkspaceOutcome.REFUSED
        )
        return f"{self.name}: {self.outcome}{size}" + f" ({self.note})" * bool(self.note)


@dataclass(frozen=True, kw_only=True)
class WorkspaceReport:
    """The result of an import, or of a dry run. `others`: other files of the folder, which are not imported."""

    lines: tuple[WorkspaceLine, ...]
    others: tuple[str, ...]
    dry_run: bool

    def in_words(self) -> Iterator[str]:
        """Yield the lines that the command prints."""
        if self.dry_run:
            yield "dry run: nothing is changed; an import would do this:"
        for line in self.lines:
            yield line.in_words()
        if self.others:
            yield f"not imported: {', '.join(self.others)}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        documents = [asdict(line) for line in self.lines]
        return {"ok": True, "dry_run": self.dry_run, "documents": documents, "others": list(self.others)}


class NoWorkspace(SessionsError):
    """The folder is not a workspace: it contains none of the documents."""

    code = "no_workspace"


def import_workspace(
    agent_id: int, folder: Path, *, replace: bool = False, dry_run: bool = False
) -> WorkspaceReport:
    """Import the documents of a folder. A refused document does not stop the others. NoWorkspace, OSError.

    `replace`: also replace documents that were edited on the server.
    """
    entries = sorted(path.name for path in folder.iterdir())
    if not any((folder / name).is_file() for name in DOCUMENTS):
        raise NoWorkspace(f"{folder} contains none of {', '.join(DOCUMENTS)}")
    lines = [_import(agent_id, folder / name, replace=replace, dry_run=dry_run) for name in DOCUMENTS]
    others = tuple(name for name in entries if name not in DOCUMENTS and not name.startswith("."))
    return WorkspaceReport(lines=tuple(lines), others=others, dry_run=dry_run)


def _import(agent_id: int, file: Path, *, replace: bool, dry_run: bool) -> WorkspaceLine:
    name = file.name
    if not file.is_file():
        return WorkspaceLine(name=name, outcome=WorkspaceOutcome.MISSING)
    try:
        text = _text(file)
        with transaction.atomic():
            line = _put(agent_id, name, text, replace=replace)
            transaction.set_rollback(dry_run)
    except (OSError, SessionsError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return WorkspaceLine(name=name, outcome=WorkspaceOutcome.REFUSED, note=str(reason))
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


def _put(agent_id: int, name: str, text: str, *, replace: bool) -> WorkspaceLine:
    """Import one document in the current transaction. It is written only if its revision is still the one read here."""
    found = Document.objects.filter(agent_id=agent_id, name=name).first()
    there = found or Document(agent_id=agent_id, name=name, content="", revision=0)
    was_edited = there.content != "" and _digest(there.content) != there.imported_digest
    if there.content == text or (there.imported_digest == _digest(text) and not replace):
        outcome, note = (
            WorkspaceOutcome.ALREADY_THERE,
            "it was edited on the server since" if there.content != text else "",
        )
    elif was_edited and not replace:
        outcome, note = WorkspaceOutcome.KEPT, "it was edited on the server; use --replace to overwrite it"
    else:
        outcome, note = (WorkspaceOutcome.UPDATED if there.content else WorkspaceOutcome.IMPORTED), ""
        written = write_document(agent_id, name, text, revision=there.revision)
        there, note = written.document, written.taken.problem if written.taken else ""
    if outcome is not WorkspaceOutcome.KEPT and there.pk:
        Document.objects.filter(pk=there.pk).update(imported_digest=_digest(text))
    return WorkspaceLine(name=name, outcome=outcome, revision=there.revision, characters=len(text), note=note)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
