"""The page of an agent: its sections, and what becomes of their forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from interfaces.http.headers import is_fragment
from interfaces.web.pages import page, person
from sessions_app.agents.edit import update_agent
from sessions_app.exceptions import RevisionConflict, SessionsError
from sessions_app.models import Agent
from sessions_app.reads import selectors

LARGEST_REVISION = 2**31 - 1
USES = {  # of the documents, in a sentence
    "AGENTS.md": "Instructions: how the agent works and speaks. Every turn reads them.",
    "USER.md": "What the agent knows about you. Every turn reads it.",
    "MEMORY.md": "What the agent has noted over time.",
    "SKILLS.md": "Procedures that the agent can follow.",
    "HEARTBEAT.md": "The routines of the agent: prose, and a JSON block that lists them.",
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a form of a section, when it was not simply stored.

    `typed` are its fields as the person filled them in. `is_conflict`: somebody else changed the values meanwhile.
    `found` is the result of a test.
    """

    anchor: str
    typed: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    is_conflict: bool = False
    found: Mapping[str, Any] = field(default_factory=dict)


Reader = Callable[[HttpRequest, Agent, Outcome | None], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section. `read` returns what its template shows as `part`.

    `has_revision`: it has a form with the field `revision-<anchor>`, the revision of the agent.
    """

    anchor: str
    title: str
    template: str
    read: Reader
    has_revision: bool = False


_sections: list[Section] = []


def use_sections(*sections: Section) -> None:
    """Say which sections the page has, in their order. `urls` does: the sections' views show the page, too."""
    _sections[:] = sections


def agent_page(
    request: HttpRequest, agent: Agent, outcome: Outcome | None = None, status: int = 200
) -> HttpResponse:
    """The page of an agent with all its sections."""
    shown = []
    for each in _sections:
        own = outcome if outcome and outcome.anchor == each.anchor else None
        part = each.read(request, agent, own)
        others = [
            f"#revision-{other.anchor}" for other in _sections if other.has_revision and other is not each
        ]
        saved = request.GET.get("saved") == each.anchor and outcome is None
        shown.append(
            {"about": each, "part": part, "others": ",".join(others), "outcome": own, "saved": saved}
        )
    return page(
        request, "agent/agent.html", status=shown_status(request, status), agent=agent, sections=shown
    )


def shown_status(request: HttpRequest, status: int) -> int:
    """The status of a page with a form that was refused. 200 for scripts, which show nothing of other answers."""
    return 200 if is_fragment(request) else status


def section_url(agent: Agent, anchor: str, **query: str) -> str:
    """The address of a section."""
    return reverse("agent", args=[agent.name], query=query or None, fragment=anchor)


def saved(agent: Agent, anchor: str) -> HttpResponse:
    """The answer to a form that was stored."""
    return HttpResponseRedirect(section_url(agent, anchor, saved=anchor), status=303)


def given_revision(request: HttpRequest) -> int:
    """The revision that the form was made with; one that never was when it is missing."""
    given = request.POST.get("revision", "")
    return (
        min(int(given), LARGEST_REVISION) if given.isascii() and given.isdigit() and len(given) < 12 else -1
    )


def change_agent(
    request: HttpRequest, name: str, anchor: str, changes: Callable[[], Mapping[str, Any]]
) -> HttpResponse:
    """Change settings from a form of this section. What is refused is shown again with what was typed.

    `changes` reads them from the form; SessionsError. NotFound.
    """
    agent = selectors.agent(person(request), name)
    typed = request.POST.dict()
    try:
        update_agent(agent.pk, changes(), revision=given_revision(request))
    except RevisionConflict:
        agent = selectors.agent(person(request), name)
        return agent_page(request, agent, Outcome(anchor=anchor, typed=typed, is_conflict=True), status=412)
    except SessionsError as error:
        return agent_page(request, agent, Outcome(anchor=anchor, typed=typed, problem=str(error)), status=400)
    return saved(agent, anchor)
