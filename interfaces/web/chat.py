"""The page of a conversation and its parts."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse

from agent_core.execution import AT_WORK, WAITING
from agent_core.turn.consent import shown_value
from interfaces.web import transcript
from interfaces.web.conversations import Listing, conversations, mark_read, search
from interfaces.web.pages import PARTS, fragment, leave_to, page, person, person_page
from interfaces.web.rendering import LONGEST, render_growing
from sessions_app.models import ExecutionState, MailboxEvent, SessionState, SessionType
from sessions_app.questions.question_reads import waiting_questions
from sessions_app.reads import selectors
from sessions_app.sessions.delete import must_be_deletable
from sessions_app.sessions.dependents import blockers_of, companions_of
from sessions_app.streams.event_log import now

LONGEST_PLACE = 100  # characters


@person_page("GET", "HEAD")
def home(request: HttpRequest) -> HttpResponse:
    """The latest conversation; without any, a page that says how to begin.

    For browsers without scripts: `?q=`: what a search finds; `?before=`: the list from a place on.
    """
    user = person(request)
    if query := request.GET.get("q", "").strip():
        found = search(user, query)
        return page(request, "found.html", found=found, listing=found, query=query)
    if request.GET.get("before"):
        return page(request, "found.html", found=_listed(request))
    latest = conversations(user).rows
    if latest:
        return leave_to(request, reverse("conversation", args=[latest[0].id]))
    return page(request, "welcome.html")


@person_page("GET", "HEAD")
def conversation(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """A conversation with its newest messages."""
    user = person(request)
    cursor = str(now())  # before the messages are read, so that the page misses no event
    session = selectors.session(user, session_id)
    turns, found = transcript.shown_turns(user, session.pk), transcript.newest(user, session_id)
    committed = {entry.turn for entry in found.entries}  # a turn may end between the two reads
    waiting = [turn for turn in turns if turn.id not in committed]
    context = _state(session, waiting) | {"cursor": cursor, "page": found}
    return page(request, "conversation.html", **context, parts=PARTS)


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
    state = _state(session, transcript.shown_turns(user, session.pk))
    return fragment(request, "parts/updates.html", **state, page=found)


@person_page("GET")
def listing(request: HttpRequest) -> HttpResponse:
    """The list of conversations, or those that a search finds; `?before=`: what follows at the end of the list."""
    query = request.GET.get("q", "").strip()
    at = _session_id(request.GET.get("at", ""))
    if request.GET.get("before"):
        return fragment(request, "parts/listed.html", listing=_listed(request), at=at, is_more=True)
    found = search(person(request), query) if query else _listed(request)
    return fragment(request, "parts/conversations.html", listing=found, query=query, at=at)


def _listed(request: HttpRequest) -> Listing:
    before, shown = request.GET.get("before", ""), request.GET.get("shown", "")[:6]
    already = int(shown) if shown.isascii() and shown.isdigit() else 0
    try:
        return conversations(person(request), before=before[:LONGEST_PLACE], shown=already)
    except ValueError as error:
        raise Http404 from error


def _session_id(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


@person_page("POST")
def rendered(request: HttpRequest) -> HttpResponse:
    """The end of a running answer as HTML. `length`: of its closed blocks, which need not be rendered again."""
    text = request.POST.get("text", "")[: LONGEST + 1]
    closed, length, growing = render_growing(text)
    return JsonResponse({"closed": closed, "length": length, "growing": growing})


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
    """The page that asks before a conversation is deleted. BadInput for a conversation that cannot be."""
    must_be_deletable(session)
    along = {"blockers": blockers_of(session.pk), "messages": companions_of(session.pk)}
    return page(request, "delete.html", status=status, session=session, title=title_of(session), **along)


def title_of(session: Any) -> str:
    """The title that people see."""
    is_primary = session.type == SessionType.PRIMARY
    return session.title or (session.agent_name if is_primary else "New conversation")


def can_write(session: Any) -> bool:
    """Whether people can send messages to it and plan in it."""
    return session.state == SessionState.OPEN and session.type in {SessionType.PRIMARY, SessionType.SUB}


def _state(session: Any, turns: list[transcript.Waiting]) -> dict[str, Any]:
    """What the parts of a conversation show beside its messages."""
    waiting = waiting_questions(session)
    return {
        "session": session,
        "title": title_of(session),
        "can_write": can_write(session),
        "turns": turns,
        "running": next((turn for turn in turns if turn.state == "running"), None),
        "waiting": [_question(each) for each in waiting.shown],
        "more_waiting": waiting.is_more,
        "plan": _plan(session.target_id),
        "updates": _unread_updates(session.target_id),
    }


def _unread_updates(session_id: uuid.UUID) -> int:
    """How many background updates come with the next message."""
    unread = {"acknowledged_at": None, "dropped_at": None}
    return MailboxEvent.objects.filter(target=session_id, **unread).count()


def _question(asked: dict[str, Any]) -> dict[str, Any]:
    """The question with its calls as the question itself shows them: names and values to the letter, as pairs."""
    calls = [call | {"arguments": _shown(call["arguments"])} for call in asked["calls"] or ()]
    return asked | {"calls": calls}


def _shown(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(shown_value(name)[1:-1], shown_value(value)) for name, value in sorted(arguments.items())]


def _plan(session_id: uuid.UUID) -> ExecutionState | None:
    """The plan that the session works on or that waits for an answer."""
    rows = ExecutionState.objects.filter(session_id=session_id, status__in=[*AT_WORK, *WAITING])
    return rows.order_by("-updated_at").first()
