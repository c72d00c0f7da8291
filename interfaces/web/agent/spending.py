"""The section of an agent's page about its caps: what is set, what is spent of it, and what its turns cost."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from interfaces.web.pages import FormResult, given_revision, person
from sessions_app.agents.edit import update_agent
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent, Turn
from sessions_app.reads.usage import total_of
from sessions_app.spending.caps import AMOUNTS, MOST_TOKENS, PERIODS, WORDS, budget_of, shown_caps


def change_caps(request: HttpRequest, agent: Agent) -> None:
    """Change the caps; an empty field removes one."""
    limits = {
        period: {name: _typed(request, f"{period}_{name}", period) for name in AMOUNTS} for period in PERIODS
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
    [limits] = shown_caps([budget_of("agent", agent.pk, agent.limits, zone=agent.timezone)])
    rows = []
    for period in PERIODS:
        cap = limits.get(period, {})
        typed = outcome.shown({f"{period}_{name}": cap.get(name, "") for name in AMOUNTS})
        amounts = {name: typed[f"{period}_{name}"] for name in AMOUNTS}
        rows.append({"period": period, "words": WORDS[period], "cap": cap, **amounts})
    return {
        "rows": rows,
        "total": total_of(Turn.objects.filter(owner_id=person(request).pk, session__agent=agent)),
    }
