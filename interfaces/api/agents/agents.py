"""Agents and their documents."""

from __future__ import annotations

from urllib.parse import quote

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.api.sessions.serializers import (
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
from interfaces.http.base import KEY, ApiView, deleted, tagged_response
from interfaces.http.headers import basis_expected, etag, etag_with_basis, revision_expected
from interfaces.http.query import flag_parameter
from interfaces.http.scopes import MANAGE, READ
from sessions_app.agents import edit
from sessions_app.agents.documents import write_document
from sessions_app.idempotency import StoredAnswer
from sessions_app.models import Agent, Document
from sessions_app.reads import selectors
from sessions_app.sessions.delete import delete_agent
from sessions_app.tokens.limits import limit_of

DELETE_AUTOMATIONS = flag_parameter(
    "delete_automations", "Also delete the automations that block the deletion."
)


class AgentList(ApiView):
    scopes = {"get": READ, "post": MANAGE}
    within_limits = {"get"}
    ordering = ("name",)
    refuses = {"post": (409,)}

    @extend_schema(responses=AgentOut(many=True))
    def get(self, _request: Request) -> Response:
        """Your agents, by name."""
        return self.page(selectors.agents(self.user), AgentOut)

    @extend_schema(parameters=[KEY], request=NewAgent, responses={201: AgentOut})
    def post(self, _request: Request) -> Response:
        """Create an agent and its primary session."""
        given = self.read(NewAgent)
        name = given.pop("name")
        return self.create(lambda: self._made(edit.new_agent(self.user, name, given)))

    def _made(self, agent: Agent) -> StoredAnswer:
        body = AgentOut(selectors.agent(self.user, agent.name)).data
        return StoredAnswer(body=body, location=f"/api/agents/{quote(agent.name)}/")


class AgentDetail(ApiView):
    scopes = {"get": READ, "patch": MANAGE, "delete": MANAGE}
    refuses = {"delete": (409,)}
    takes = {"delete": (DELETE_AUTOMATIONS,)}

    @extend_schema(responses=AgentOut)
    def get(self, _request: Request, name: str) -> Response:
        """One agent."""
        agent = selectors.agent(self.user, name)
        return tagged_response(AgentOut(agent).data, agent.revision)

    @extend_schema(request=AgentChanges, responses=AgentOut)
    def patch(self, _request: Request, name: str) -> Response:
        """Change settings. `heartbeat`, `policy` and `mcp_servers` are merged; null removes a key of `policy` or
        `mcp_servers`.
        """
        agent = selectors.agent(self.user, name)
        revision = revision_expected(self.request, agent.revision)
        changes = self.read(AgentChanges, partial=True, of=AgentOut)
        edit.update_agent(agent.pk, changes, revision=revision, is_limited=bool(limit_of(self.user)))
        return self.get(self.request, name)

    @extend_schema(responses={200: DeletedOut, 409: BlockedOut})
    def delete(self, _request: Request, name: str) -> Response:
        """Delete an agent with all its sessions. 409 when automations are bound to one of them."""
        agent = selectors.agent(self.user, name)
        revision_expected(self.request, agent.revision)
        return deleted(delete_agent(agent.pk, with_dependents=self.is_true("delete_automations")))


class DocumentList(ApiView):
    scopes = {"get": READ}

    @extend_schema(operation_id="agents_documents_list", responses=DocumentsOut)
    def get(self, _request: Request, name: str) -> Response:
        """The agent's documents. One that was never written is empty and has revision 0."""
        found = selectors.documents(self.user, name)
        return Response(DocumentsOut({"results": found, "next": None, "previous": None}).data)


class DocumentDetail(ApiView):
    scopes = {"get": READ, "put": MANAGE}
    refuses = {"put": (409,)}

    @extend_schema(responses=DocumentOut)
    def get(self, _request: Request, name: str, document: str) -> Response:
        """One document. HEARTBEAT.md shows the current routines."""
        found = selectors.document(self.user, name, document)
        return Response(DocumentOut(found).data, headers={"ETag": _tag(found)})

    @extend_schema(request=DocumentIn, responses=WrittenOut)
    def put(self, _request: Request, name: str, document: str) -> Response:
        """Replace a document; the next turn sees it. HEARTBEAT.md changes the routines that it lists."""
        found = selectors.document(self.user, name, document)
        revision = basis = None
        if found.basis is None:
            revision = revision_expected(self.request, found.revision)
        else:
            basis = basis_expected(self.request, found.basis)
        content = self.read(DocumentIn, of=DocumentOut)["content"]
        taken = write_document(found.agent_id, found.name, content, revision=revision, basis=basis).taken
        now = selectors.document(self.user, name, document)
        parsed = {"parse": taken.parse, "problem": taken.problem} if taken else {}
        body = WrittenOut(DocumentOut(now).data | {name: text for name, text in parsed.items() if text}).data
        return Response(body, headers={"ETag": _tag(now)})


def _tag(document: Document) -> str:
    """The ETag of a document: its revision, or its basis when it is more than text."""
    if document.basis is None:
        return etag(document.revision)
    return etag_with_basis(document.basis, document.content)
