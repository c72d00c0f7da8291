"""The editor of a document. A document with a backing is checked before it is applied."""

from __future__ import annotations

import hashlib
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from interfaces.web.agent.sections import LARGEST_REVISION, USES, shown_status
from interfaces.web.pages import page, person, person_page
from sessions_app.agents.documents import (
    LONGEST_DOCUMENT,
    DocumentWrite,
    check_document,
    get_revision,
    revisions_of,
    write_document,
)
from sessions_app.exceptions import NotFound, RevisionConflict, SessionsError
from sessions_app.models import Document
from sessions_app.reads import selectors

CORRUPTED = "corrupted"


@person_page("GET", "HEAD", "POST")
def document_page(request: HttpRequest, name: str, document: str) -> HttpResponse:
    """The editor. `revision` opens an older text in it; `seen` of a form is what the writer has read."""
    found = selectors.document(person(request), name, document)
    if request.method == "POST":
        return _write(request, found)
    return _editor(request, found, **_opened(request, found))


def _opened(request: HttpRequest, found: Document) -> dict[str, Any]:
    """The older text that is asked for. NotFound."""
    given = request.GET.get("revision", "")
    if not given:
        return {"saved": "saved" in request.GET}
    if not (given.isascii() and given.isdigit() and len(given) < 11 and int(given) <= LARGEST_REVISION):
        raise NotFound("there is no such revision")
    old = get_revision(found, int(given))
    return {"content": old.content, "old": old.revision}


def _write(request: HttpRequest, found: Document) -> HttpResponse:
    content = request.POST.get("content", "").replace("\r\n", "\n")
    seen, checked = request.POST.get("seen", ""), request.POST.get("checked", "")
    try:
        if found.basis is None:
            write_document(found.agent_id, found.name, content, revision=_revision(seen))
        elif checked != _digest(content, seen):
            taken = check_document(found.agent_id, found.name, content, basis=seen)
            return _editor(
                request, found, content=content, check=taken, checked=_apply_key(taken, content, seen)
            )
        else:
            write_document(found.agent_id, found.name, content, basis=seen)
    except RevisionConflict:
        now = selectors.document(person(request), found.agent.name, found.name)
        return _editor(request, now, status=412, content=content, is_conflict=True)
    except SessionsError as error:
        return _editor(request, found, status=400, content=content, problem=str(error))
    address = reverse("document", args=[found.agent.name, found.name], query={"saved": "1"})
    return HttpResponseRedirect(address, status=303)


def _revision(seen: str) -> int:
    is_number = seen.isascii() and seen.isdigit() and len(seen) < 11
    return min(int(seen), LARGEST_REVISION) if is_number else -1


def _apply_key(taken: DocumentWrite | None, content: str, seen: str) -> str:
    """What the form sends to apply the text that was checked; a text that cannot be read is not applied."""
    return "" if taken is None or taken.parse == CORRUPTED else _digest(content, seen)


def _digest(content: str, seen: str) -> str:
    return hashlib.sha256(f"{seen}\n{content}".encode()).hexdigest()


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
    return page(request, "agent/document.html", status=shown_status(request, status), **context | shown)
