"""The tools `read_document` and `edit_document`: an agent reads its documents and edits MEMORY.md.

An edit names the revision that was read, so it never undoes a concurrent edit (rule 6.7). What is written by a turn
that answers another system, or that has read text from outside, is marked as `outside`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agent_core import tools
from agent_core.exceptions import ToolFailed
from agent_core.memory import task_state
from agent_core.tools import Effect, Tool
from sessions_app.agents.documents import put_document, view_of
from sessions_app.exceptions import BadInput, NotFound, RevisionConflict
from sessions_app.models import Document
from sessions_app.models.agent import DOCUMENTS
from sessions_app.turns.tool_calls import ToolContext

EDITABLE = ("MEMORY.md",)

READ_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "enum": list(DOCUMENTS)}},
    "required": ["name"],
}
EDIT_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "enum": list(EDITABLE)},
        "revision": {"type": "integer", "description": "the revision that read_document showed"},
        "content": {"type": "string", "description": "the whole new text; or give old_text and new_text"},
        "old_text": {
            "type": "string",
            "description": "the text to replace; it must occur exactly once",
        },
        "new_text": {"type": "string", "description": "the replacement; empty removes old_text"},
    },
    "required": ["name", "revision"],
}


def read_document(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Return the document with its revision. ToolFailed with a text for the model."""
    document = _document(context, _name(arguments, DOCUMENTS))
    now = view_of(document)
    return f"{document.name}, revision {document.revision}:\n\n{now.content if now else document.content}"


def edit_document(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Replace a document or a part of it. ToolFailed with a text for the model."""
    name = _name(arguments, EDITABLE)
    revision = arguments.get("revision")
    if not isinstance(revision, int) or isinstance(revision, bool):
        raise ToolFailed("revision must be the number that read_document showed")
    document = _document(context, name)
    content = _content(document, arguments)
    if context.stranger is not None or context.has_read:  # it must not look like a person's words
        content = task_state.mark_new_lines(
            document.content, content, datetime.now(context.agent.zone).date()
        )
    try:
        written = put_document(context.agent.pk, name, content, revision=revision)
    except RevisionConflict:
        raise ToolFailed(f"{name} has changed since revision {revision}: read it again") from None
    except (BadInput, NotFound) as error:
        raise ToolFailed(str(error)) from error
    return f"{name} is now at revision {written.revision}."


def _name(arguments: dict[str, Any], names: tuple[str, ...]) -> str:
    name = arguments.get("name")
    if name not in names:
        raise ToolFailed(f"name must be one of {', '.join(names)}")
    return str(name)


def _document(context: ToolContext, name: str) -> Document:
    """Return the document; one that was never written is empty, with revision 0."""
    found = Document.objects.filter(agent=context.agent, name=name).first()
    return found or Document(agent=context.agent, name=name, content="", revision=0)


def _content(document: Document, arguments: dict[str, Any]) -> str:
    whole, old, new = (arguments.get(key) for key in ("content", "old_text", "new_text"))
    if (whole is None) == (old is None):
        raise ToolFailed("give either content, or old_text with new_text")
    for text in (whole, old, new):
        if text is not None and not isinstance(text, str):
            raise ToolFailed("content, old_text and new_text must be text")
    if whole is not None:
        return str(whole)
    if new is None:
        raise ToolFailed("new_text is missing; give an empty one to remove old_text")
    count = document.content.count(old) if old else 0
    if count != 1:
        raise ToolFailed(f"old_text must occur exactly once in {document.name}; found {count} times")
    return document.content.replace(str(old), new)


def register_document_tools() -> None:
    """Register both tools."""
    tools.register(
        Tool(
            name="read_document",
            description="Reads one of your documents, with its revision.",
            parameters=READ_PARAMETERS,
            effect=Effect.READ,
            idempotent=True,
            run=read_document,
        )
    )
    tools.register(
        Tool(
            name="edit_document",
            description=(
                "Changes your long-term memory, MEMORY.md. Read it first: an edit names the revision that it"
                " changes, and takes effect with the next turn."
            ),
            parameters=EDIT_PARAMETERS,
            effect=Effect.WRITE,
            transactional=True,
            run=edit_document,
        )
    )
