"""What people do in a conversation: send, stop, answer, rename, archive, delete."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from interfaces.web.chat import deletion_page
from interfaces.web.pages import done, leave_to, person, person_page
from sessions_app.exceptions import NotWaiting, QuestionTaken
from sessions_app.models import Agent, OnBusy, Session, SessionState, SessionType, Turn
from sessions_app.models.session import LONGEST_ADDRESS, WEB
from sessions_app.questions import question_reads, questions
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.reads import selectors
from sessions_app.sessions.delete import delete_session
from sessions_app.sessions.open import archive_session, open_session, rename_session, unarchive_session
from sessions_app.single_line import check_line

LONGEST_TITLE = 200  # characters
LONGEST_KEY = 100  # characters
LATEST_TURNS = 20  # in which an answer that was sent twice is looked for


@person_page("POST")
def begin_conversation(request: HttpRequest) -> HttpResponse:
    """Open a conversation with an agent."""
    agent = selectors.agent(person(request), request.POST.get("agent", "")[:LONGEST_ADDRESS])
    found = _unused(agent) or open_session(agent)
    return leave_to(request, reverse("conversation", args=[found.pk]))


def _unused(agent: Agent) -> Session | None:
    """The newest conversation of the pages in which nothing was said."""
    rows = Session.objects.filter(agent=agent, type=SessionType.SUB, channel=WEB, state=SessionState.OPEN)
    return rows.filter(last_seq=0, title="", turns=None).order_by("-created_at").first()


@person_page("POST")
def send_message(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Send a message. `key` is made by the page, so that a repeated request does not send it twice."""
    content = request.POST.get("content", "").replace("\r\n", "\n").strip()
    on_busy = OnBusy.INTERRUPT if request.POST.get("on_busy") == OnBusy.INTERRUPT else OnBusy.INJECT
    key = request.POST.get("key", "")[:LONGEST_KEY].replace("\x00", "")
    given = MessageInput(content=content, on_busy=on_busy, idempotency_key=f"web:{key}" if key else None)
    receive(session_id, given, person(request).pk)
    return done(request, reverse("conversation", args=[session_id]))


@person_page("POST")
def stop_turn(request: HttpRequest, turn_id: int) -> HttpResponse:
    """Stop a turn that runs, or withdraw one that waits."""
    turn = selectors.turn(person(request), turn_id)
    cancel_turn(turn.pk)
    return done(request, reverse("conversation", args=[turn.session_id]))


@person_page("POST")
def allow_or_refuse(request: HttpRequest, question_id: str) -> HttpResponse:
    """Allow or refuse the calls that a question names."""
    question = question_reads.question(person(request), question_id)
    content = "yes" if request.POST.get("answer") == "yes" else "no"
    with _once(question.session_id, question.pk, content):
        questions.answer_consent(question, content)
    return done(request, reverse("conversation", args=[question.session_id]))


@person_page("POST")
def answer_plan(request: HttpRequest, execution_id: str) -> HttpResponse:
    """Answer the question of a plan that the page showed. An answer to another question is refused."""
    execution = selectors.execution(person(request), execution_id)
    content = request.POST.get("content", "").replace("\r\n", "\n").strip()
    question = request.POST.get("question", "")[:LONGEST_KEY]
    with _once(execution.session_id, question, content):
        if not question:
            raise NotWaiting
        questions.answer_question(execution, content, question=question)
    return done(request, reverse("conversation", args=[execution.session_id]))


@contextmanager
def _once(session_id: uuid.UUID, question: str, content: str) -> Iterator[None]:
    """A form that is sent twice answers once: the second answer, in the same words, is done already."""
    try:
        yield
    except (NotWaiting, QuestionTaken):
        turns = Turn.objects.filter(session_id=session_id).order_by("-pk")[:LATEST_TURNS]
        if not any(
            turn.content == content and turn.input.question == question and question for turn in turns
        ):
            raise


@person_page("POST")
def rename(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Change the title. An empty one is made from the first message again."""
    session = selectors.session(person(request), session_id)
    rename_session(session.pk, check_line("title", request.POST.get("title", "").strip()[:LONGEST_TITLE]))
    return leave_to(request, reverse("conversation", args=[session_id]))


@person_page("POST")
def put_away(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Archive the conversation: it can be read, and takes no messages."""
    archive_session(selectors.session(person(request), session_id))
    return leave_to(request, reverse("conversation", args=[session_id]))


@person_page("POST")
def take_back(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Open an archived conversation again."""
    unarchive_session(selectors.session(person(request), session_id))
    return leave_to(request, reverse("conversation", args=[session_id]))


@person_page("POST")
def delete_conversation(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Delete the conversation. The page that asks is shown again while automations prevent it."""
    session = selectors.session(person(request), session_id)
    deletion = delete_session(session.pk, with_dependents=request.POST.get("delete_automations") == "yes")
    if not deletion.deleted:
        return deletion_page(request, session, status=409)
    return leave_to(request, reverse("home"))
