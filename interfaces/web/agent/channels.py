"""Sections of an agent's page: its channels with a test message that goes the way of a scheduled one, and Telegram."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from automations import selectors as automation_selectors
from automations.exceptions import MessageNotFound
from automations.jobs.clock import database_now
from automations.models import MessageStatus, ScheduledMessage
from automations.scheduled_messages import schedule_in_thread
from interfaces.web.pages import FormResult, fragment, person, person_page
from sessions_app.channels import base as channels
from sessions_app.exceptions import BadInput, NotFound, TooSoon
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.models import Agent, Delivery, Session, SessionState, SessionType, TelegramBot
from sessions_app.models.session import WEB, ChatType
from sessions_app.reads import selectors
from sessions_app.telegram import bots
from sessions_app.telegram.client import MISSING, is_installed

TEXT = "This is a test message. It was sent from the page of the agent, to see whether messages arrive here."
TESTS = Rate(limit=1, seconds=10)  # test messages of each person
SOON = timedelta(seconds=1)  # after which the message is due: one that is due already is refused
MOST = 30  # conversations that are listed
MOST_READ = 200
WATCHED = timedelta(minutes=3)  # for which a page asks for the state of a test by itself
LONGEST_ID = 32


def send_test(request: HttpRequest, agent: Agent, session_id: uuid.UUID) -> HttpResponse:
    """Send a test message to where the session's messages go. BadInput, TooSoon."""
    user = person(request)
    session = selectors.session(user, session_id)
    if session.agent_id != agent.pk:
        raise NotFound(selectors.NO_SESSION)
    if problem := _why_untestable(session):
        raise BadInput(problem, code="bad_channel")
    if wait := take_allowance(f"test-channel:{user.pk}", TESTS):
        raise TooSoon(f"A test was sent a moment ago; try again in {wait:.0f} seconds.")
    at = (database_now() + SOON).isoformat()
    sent = schedule_in_thread(session.pk, send_at=at, message_text=TEXT).message
    address = reverse("agent", args=[agent.name], query={"test": sent.pk}, fragment="channels")
    return HttpResponseRedirect(address, status=303)


@person_page("GET")
def test_state(request: HttpRequest, message_id: str) -> HttpResponse:
    """The state of a test message."""
    message = automation_selectors.scheduled_message(person(request), message_id)
    return fragment(request, "agent/test_state.html", test=_state(message))


def _why_untestable(session: Any) -> str:
    route = session.standing_route
    if route["channel"] == WEB:
        return "This conversation is on the web: its messages stay on this server."
    if session.chat_type != ChatType.PRIVATE:
        return "This chat is a group: no test messages are sent to groups."
    return channels.why_unserved(route, session.agent_id)


def shown_channels(request: HttpRequest, agent: Agent, _outcome: FormResult) -> dict[str, Any]:
    """The channels of this server, and the conversations whose messages leave it."""
    return {
        "known": [WEB, *sorted(channels.known())],
        "chats": _chats(agent),
        "test": _asked_for(request),
    }


def _chats(agent: Agent) -> list[dict[str, Any]]:
    """The conversations whose messages leave the server, with their last delivery."""
    last = Delivery.objects.filter(session=OuterRef("pk")).order_by("-id")
    people = Session.objects.filter(agent=agent, type__in=[SessionType.PRIMARY, SessionType.SUB])
    rows = (
        people.filter(state=SessionState.OPEN)
        .exclude(channel=WEB, last_route__isnull=True)
        .order_by("-updated_at")
    )
    shown = rows.annotate(
        last_state=Subquery(last.values("state")[:1]), last_error=Subquery(last.values("last_error")[:1])
    )
    found = [each for each in shown[:MOST_READ] if each.standing_route["channel"] != WEB]
    return [
        {"session": each, "route": each.standing_route, "problem": _why_untestable(each)}
        for each in found[:MOST]
    ]


def _asked_for(request: HttpRequest) -> dict[str, Any] | None:
    """The test message that the address names, if it is the person's."""
    given = request.GET.get("test", "")
    if not given or len(given) > LONGEST_ID or "\x00" in given:
        return None
    try:
        return _state(automation_selectors.scheduled_message(person(request), given))
    except MessageNotFound:
        return None


def _state(message: ScheduledMessage) -> dict[str, Any]:
    """The state of a test message: its delivery's, once there is one. `is_open`: it can still change by itself."""
    sent = message.sent_message_id
    delivery = Delivery.objects.filter(message_id=sent).first() if sent else None
    is_open = message.status == MessageStatus.PENDING
    return {
        "id": message.pk,
        "session": message.session_id,
        "status": message.status,
        "state": delivery.state if delivery else "waiting" if is_open else message.status,
        "attempts": delivery.attempts if delivery else 0,
        "error": (delivery.last_error if delivery else "") or message.last_error,
        "is_open": is_open,
        "is_watched": is_open and datetime.now(UTC) - message.created_at < WATCHED,
    }


def change_bot(request: HttpRequest, agent: Agent) -> None:
    """Give the agent a bot, replace its token, switch it on or off, or delete it."""
    action = request.POST.get("action", "")
    if action in {"on", "off"}:
        bots.update_bot(agent.pk, enabled=action == "on")
    elif action == "delete":
        bots.delete_bot(agent.pk)
    else:
        if wait := take_allowance(f"test-telegram:{person(request).pk}", bots.TESTS):
            raise TooSoon(f"Too many tokens were tried; try again in {wait:.0f} seconds.")
        checked = bots.check_token(request.POST.get("token", "").strip())
        try:
            bots.update_bot(agent.pk, checked=checked)
        except NotFound:
            bots.add_bot(agent, checked)


def make_code(_request: HttpRequest, agent: Agent) -> dict[str, Any]:
    """Make a code that connects a chat. It is shown in this answer only."""
    code = bots.issue_code(agent.pk)
    return {"code": code.code, "link": code.link}


def disconnect_chat(_request: HttpRequest, agent: Agent, chat_id: int) -> None:
    """Disconnect a chat. NotFound."""
    bots.disconnect(agent.pk, chat_id)


def telegram(_request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The bot with its chats."""
    bot = TelegramBot.objects.filter(agent=agent).first()
    return {
        "bot": bot,
        "problem": bots.why_unusable(bot) if bot is not None else "",
        "missing": "" if is_installed() else MISSING,
        "chats": list(bots.chats_of(bot)) if bot is not None else [],
        "found": outcome.found,
        "minutes": int(bots.CODE_VALID.total_seconds() // 60),
    }
