"""The section about documents, and their editor. A document with a backing is checked before it is applied."""

from __future__ import annotations

import hashlib
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from interfaces.web.pages import FormResult, page, person, person_page, whole_number
from sessions_app.agents.documents import (
    LONGEST_DOCUMENT,
    check_document,
    get_revision,
    revisions_of,
    write_document,
)
from sessions_app.exceptions import NotFound, RevisionConflict, SessionsError
from sessions_app.models import Agent, Document
from sessions_app.reads import selectors

CORRUPTED = "corrupted"
USES = {  # of the documents, in a sentence
    "AGENTS.md": "Instructions: how the agent works and speaks. Every turn reads them.",
    "USER.md": "What the agent knows about you. Every turn reads it.",
    "MEMORY.md": "What the agent has noted over time.",
    "SKILLS.md": "Procedures that the agent can follow.",
    "HEARTBEAT.md": "The routines of the agent: prose, and a JSON block that lists them.",
}


def documents(request: HttpRequest, agent: Agent, _outcome: FormResult) -> dict[str, Any]:
    """The documents with their uses."""
    found = selectors.documents(person(request), agent.name)
    return {
        "documents": [
            {"row": each, "characters": len(each.content), "use": USES.get(each.name, "")} for each in found
        ]
    }


@person_page("GET", "HEAD", "POST")
def document_page(request: HttpRequest, name: str, document: str) -> HttpResponse:
    """The editor. `revision` opens an older text in it; `seen` of a form is what the writer has read."""
    found = selectors.document(person(request), name, document)
    if request.method == "POST":
        return _write(request, found)
    given = request.GET.get("revision", "")
    if not given:
        return _editor(request, found, saved="saved" in request.GET)
    number = whole_number(given)
    if number is None:
        raise NotFound("there is no such revision")
    old = get_revision(found, number)
    return _editor(request, found, content=old.content, old=old.revision)


def _write(request: HttpRequest, found: Document) -> HttpResponse:
    content = request.POST.get("content", "").replace("\r\n", "\n")
    seen = request.POST.get("seen", "")
    digest = hashlib.sha256(f"{seen}\n{content}".encode()).hexdigest()
    try:
        if found.basis is None:
            number = whole_number(seen)
            write_document(found.agent_id, found.name, content, revision=-1 if number is None else number)
        elif request.POST.get("checked") == digest:
            write_document(found.agent_id, found.name, content, basis=seen)
        else:
            check = check_document(found.agent_id, found.name, content, basis=seen)
            # the form sends the digest to apply the text; one that cannot be read is not applied
            checked = "" if check is None or check.parse == CORRUPTED else digest
            return _editor(request, found, content=content, check=check, checked=checked)
    except RevisionConflict:
        now = selectors.document(person(request), found.agent.name, found.name)
        return _editor(request, now, status=412, content=content, is_conflict=True)
    except SessionsError as error:
        return _editor(request, found, status=400, content=content, problem=str(error))
    address = reverse("document", args=[found.agent.name, found.name], query={"saved": "1"})
    return HttpResponseRedirect(address, status=303)


def _editor(request: HttpRequest, found: Document, status: int = 200, **shown: Any) -> HttpResponse:
    context = {
        "agent": found.agent,
        "document": found,
        "use": USES.get(found.name, ""),
        "content": found.content,
        "seen": found.revision if found.basis is None else found.basis,
        "has_check": found.basis is not None,
        "longest": LONGEST_DOCUMENT,
        "revisions": revisions_of(found) if found.pk else (),
    }
    return page(request, "agent/document.html", status=status, **context | shown)
