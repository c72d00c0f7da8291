"""Read and write documents, and a person's standing instructions to an agent.

A document may have a backing: stored data that the document shows, and that writing the document changes. Apps above
register their backings; nothing here imports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Length

from sessions_app.exceptions import BadInput, NotFound, RevisionConflict
from sessions_app.limits import quotas
from sessions_app.models import Agent, Document, DocumentRevision, Preference
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.postgres.rows import existing

KEPT_REVISIONS = 20  # earlier revisions of each document


def keep_revision(document: Document) -> None:
    """Store the current content as a revision, in the transaction that replaces it. The newest ones stay."""
    if not document.revision:
        return  # it was never written
    before = DocumentRevision(document=document, revision=document.revision, content=document.content)
    DocumentRevision.objects.bulk_create([before], ignore_conflicts=True)
    DocumentRevision.objects.filter(
        document=document, revision__lte=document.revision - KEPT_REVISIONS
    ).delete()


def revisions_of(document: Document) -> QuerySet[Any]:
    """Return the earlier revisions of a document, newest first, without their texts."""
    old = DocumentRevision.objects.filter(document_id=document.pk).annotate(characters=Length("content"))
    return old.defer("content").order_by("-revision")


def get_revision(document: Document, revision: int) -> Any:
    """Return one earlier revision with its text. NotFound."""
    rows = revisions_of(document).defer(None).filter(revision=revision)
    return existing(rows, f"there is no revision {revision}, or it was already removed")


LONGEST_DOCUMENT = 200_000  # characters
LONGEST_LISTING = 5_000_000  # characters of a document with a backing


@dataclass(frozen=True, kw_only=True)
class DocumentView:
    """The current text of a document with a backing.

    `basis` is a digest of what a reader has seen, without values that change by themselves, such as the next run.
    """

    content: str
    basis: str


@dataclass(frozen=True, kw_only=True)
class DocumentChange:
    """One change of a backing. `what`: added, changed or disabled. `detail`: when it runs, or which fields change."""

    what: str
    title: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class DocumentWrite:
    """The result of writing a document with a backing: the text to store, how it parsed, and what is wrong with it.

    `changes`: what changed in the backing.
    """

    content: str
    parse: str
    problem: str = ""
    changes: tuple[DocumentChange, ...] = ()


class DocumentBacking(Protocol):
    """The backing of the document of this name."""

    name: str

    def shown(self, document: Document) -> DocumentView:
        """Return the document as it is now; `document.content` is what was written last."""

    def written(self, content: str) -> int:
        """Return how many characters of a text count against the limit; the backing's own part has its own limits."""

    def lock(self, agent_id: int) -> None:
        """Lock the rows that writing the document changes, before the document's own row is locked."""

    def take(self, document: Document, content: str) -> DocumentWrite:
        """Apply a new text to the backing, in the transaction that stores the text."""


_backings: dict[str, DocumentBacking] = {}


def register_document_backing(backing: DocumentBacking) -> None:
    """Register the backing of a document."""
    _backings[backing.name] = backing


def view_of(document: Document) -> DocumentView | None:
    """Return the current view of a document with a backing; None for one that is only text."""
    backing = _backings.get(document.name)
    return backing.shown(document) if backing else None


def put_document(agent_id: int, name: str, content: str, *, revision: int | None = None) -> Document:
    """Replace a document. `revision` is the one it must have, 0 if it was never written.

    BadInput, NotFound, RevisionConflict, and what the document's backing raises.
    """
    return write_document(agent_id, name, content, revision=revision).document


@dataclass(frozen=True, kw_only=True)
class Written:
    """A document that was written; `taken` is the result of its backing, None for one that is only text."""

    document: Document
    taken: DocumentWrite | None


def write_document(
    agent_id: int, name: str, content: str, *, revision: int | None = None, basis: str | None = None
) -> Written:
    """Replace a document. Returns it and what that changed elsewhere, such as routines (`DocumentBacking`).

    `revision` is as for `put_document`. `basis`: the `DocumentView.basis` that the writer last read; RevisionConflict
    if it has changed since.
    """
    _check_text(name, content)
    try:
        return retry_deadlocks(lambda: _write(agent_id, name, content, revision, basis))
    except IntegrityError:
        if not Agent.objects.filter(pk=agent_id).exists():
            raise NotFound("there is no such agent") from None
        raise RevisionConflict from None  # somebody else wrote the first one just now


def check_document(agent_id: int, name: str, content: str, *, basis: str) -> DocumentWrite | None:
    """Do what `write_document` does and undo it. Returns the backing's result; the same errors."""
    _check_text(name, content)
    return retry_deadlocks(lambda: _try(agent_id, name, content, basis))


@transaction.atomic
def _try(agent_id: int, name: str, content: str, basis: str) -> DocumentWrite | None:
    taken = _write(agent_id, name, content, None, basis).taken
    transaction.set_rollback(True)
    return taken


def _check_text(name: str, content: str) -> None:
    if _too_long(name, content):
        raise BadInput(f"the document is longer than {LONGEST_DOCUMENT} characters", code="document_too_long")
    if "\x00" in content:
        raise BadInput("the document contains a NUL character", code="bad_document")


def _too_long(name: str, content: str) -> bool:
    """Whether a text is too long. Not counting what the backing lists, so that what was read can be written back."""
    backing = _backings.get(name)
    if len(content) <= LONGEST_DOCUMENT or len(content) > LONGEST_LISTING or backing is None:
        return len(content) > LONGEST_DOCUMENT
    return backing.written(content) > LONGEST_DOCUMENT


@transaction.atomic
def _write(agent_id: int, name: str, content: str, revision: int | None, basis: str | None) -> Written:
    backing = _backings.get(name)
    if backing is not None:
        backing.lock(agent_id)
    rows = Document.objects.select_for_update(no_key=True)
    document = rows.filter(agent_id=agent_id, name=name).first()
    document = document or Document(agent_id=agent_id, name=name, revision=0)
    if revision is not None and revision != document.revision:
        raise RevisionConflict
    taken = None
    if backing is not None:
        if basis is not None and basis != backing.shown(document).basis:
            raise RevisionConflict
        taken = backing.take(document, content)
        content = taken.content
    keep_revision(document)
    document.content, document.revision = content, document.revision + 1
    document.save()
    for owner_id in Agent.objects.filter(pk=agent_id).values_list("owner_id", flat=True):
        quotas.count_texts(owner_id, content)
    return Written(document=document, taken=taken)


LONGEST_PREFERENCES = 4_000  # characters


def preference(agent: Agent, user_id: int) -> Preference:
    """Return the person's preferences. Those never written are empty, with revision 0."""
    found = Preference.objects.filter(agent=agent, user_id=user_id).first()
    return found or Preference(agent=agent, user_id=user_id, content="", revision=0)


def put_preference(agent: Agent, user_id: int, content: str, *, revision: int | None = None) -> Preference:
    """Replace the person's preferences. BadInput, NotFound, RevisionConflict."""
    if len(content) > LONGEST_PREFERENCES:
        raise BadInput(
            f"the preferences are longer than {LONGEST_PREFERENCES} characters", code="document_too_long"
        )
    if "\x00" in content:
        raise BadInput("the preferences contain a NUL character", code="bad_document")
    try:
        with transaction.atomic():
            rows = Preference.objects.select_for_update(no_key=True)
            row = rows.filter(agent=agent, user_id=user_id).first()
            row = row or Preference(agent=agent, user_id=user_id, revision=0)
            if revision is not None and revision != row.revision:
                raise RevisionConflict
            row.content, row.revision = content, row.revision + 1
            row.save()
            return row
    except IntegrityError:
        if not Agent.objects.filter(pk=agent.pk).exists():
            raise NotFound("there is no such agent") from None
        raise RevisionConflict from None  # somebody else wrote the first ones just now
