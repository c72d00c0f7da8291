"""Agents and their documents."""

from __future__ import annotations

from urllib.parse import quote

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import agents, selectors
from sessions_app.api.base import KEY, ApiView, deleted, shown
from sessions_app.api.conditions import basis_expected, etag, etag_with_basis, revision_expected
from sessions_app.api.shapes import (
    AgentChanges,
    AgentOut,
    BlockedOut,
    DeletedOut,
    DocumentIn,
    DocumentOut,
    DocumentsOut,
    NewAgent,
    WrittenOut,
)
from sessions_app.delete import delete_agent
from sessions_app.models import Agent, Document
from sessions_app.once import Answer

DELETE_AUTOMATIONS = OpenApiParameter(
    "delete_automations",
    bool,
    description="The second step: delete the automations that are in the way, too.",
)


class AgentList(ApiView):
    ordering = ("name",)
    refuses = {"post": (409,)}

    @extend_schema(responses=AgentOut(many=True))
    def get(self, _request: Request) -> Response:
        """Your agents, by name."""
        return self.page(selectors.agents(self.user), AgentOut)

    @extend_schema(parameters=[KEY], request=NewAgent, responses={201: AgentOut})
    def post(self, _request: Request) -> Response:
        """Make an agent and its primary session."""
        given = self.read(NewAgent)
        name = given.pop("name")
        return self.create(lambda: self._made(agents.new_agent(self.user, name, given)))

    def _made(self, agent: Agent) -> Answer:
        body = AgentOut(selectors.agent(self.user, agent.name)).data
        return Answer(body=body, location=f"/api/agents/{quote(agent.name)}/")


class AgentDetail(ApiView):
    refuses = {"delete": (409,)}

    @extend_schema(responses=AgentOut)
    def get(self, _request: Request, name: str) -> Response:
        """One agent."""
        agent = selectors.agent(self.user, name)
        return shown(AgentOut(agent).data, agent.revision)

    @extend_schema(request=AgentChanges, responses=AgentOut)
    def patch(self, _request: Request, name: str) -> Response:
        """Change settings. `heartbeat`, `policy` and `mcp_servers` are merged; null removes a key of the last two."""
        agent = selectors.agent(self.user, name)
        revision = revision_expected(self.request, agent.revision)
        agents.update_agent(agent.pk, self.read(AgentChanges, partial=True, of=AgentOut), revision=revision)
        return self.get(self.request, name)

    @extend_schema(parameters=[DELETE_AUTOMATIONS], responses={200: DeletedOut, 409: BlockedOut})
    def delete(self, _request: Request, name: str) -> Response:
        """Delete an agent with all its sessions, unless automations are bound to any of them."""
        agent = selectors.agent(self.user, name)
        revision_expected(self.request, agent.revision)
        return deleted(delete_agent(agent.pk, delete_automations=self.flag("delete_automations")))


class DocumentList(ApiView):
    @extend_schema(operation_id="agents_documents_list", responses=DocumentsOut)
    def get(self, _request: Request, name: str) -> Response:
        """The agent's documents; one that was never written is empty, of revision 0."""
        found = selectors.documents(self.user, name)
        return Response(DocumentsOut({"results": found, "next": None, "previous": None}).data)


class DocumentDetail(ApiView):
    refuses = {"put": (409,)}

    @extend_schema(responses=DocumentOut)
    def get(self, _request: Request, name: str, document: str) -> Response:
        """One document; HEARTBEAT.md shows the routines as they are."""
        found = selectors.document(self.user, name, document)
        return Response(DocumentOut(found).data, headers={"ETag": _tag(found)})

    @extend_schema(request=DocumentIn, responses=WrittenOut)
    def put(self, _request: Request, name: str, document: str) -> Response:
        """Write a document whole; it is live with the next turn. HEARTBEAT.md changes the routines that it lists."""
        found = selectors.document(self.user, name, document)
        revision = basis = None
        if found.basis is None:
            revision = revision_expected(self.request, found.revision)
        else:
            basis = basis_expected(self.request, found.basis)
        content = self.read(DocumentIn, of=DocumentOut)["content"]
        taken = agents.write_document(
            found.agent_id, found.name, content, revision=revision, basis=basis
        ).taken
        now = selectors.document(self.user, name, document)
        told = {"parse": taken.parse, "problem": taken.problem} if taken else {}
        body = WrittenOut(DocumentOut(now).data | {name: text for name, text in told.items() if text}).data
        return Response(body, headers={"ETag": _tag(now)})


def _tag(document: Document) -> str:
    """The tag of a document: its revision, unless it is more than text."""
    if document.basis is None:
        return etag(document.revision)
    return etag_with_basis(document.basis, document.content)
