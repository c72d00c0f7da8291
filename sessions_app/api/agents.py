"""Agents and their documents."""

from __future__ import annotations

from urllib.parse import quote

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import agents, selectors
from sessions_app.api.base import KEY, ApiView, deleted, shown
from sessions_app.api.conditions import revision_expected
from sessions_app.api.shapes import (
    AgentChanges,
    AgentOut,
    BlockedOut,
    DeletedOut,
    DocumentIn,
    DocumentOut,
    DocumentsOut,
    NewAgent,
)
from sessions_app.delete import delete_agent
from sessions_app.models import Agent
from sessions_app.once import Answer

DELETE_AUTOMATIONS = OpenApiParameter(
    "delete_automations",
    bool,
    description="The second step: delete the automations that are in the way, too.",
)


class AgentList(ApiView):
    ordering = ("name",)

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
    @extend_schema(responses=AgentOut)
    def get(self, _request: Request, name: str) -> Response:
        """One agent."""
        agent = selectors.agent(self.user, name)
        return shown(AgentOut(agent).data, agent.revision)

    @extend_schema(request=AgentChanges, responses=AgentOut)
    def patch(self, _request: Request, name: str) -> Response:
        """Change settings. `heartbeat` and `policy` are merged; null removes a key of `policy`."""
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
    @extend_schema(responses=DocumentOut)
    def get(self, _request: Request, name: str, document: str) -> Response:
        """One document."""
        found = selectors.document(self.user, name, document)
        return shown(DocumentOut(found).data, found.revision)

    @extend_schema(request=DocumentIn, responses=DocumentOut)
    def put(self, _request: Request, name: str, document: str) -> Response:
        """Write a document whole; it is live with the next turn."""
        found = selectors.document(self.user, name, document)
        revision = revision_expected(self.request, found.revision)
        given = self.read(DocumentIn, of=DocumentOut)
        agents.put_document(found.agent_id, found.name, given["content"], revision=revision)
        return self.get(self.request, name, document)
