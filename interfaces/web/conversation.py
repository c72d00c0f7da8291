"""The page of a conversation: its parts, and what people do in it: send, stop, answer, rename, archive, delete."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils.html import format_html

from agent_core.execution import AT_WORK, WAITING
from agent_core.turn.consent import shown_value
from automations.appointments.panel import appointments_made
from interfaces.http.headers import is_fragment
from interfaces.web import transcript
from interfaces.web.agent.new import NewAgentForm
from interfaces.web.conversation_calls import DOING
from interfaces.web.messages import bounds_of_files, given_files, may_be_sent_again
from interfaces.web.pages import (
    Listing,
    back_to_upcoming,
    conversations,
    fragment,
    latest,
    leave_to,
    mark_read,
    page,
    person,
    person_page,
    search,
    title_of,
    whole_number,
)
from interfaces.web.rendering import LONGEST, plain, render_growing
from sessions_app.exceptions import NotFound, NotWaiting, QuestionTaken
from sessions_app.memory.files import files_of, with_note
from sessions_app.models import (
    Agent,
    ExecutionState,
    MailboxEvent,
    Message,
    OnBusy,
    Session,
    SessionState,
    SessionType,
    Turn,
    TurnInput,
)
from sessions_app.models.session import LONGEST_ADDRESS, WEB
from sessions_app.models.turn import OPEN_STATES
from sessions_app.questions import question_reads, questions
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.reads import selectors
from sessions_app.sessions.delete import blockers_of, companions_of, delete_session, must_be_deletable
from sessions_app.sessions.open import archive_session, open_session, rename_session, unarchive_session
from sessions_app.single_line import check_line, one_line
from sessions_app.streams.event_log import now

LONGEST_PLACE = 100  # characters
LONGEST_TITLE = 200  # characters
LONGEST_KEY = 100  # characters
LONGEST_RESULT = 300  # characters
LONGEST_WAIT = timedelta(minutes=10)  # for what comes of an answer
MOST_UPDATES = 20  # background updates that are shown before they come
LATEST_TURNS = 20  # in which an answer that was sent twice is looked for


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
    if newest := latest(user).first():
        return leave_to(request, reverse("conversation", args=[newest.pk]))
    return page(request, "welcome.html", form=NewAgentForm())


@person_page("GET", "HEAD")
def conversation(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """A conversation with its newest messages."""
    user = person(request)
    cursor = str(now())  # before the messages are read, so that the page misses no event
    session = selectors.session(user, session_id)
    turns, found = transcript.open_turns(user, session.target_id), transcript.newest(user, session_id)
    committed = {entry.turn for entry in found.entries}  # a turn may end between the two reads
    waiting = [turn for turn in turns if turn.id not in committed]
    context = _state(session, waiting) | {"cursor": cursor, "page": found, "doing": json.dumps(DOING)}
    context["bounds"] = bounds_of_files(session.agent)
    return page(request, "conversation.html", **context)


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
    """The messages since a place, and the turns that wait or run. Reloads the page when there are too many messages."""
    user = person(request)
    session = selectors.session(user, session_id)
    try:
        found = transcript.after(user, session_id, request.GET.get("after", ""))
    except ValueError as error:
        raise Http404 from error
    if found is None:
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    state = _state(session, transcript.open_turns(user, session.target_id))
    asked = filter(None, (whole_number(each, selectors.LARGEST_ID) for each in request.GET.getlist("asked")))
    settled = transcript.settled(user, session_id, asked)
    return fragment(request, "parts/updates.html", **state, page=found, settled=settled)


@person_page("GET")
def made(request: HttpRequest, session_id: uuid.UUID, turn_id: int) -> HttpResponse:
    """The cards of the appointments that a turn made, as they are now."""
    user = person(request)
    turn = selectors.turn(user, turn_id)
    found = appointments_made(user, [turn.pk]).get(turn.pk, ())
    shown = {"session_id": selectors.session(user, session_id).pk, "turn": turn.pk}
    return fragment(request, "parts/made.html", made=found, **shown)


@person_page("GET")
def listing(request: HttpRequest) -> HttpResponse:
    """The list of conversations, or those that a search finds; `?before=`: what follows at the end of the list.

    Each page asks for it every few seconds: `?mark=` is that of the list which it has, and nothing is sent if it is
    the same.
    """
    query = request.GET.get("q", "").strip()
    at = request.GET.get("at", "")
    if request.GET.get("before"):
        return fragment(request, "parts/listed.html", listing=_listed(request), at=at, is_more=True)
    found = search(person(request), query) if query else _listed(request)
    answer = fragment(request, "parts/conversations.html", listing=found, query=query, at=at)
    mark = sha256(answer.content).hexdigest()[:16]
    if request.GET.get("mark") == mark:
        return HttpResponse(status=204)
    answer.write(format_html('<input type="hidden" name="mark" value="{}">', mark))
    return answer


def _listed(request: HttpRequest) -> Listing:
    before, shown = request.GET.get("before", "")[:LONGEST_PLACE], whole_number(request.GET.get("shown", ""))
    try:
        return conversations(person(request), before=before, shown=shown or 0)
    except ValueError as error:
        raise Http404 from error


@person_page("POST")
def rendered(request: HttpRequest) -> HttpResponse:
    """The end of a running answer as HTML. `length`: of its closed blocks, which need not be rendered again."""
    text = request.POST.get("text", "")[: LONGEST + 1]
    closed, length, growing = render_growing(text)
    return JsonResponse({"closed": closed, "length": length, "growing": growing})


@person_page("POST")
def read(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Store up to which message the person has seen the conversation."""
    user = person(request)
    seq = whole_number(request.POST.get("seq", "").partition(".")[0], selectors.LARGEST_ID)
    if seq is not None:
        mark_read(selectors.shown_id(user, session_id), seq)
    return HttpResponse(status=204)


def can_write(session: Any) -> bool:
    """Whether people can send messages to it and plan in it."""
    return session.state == SessionState.OPEN and session.type in {SessionType.PRIMARY, SessionType.SUB}


def _state(session: Any, turns: list[Turn]) -> dict[str, Any]:
    """The values that the parts of a conversation's page need beside its messages."""
    waiting = session.waiting
    of_session = ExecutionState.objects.filter(session_id=session.target_id)
    mail = MailboxEvent.objects.filter(target=session.target_id, acknowledged_at=None, dropped_at=None)
    return {
        "session": session,
        "title": title_of(session),
        "can_write": can_write(session),
        "turns": turns,
        "running": next((turn for turn in turns if turn.state == "running"), None),
        "waiting": _questions(waiting.shown, session.shown_seq),
        "more_waiting": waiting.is_more,
        # that the session works on or that waits for an answer
        "plan": of_session.filter(status__in=[*AT_WORK, *WAITING]).order_by("-updated_at").first(),
        # that come with the next message, and the first of them
        "updates": mail.count(),
        "first_updates": mail.order_by("-priority", "id").defer("detail", "artifacts")[:MOST_UPDATES],
    }


def _questions(shown: Iterable[dict[str, Any]], last_seq: int) -> list[dict[str, Any]]:
    """The questions with their calls as they show them themselves: names and values to the letter, as pairs.

    Those of scheduled turns also with who asked, and until when they can be answered. `is_said`: its message is the
    last one.
    """
    found = [
        asked | {"calls": to_the_letter(asked["calls"] or ()), "is_said": asked["asked_seq"] == last_seq}
        for asked in shown
    ]
    ids = [asked["question_id"] for asked in found if asked["calls"] and not asked["execution"]]
    scheduled = question_reads.scheduled(ids)
    return [asked | scheduled.get(asked["question_id"], {}) for asked in found]


def to_the_letter(calls: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The calls that a question is about, each argument as a pair of its name and its value."""
    return [
        {
            **call,
            "arguments": [
                (shown_value(name)[1:-1], shown_value(value))
                for name, value in sorted(call["arguments"].items())
            ],
        }
        for call in calls
    ]


def _done(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """The answer to a form: an event for the script that sent it, or a redirect for a browser without scripts."""
    if is_fragment(request):
        return HttpResponse(status=204, headers={"HX-Trigger": "refresh"})
    return HttpResponseRedirect(reverse("conversation", args=[session_id]), status=303)


@person_page("POST")
def begin_conversation(request: HttpRequest) -> HttpResponse:
    """Open a conversation with an agent."""
    agent = selectors.agent(person(request), request.POST.get("agent", "")[:LONGEST_ADDRESS])
    found = _unused(agent) or open_session(agent)
    return leave_to(request, reverse("conversation", args=[found.pk]))


def _unused(agent: Agent) -> Session | None:
    """The agent's newest conversation of the pages with no message, title, turn, or anything scheduled."""
    rows = Session.objects.filter(agent=agent, type=SessionType.SUB, channel=WEB, state=SessionState.OPEN)
    blank = rows.filter(last_seq=0, title="", turns=None)
    return blank.filter(jobs=None, routines=None, scheduled_messages=None).order_by("-created_at").first()


@person_page("POST")
def send_message(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Send a message with its files. `key` is made by the page, so that a repeated request does not send it twice."""
    user, files = person(request), given_files(request)
    content = with_note(request.POST.get("content", "").replace("\r\n", "\n").strip(), files)
    on_busy = OnBusy.INTERRUPT if request.POST.get("on_busy") == OnBusy.INTERRUPT else OnBusy.INJECT
    key = request.POST.get("key", "")[:LONGEST_KEY].replace("\x00", "")
    key = f"web:{key}" if key else ""
    given = MessageInput(content=content, files=files, on_busy=on_busy, idempotency_key=key or None)
    receive(session_id, given, user.pk)
    return _done(request, session_id)


@person_page("POST")
def try_again(request: HttpRequest, session_id: uuid.UUID, turn_id: int) -> HttpResponse:
    """Send a message whose turn failed or was stopped once more, with its files: a new turn, the history stays."""
    user = person(request)
    session, turn = selectors.session(user, session_id), selectors.turn(user, turn_id)
    if turn.session_id not in {session.pk, session.target_id} or not may_be_sent_again(turn):
        raise NotFound("this message cannot be sent again")
    given = MessageInput(
        content=turn.content,
        files=files_of(turn),
        about=TurnInput(limited=turn.input.limited),
        on_busy=OnBusy.ENQUEUE,
        idempotency_key=f"web:again:{turn.pk}",  # a button that is pressed twice sends it once
    )
    receive(session_id, given, user.pk)
    return _done(request, session_id)


@person_page("POST")
def stop_turn(request: HttpRequest, turn_id: int) -> HttpResponse:
    """Stop a turn that runs, or withdraw one that waits."""
    turn = selectors.turn(person(request), turn_id)
    cancel_turn(turn.pk)
    return _done(request, turn.session_id)


@person_page("POST")
def allow_or_refuse(request: HttpRequest, question_id: str) -> HttpResponse:
    """Allow or refuse the calls that a question names."""
    question = question_reads.question(person(request), question_id)
    content = "yes" if request.POST.get("answer") == "yes" else "no"
    turn = _once(
        question.session_id, question.pk, content, lambda: questions.answer_consent(question, content)
    )
    return _answered(request, turn)


@person_page("POST")
def answer_plan(request: HttpRequest, execution_id: str) -> HttpResponse:
    """Answer the question of a plan that the page showed. An answer to another question is refused."""
    execution = selectors.execution(person(request), execution_id)
    content = request.POST.get("content", "").replace("\r\n", "\n").strip()
    question = request.POST.get("question", "")[:LONGEST_KEY]
    if not question:
        raise NotWaiting
    turn = _once(
        execution.session_id,
        question,
        content,
        lambda: questions.answer_question(execution, content, question=question),
    )
    return _answered(request, turn)


def _once(session_id: uuid.UUID, question: str, content: str, answer: Callable[[], Turn]) -> Turn:
    """A form that is sent twice answers once: the second answer, in the same words, is done already."""
    try:
        return answer()
    except (NotWaiting, QuestionTaken):
        for turn in Turn.objects.filter(session_id=session_id).order_by("-pk")[:LATEST_TURNS]:
            if turn.content == content and turn.input.question == question:
                return turn
        raise


def _answered(request: HttpRequest, turn: Turn) -> HttpResponse:
    """What a form that answers a question gets; on the page of all conversations what comes of it is shown there."""
    if "week" in request.POST and is_fragment(request):
        return fragment(request, "parts/outcome.html", turn=turn, said=_said(turn))
    if back := back_to_upcoming(request):
        messages.success(request, _said(turn))
    return back or _done(request, turn.session_id)


def _said(turn: Turn) -> str:
    said = {"yes": "Allowed.", "no": "Refused."}
    return "Answered." if turn.input.execution else said.get(turn.content, "Answered.")


@person_page("GET")
def outcome(request: HttpRequest, turn_id: int) -> HttpResponse:
    """What came of an answer, once its turn has ended; 204 while it works, for at most ten minutes."""
    turn = selectors.turn(person(request), turn_id)
    is_open = turn.state in OPEN_STATES
    if is_open and datetime.now(UTC) - turn.queued_at < LONGEST_WAIT:
        return HttpResponse(status=204)
    told = Message.objects.filter(turn=turn, role="assistant").exclude(content="").order_by("-seq").first()
    result = turn.error or (plain(told.content[:LONGEST_RESULT]) if told else "")
    if is_open:
        result = "It is not done yet: see the conversation."
    about: dict[str, Any] = {
        "turn": turn,
        "said": _said(turn),
        "result": one_line(result, LONGEST_RESULT),
        "is_over": True,
    }
    answer = fragment(request, "parts/outcome.html", **about)
    answer["HX-Trigger"] = "list-changed"  # which counts the questions
    return answer


@person_page("POST")
def rename(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Change the title. An empty one is made from the first message again."""
    session = selectors.session(person(request), session_id)
    rename_session(session.pk, check_line("title", request.POST.get("title", "").strip()[:LONGEST_TITLE]))
    return leave_to(request, reverse("conversation", args=[session_id]))


@person_page("POST")
def archive(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Archive the conversation: it can be read, and takes no messages."""
    archive_session(selectors.session(person(request), session_id))
    undo = reverse("unarchive", args=[session_id])
    messages.success(request, "The conversation is archived. Its automations do not run.", extra_tags=undo)
    return leave_to(request, reverse("conversation", args=[session_id]))


@person_page("POST")
def unarchive(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Open an archived conversation again."""
    unarchive_session(selectors.session(person(request), session_id))
    messages.success(
        request, "The conversation is open again.", extra_tags=reverse("archive", args=[session_id])
    )
    return leave_to(request, reverse("conversation", args=[session_id]))


@person_page("GET", "HEAD")
def about_deleting(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """What is deleted with a conversation, and what prevents it."""
    session = selectors.session(person(request), session_id)
    return _deletion_page(request, session)


@person_page("POST")
def delete_conversation(request: HttpRequest, session_id: uuid.UUID) -> HttpResponse:
    """Delete the conversation. The page that asks is shown again while automations prevent it."""
    session = selectors.session(person(request), session_id)
    deletion = delete_session(session.pk, with_dependents=request.POST.get("delete_automations") == "yes")
    if not deletion.deleted:
        return _deletion_page(request, session, status=409)
    messages.success(request, f"“{title_of(session)}” is deleted.")
    return leave_to(request, reverse("home"))


def _deletion_page(request: HttpRequest, session: Any, status: int = 200) -> HttpResponse:
    """The page that asks before a conversation is deleted. BadInput for a conversation that cannot be."""
    must_be_deletable(session)
    along = {"blockers": blockers_of(session.pk), "scheduled": companions_of(session.pk)}
    about = {"title": title_of(session), "can_write": can_write(session)}
    return page(request, "delete.html", status=status, session=session, **about, **along)
