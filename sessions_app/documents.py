"""Documents that are more than text: what stands behind one is shown in it, and changed by writing it.

Apps above register what they keep in a document; nothing here imports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sessions_app.models import Document


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A document as it is read now. `basis` names what a writer has seen; it outlasts what changes by itself."""

    content: str
    basis: str


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a written text came to: the text to keep, what it turned out to be, and what is wrong with it."""

    content: str
    parse: str
    problem: str = ""


class Meaning(Protocol):
    """What stands behind the document of this name."""

    name: str

    def shown(self, document: Document) -> Shown:
        """The document as it is now; `document.content` is what was written last."""

    def written(self, content: str) -> int:
        """How many characters of a text are its writer's own; what stands behind it has bounds of its own."""

    def lock(self, agent_id: int) -> None:
        """Lock what writing it changes, before the document's own row is locked."""

    def take(self, document: Document, content: str) -> Taken:
        """Do what a new text says, in the transaction in which it is written."""


_meanings: dict[str, Meaning] = {}


def register(meaning: Meaning) -> None:
    """Make known what stands behind a document."""
    _meanings[meaning.name] = meaning


def meaning_of(name: str) -> Meaning | None:
    """What stands behind a document, if it is more than text."""
    return _meanings.get(name)


def shown(document: Document) -> Shown | None:
    """A document that is more than text, as it is now."""
    meaning = meaning_of(document.name)
    return meaning.shown(document) if meaning else None
