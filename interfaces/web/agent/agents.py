"""The agents of a person: their list, and the page of one."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from interfaces.web.agent.sections import agent_page
from interfaces.web.pages import leave_to, page, person, person_page
from sessions_app.reads import selectors

MOST = 200  # agents in the list


@person_page("GET", "HEAD")
def agent_list(request: HttpRequest) -> HttpResponse:
    """The agents of a person. The only one has no list."""
    found = list(selectors.agents(person(request)).order_by("name")[:MOST])
    if len(found) == 1:
        return leave_to(request, reverse("agent", args=[found[0].name]))
    return page(request, "agent/list.html", found=found)


@person_page("GET", "HEAD")
def about_agent(request: HttpRequest, name: str) -> HttpResponse:
    """An agent: its settings, documents, memory, and what apps above show of it."""
    return agent_page(request, selectors.agent(person(request), name))
