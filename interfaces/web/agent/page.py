"""The list of a person's agents, and the page of an agent: its sections, and the results of their forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters

from interfaces.web.agent import channels, connections, documents, picker, settings, tools
from interfaces.web.agent.new import NewAgentForm
from interfaces.web.appointments.forms import in_words
from interfaces.web.pages import FormResult, View, leave_to, page, person, person_page
from sessions_app.exceptions import NotFound, RevisionConflict, SessionsError, TooSoon
from sessions_app.models import Agent
from sessions_app.reads import selectors

MOST = 200  # agents in the list
# changes what the form of a section says; returns what the section shows of it, another answer, or None: it was stored
Change = Callable[..., Mapping[str, Any] | HttpResponse | None]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section. `read` returns what its template `web/agent/<anchor>.html` shows as `part`.

    `has_revision`: it has a form with the field `revision-<anchor>`, the revision of the agent.
    """

    anchor: str
    read: Callable[[HttpRequest, Agent, FormResult], dict[str, Any]]
    has_revision: bool = False


SECTIONS = (
    Section(anchor="model", read=picker.model, has_revision=True),
    Section(anchor="connections", read=connections.connections),
    Section(anchor="documents", read=documents.documents),
    Section(anchor="heartbeat", read=settings.heartbeat, has_revision=True),
    Section(anchor="spending", read=settings.spending, has_revision=True),
    Section(anchor="tools", read=tools.allowed_tools, has_revision=True),
    Section(anchor="channels", read=channels.shown_channels),
    Section(anchor="telegram", read=channels.telegram),
    Section(anchor="memory", read=settings.memory),
    Section(anchor="hooks", read=settings.hooks, has_revision=True),
)


@person_page("GET", "HEAD")
def agent_list(request: HttpRequest) -> HttpResponse:
    """The agents of a person. The only one has no list."""
    found = list(selectors.agents(person(request)).order_by("name")[:MOST])
    if len(found) == 1:
        return leave_to(request, reverse("agent", args=[found[0].name]))
    return page(request, "agent/list.html", found=found, form=NewAgentForm())


@person_page("GET", "HEAD")
def agent_page(request: HttpRequest, name: str) -> HttpResponse:
    """An agent with all its sections."""
    return _page(request, selectors.agent(person(request), name))


def section_form(anchor: str, change: Change) -> View:
    """Return the view of a section's form. A refused form is shown again in its section, as it was typed."""

    @sensitive_post_parameters("secret", "token", "url", "headers")
    @person_page("POST")
    def view(request: HttpRequest, name: str, **named: Any) -> HttpResponse:
        agent = selectors.agent(person(request), name)
        typed = request.POST.dict()
        try:
            found = change(request, agent, **named)
        except (NotFound, TooSoon):
            raise
        except RevisionConflict:
            stored = selectors.agent(person(request), name)
            outcome = FormResult(typed=typed, is_conflict=True, found=named)
            return _page(request, stored, anchor, outcome, status=412)
        except SessionsError as error:
            outcome = FormResult(typed=typed, problem=in_words(str(error)), found=named)
            return _page(request, agent, anchor, outcome, status=400)
        if found is None:
            address = reverse("agent", args=[agent.name], query={"saved": anchor}, fragment=anchor)
            return HttpResponseRedirect(address, status=303)
        if isinstance(found, HttpResponse):
            return found
        return _page(request, agent, anchor, FormResult(found={**named, **found}))

    return view


def _page(
    request: HttpRequest, agent: Agent, anchor: str = "", outcome: FormResult | None = None, status: int = 200
) -> HttpResponse:
    """The page of an agent. `outcome`: of the form of one section."""
    saved = request.GET.get("saved") if outcome is None else None
    shown = []
    for each in SECTIONS:
        own = outcome if outcome and each.anchor == anchor else FormResult()
        others = [f"#revision-{other.anchor}" for other in SECTIONS if other.has_revision and other != each]
        others += ["#spending-warnings"] if each.anchor != "spending" else []
        shown.append(
            {
                "about": each,
                "template": f"web/agent/{each.anchor}.html",
                "part": each.read(request, agent, own),
                "others": ",".join(others),
                "outcome": own,
                "saved": saved == each.anchor,
            }
        )
    return page(request, "agent/agent.html", status=status, agent=agent, sections=shown)
