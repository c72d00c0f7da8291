"""Earlier revisions of documents. They are kept so that people can read and restore them."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Length

from sessions_app.exceptions import NotFound
from sessions_app.models import Document, DocumentRevision

KEPT = 20  # earlier revisions of each document


def keep_revision(document: Document) -> None:
    """Store the current content as a revision, in the transaction that replaces it. Keeps the newest `KEPT`."""
    if not document.revision:
        return  # it was never written
    before = DocumentRevision(document=document, revision=document.revision, content=document.content)
    DocumentRevision.objects.bulk_create([before], ignore_conflicts=True)
    DocumentRevision.objects.filter(document=document, revision__lte=document.revision - KEPT).delete()


def revisions_of(document: Document) -> QuerySet[Any]:
    """Return the earlier revisions of a document, newest first, without their texts."""
    old = DocumentRevision.objects.filter(document_id=document.pk).annotate(characters=Length("content"))
    return old.defer("content").order_by("-revision")


def get_revision(document: Document, revision: int) -> Any:
    """Return one earlier revision with its text. NotFound."""
    found = revisions_of(document).defer(None).filter(revision=revision).first()
    if found is None:
        raise NotFound(f"there is no revision {revision}, or it was already removed")
    return found
