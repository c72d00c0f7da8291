"""The page of a conversation and its parts."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from agent_core.execution import AT_WORK, WAITING
from sessions_app import selectors
from sessions_app.api.waiting_serializers import waiting_of
from sessions_app.models import ExecutionState, SessionState, SessionType
from sessions_app.sessions.delete import blockers_of
from sessions_app.streams.event_log import now
from sessions_app.web import transcript
from sessions_app.web.conversations import conversations, mark_read, search
from sessions_app.web.pages import fragment, leave_to, page, parts, person, person_page

LONGEST_CURSOR = 60  # characters


@person_page("GET", "HEAD")
def home(request: HttpRequest) -> HttpResponse:
    """The latest conversation; without any, a page that says how to begin. `?q=`: what a search finds.""" ""
    if query := request.GET.get("q", "").strip():
        return page(request, "found.html", conversations=search(person(request), query), query=query)
    found = conversations(person(request))
    if found:
        return leave_to(request, reverse("conversation", args=[found[0].id]))
    return page(request, "welcome.html")


@person_page("GET", "HEAD")
def conversation(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """A conversation with its newest messages."""
    user = person(request)
    cursor = str(now())  # before the messages are read, so that the page misses no event
    session = selectors.session(user, session_id)
    context = _state(user, session) | {"cursor": cursor, "page": transcript.newest(user, session_id)}
    return page(request, "conversation.html", **context, parts=parts())


@person_page("GET")
def older(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """The messages before a place."""
    try:
        found = transcript.newest(person(request), session_id, request.GET.get("before", ""))
    except ValueError as error:
        raise Http404 from error
    return fragment(request, "parts/older.html", page=found, session_id=session_id)


@person_page("GET")
def updates(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """What is new since a place, and what waits or runs now. Reloads the page when there is too much."""
    user = person(request)
    session = selectors.session(user, session_id)
    try:
        found = transcript.after(user, session_id, request.GET.get("after", ""))
    except ValueError as error:
        raise Http404 from error
    if found is None:
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    return fragment(request, "parts/updates.html", **_state(user, session), page=found)


@person_page("GET")
def listing(request: HttpRequest) -> HttpResponse:
    """The list of conversations, or those that a search finds."""
    query = request.GET.get("q", "")
    found = search(person(request), query)
    at = _session_id(request.GET.get("at", ""))
    return fragment(request, "parts/conversations.html", conversations=found, query=query.strip(), at=at)


def _session_id(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


@person_page("POST")
def read(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """The person has seen the conversation up to here."""
    user = person(request)
    given = request.POST.get("seq", "").partition(".")[0]
    if given.isascii() and given.isdigit() and len(given) < len(str(selectors.LARGEST_ID)):
        mark_read(selectors.shown_id(user, session_id), int(given))
    return HttpResponse(status=204)


@person_page("GET", "HEAD")
def about_deleting(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """What is deleted with a conversation, and what prevents it."""
    session = selectors.session(person(request), session_id)
    return deletion_page(request, session)


def deletion_page(request: HttpRequest, session: Any, status: int = 200) -> HttpResponse:
    """The page that asks before a conversation is deleted."""
    context = {"session": session, "title": title_of(session), "blockers": blockers_of(session.pk)}
    return page(request, "delete.html", status=status, **context)


def title_of(session: Any) -> str:
    """The title that people see."""
    is_primary = session.type == SessionType.PRIMARY
    return session.title or (session.agent_name if is_primary else "New conversation")


def _state(user: User, session: Any) -> dict[str, Any]:
    """What the parts of a conversation show beside its messages."""
    turns = transcript.shown_turns(user, session.pk)
    waiting = waiting_of(session)
    return {
        "session": session,
        "title": title_of(session),
        "can_write": session.state == SessionState.OPEN
        and session.type in {SessionType.PRIMARY, SessionType.SUB},
        "turns": turns,
        "running": next((turn for turn in turns if turn.state == "running"), None),
        "waiting": waiting,
        "plan": _plan(session.target_id),
    }


def _plan(session_id: uuid.UUID) -> ExecutionState | None:
    """The plan that the session works on or that waits for an answer."""
    rows = ExecutionState.objects.filter(session_id=session_id, status__in=[*AT_WORK, *WAITING])
    return rows.order_by("-updated_at").first()
