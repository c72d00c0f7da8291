"""The section of an agent's page about its caps: what is set, what is spent of it, and what its turns cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from interfaces.web.pages import FormResult, given_revision, person
from sessions_app.agents.edit import update_agent
from sessions_app.connections.usable import model_warnings
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent, Turn
from sessions_app.reads.usage import total_of
from sessions_app.spending.caps import (
    AMOUNTS,
    MOST_TOKENS,
    PERIODS,
    RUN,
    WORDS,
    budget_of,
    caps_in_words,
)

CAPS = tuple(f"{period}_{name}" for period in PERIODS for name in AMOUNTS)  # the fields of `caps.html`


def change_caps(request: HttpRequest, agent: Agent) -> None:
    """Change the caps; an empty field removes one."""
    update_agent(agent.pk, {"limits": typed_caps(request)}, revision=given_revision(request))


def typed_caps(request: HttpRequest) -> dict[str, Any]:
    """The caps of a form as the API takes them; a field that it has not changes nothing. BadInput."""
    return {
        period: {
            name: _typed(request.POST[f"{period}_{name}"].strip(), name, period)
            for name in AMOUNTS
            if f"{period}_{name}" in request.POST
        }
        for period in PERIODS
    }


def _typed(text: str, name: str, period: str) -> Any:
    if not text or name == "usd":
        return text or None
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(MOST_TOKENS)):
        raise BadInput(f"tokens {WORDS[period]} must be a whole number", code="bad_limits")
    return int(text)


def stored_caps(limits: Mapping[str, Any]) -> dict[str, str]:
    """The values of the fields, as text."""
    return {
        f"{period}_{name}": str(limits.get(period, {}).get(name, ""))
        for period in PERIODS
        for name in AMOUNTS
    }


def cap_rows(shown: Mapping[str, str], words: Mapping[str, str]) -> list[dict[str, str]]:
    """What `caps.html` shows of each period. `shown`: the values of the fields; `words`: of `caps_in_words`."""
    return [
        {
            "period": period,
            "a": WORDS[period],
            "tokens": shown.get(f"{period}_tokens", ""),
            "usd": shown.get(f"{period}_usd", ""),
            "words": words.get(period, "") if period != RUN else "",  # its caps stand in the fields
        }
        for period in PERIODS
    ]


def spending(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The caps with what is spent, and the cost of the last 30 days."""
    budget = budget_of("agent", agent.pk, agent.limits, zone=agent.timezone)
    return {
        "caps": cap_rows(outcome.shown(stored_caps(agent.limits)), caps_in_words(budget)),
        "warnings": model_warnings(agent).unpriced,
        "total": total_of(Turn.objects.filter(owner_id=person(request).pk, session__agent=agent)),
    }
