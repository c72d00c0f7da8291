"""The section of an agent's page about Telegram: its bot, codes that connect chats, and the connected chats."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from interfaces.web.agent.sections import Outcome, Section, agent_page, saved
from interfaces.web.pages import person, person_page
from sessions_app.exceptions import NotFound, SessionsError, TooSoon
from sessions_app.limits.allowance import take_allowance
from sessions_app.models import Agent, TelegramBot
from sessions_app.reads import selectors
from sessions_app.telegram import binding, bots
from sessions_app.telegram.client import MISSING, is_installed

ANCHOR = "telegram"


@person_page("POST")
def change_bot(request: HttpRequest, name: str) -> HttpResponse:
    """Give the agent a bot, replace its token, switch it on or off, or delete it."""
    agent = selectors.agent(person(request), name)
    try:
        _change(request, agent, request.POST.get("action", ""))
    except TooSoon:
        raise
    except SessionsError as error:
        return agent_page(request, agent, Outcome(anchor=ANCHOR, problem=str(error)), status=400)
    return saved(agent, ANCHOR)


def _change(request: HttpRequest, agent: Agent, action: str) -> None:
    if action in {"on", "off"}:
        bots.update_bot(agent.pk, enabled=action == "on")
    elif action == "delete":
        bots.delete_bot(agent.pk)
    else:
        _check_allowance(request)
        checked = bots.check_token(request.POST.get("token", "").strip())
        try:
            bots.update_bot(agent.pk, checked=checked)
        except NotFound:
            bots.add_bot(agent, checked)


def _check_allowance(request: HttpRequest) -> None:
    if wait := take_allowance(f"test-telegram:{person(request).pk}", bots.TESTS):
        raise TooSoon(f"Too many tokens were tried; try again in {wait:.0f} seconds.")


@person_page("POST")
def make_code(request: HttpRequest, name: str) -> HttpResponse:
    """Make a code that connects a chat. It is shown in this answer only."""
    agent = selectors.agent(person(request), name)
    code = binding.issue_code(agent.pk)
    found = {"code": code.code, "link": code.link}
    return agent_page(request, agent, Outcome(anchor=ANCHOR, found=found))


@person_page("POST")
def disconnect_chat(request: HttpRequest, name: str, chat_id: int) -> HttpResponse:
    """Disconnect a chat. NotFound."""
    agent = selectors.agent(person(request), name)
    binding.disconnect(agent.pk, chat_id)
    return saved(agent, ANCHOR)


def _telegram(_request: HttpRequest, agent: Agent, outcome: Outcome | None) -> dict[str, Any]:
    bot = TelegramBot.objects.filter(agent=agent).first()
    return {
        "bot": bot,
        "problem": bots.why_unusable(bot) if bot is not None else "",
        "missing": "" if is_installed() else MISSING,
        "chats": list(bots.chats_of(bot)) if bot is not None else [],
        "found": outcome.found if outcome else {},
        "minutes": int(binding.VALID.total_seconds() // 60),
    }


SECTION = Section(anchor=ANCHOR, title="Telegram", template="web/agent/telegram.html", read=_telegram)
