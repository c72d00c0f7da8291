"""The section of an agent's page about its caps: what is set, what is spent of it, and what its turns cost."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from agent_core.spending import Budget
from interfaces.web.pages import FormResult, given_revision, person
from sessions_app.agents.edit import update_agent
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent, Turn
from sessions_app.reads.usage import total_of
from sessions_app.spending.caps import MOST_TOKENS, PERIODS, WORDS, shown_caps


def change_caps(request: HttpRequest, agent: Agent) -> None:
    """Change the caps; an empty field removes one."""
    limits = {
        period: {name: _typed(request, f"{period}_{name}", period) for name in ("tokens", "usd")}
        for period in PERIODS
    }
    update_agent(agent.pk, {"limits": limits}, revision=given_revision(request))


def _typed(request: HttpRequest, field: str, period: str) -> Any:
    text = request.POST.get(field, "").strip()
    if not text or field.endswith("usd"):
        return text or None
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(MOST_TOKENS)):
        raise BadInput(f"tokens of {WORDS[period]} must be a whole number", code="bad_limits")
    return int(text)


def spending(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The caps with what is spent, and the cost of the last 30 days."""
    budget = Budget(scope="agent", subject=str(agent.pk), name="", limits=agent.limits, zone=agent.timezone)
    [limits] = shown_caps([budget])
    stored = {
        f"{period}_{name}": limits.get(period, {}).get(name, "")
        for period in PERIODS
        for name in ("tokens", "usd")
    }
    typed = outcome.shown(stored)
    return {
        "rows": [
            {
                "period": period,
                "words": WORDS[period],
                "tokens": typed[f"{period}_tokens"],
                "usd": typed[f"{period}_usd"],
                "cap": limits.get(period, {}),
            }
            for period in PERIODS
        ],
        "total": total_of(Turn.objects.filter(owner_id=person(request).pk, session__agent=agent)),
    }
