"""Agents, their documents and older revisions of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agent_core.connections import EFFORTS
from agent_core.mcp.server import HIDDEN
from interfaces.api.shared import (
    DELETE_AUTOMATIONS,
    BlockedOut,
    Caps,
    CapsIn,
    DeletedOut,
    Revised,
    Texts,
    deleted,
)
from interfaces.http.auth import MANAGE, READ
from interfaces.http.base import KEY, ApiView, tagged_response
from interfaces.http.fields import (
    AnyObject,
    Flag,
    Input,
    Items,
    JsonNumber,
    NonBlankText,
    OneOf,
    Output,
    Text,
    ToolNames,
    WholeNumber,
)
from interfaces.http.headers import etag, revision_expected
from sessions_app.agents import documents, edit
from sessions_app.agents import mcp_servers as mcp_settings
from sessions_app.connections.usable import model_warnings
from sessions_app.models import Agent, Document, Engine
from sessions_app.models.session import LONGEST_ADDRESS
from sessions_app.reads import selectors
from sessions_app.sessions.delete import delete_agent
from sessions_app.tokens.reach import limit_of

MODEL = "`offline`, `<provider>:<model>`, or `<connection>:<model>`."
ALLOW_TOOLS = "Names of tools that need no consent, in all turns except those of hooks."
EVENTS_URL = (
    "Where system events are posted: `run.failed`, `delivery.failed`, `budget.near`, `budget.reached`."
    " Empty: nowhere."
)


class HeartbeatIn(Input):
    enabled = Flag(required=False)
    interval_seconds = WholeNumber(required=False)
    active_hours = Items(child=WholeNumber(), required=False)
    ack_max_chars = WholeNumber(required=False)


class ModelSettingsIn(Input):
    temperature = JsonNumber(required=False, allow_null=True, help_text="From 0 to 2.")
    max_tokens = WholeNumber(required=False, allow_null=True, help_text="Of one reply.")
    reasoning = OneOf(choices=EFFORTS, required=False, allow_null=True)
    images = Flag(required=False, allow_null=True, help_text="Whether the model sees images. Default: true.")


class AgentChanges(Input):
    example = {
        "timezone": "Europe/Berlin",
        "heartbeat": {"active_hours": [8, 22]},
        "policy": {"timeout_seconds": 600},
    }
    model = Text(required=False, allow_blank=True, help_text=MODEL)
    fallback_model = Text(
        required=False, allow_blank=True, help_text="Asked if the model cannot be reached; empty: none."
    )
    model_settings = ModelSettingsIn(required=False)
    timezone = NonBlankText(required=False)
    engine = OneOf(choices=Engine.choices, required=False)
    unified_session = Flag(required=False)
    heartbeat = HeartbeatIn(required=False)
    routine_limit = WholeNumber(required=False)
    policy = AnyObject(required=False)
    limits = CapsIn()
    events_url = Text(required=False, allow_blank=True, max_length=LONGEST_ADDRESS, help_text=EVENTS_URL)
    mcp_servers = AnyObject(
        required=False,
        help_text="`{url, headers, trusted, own}` by name, or null to remove it. Values of headers are never shown;"
        f" `{HIDDEN}` keeps the stored one.",
    )
    allow_tools = ToolNames(help_text=ALLOW_TOOLS)


class NewAgent(AgentChanges):
    example = {"name": "helper", "model": "offline", "timezone": "Europe/Berlin"}
    name = Text(max_length=64)
    timezone = NonBlankText(required=False, help_text="By default that of your account, else UTC.")


class HeartbeatOut(Output):
    enabled = serializers.BooleanField()
    interval_seconds = serializers.IntegerField()
    active_hours = serializers.ListField(child=serializers.IntegerField(), min_length=2, max_length=2)
    ack_max_chars = serializers.IntegerField()


class McpServerOut(Output):
    url = serializers.CharField()
    headers = serializers.DictField(child=serializers.CharField(), help_text=f"Each value is `{HIDDEN}`.")
    trusted = serializers.BooleanField()
    own = serializers.BooleanField(help_text="Its answers are the owner's own data, no text from outside.")


class AgentOut(Revised):
    name = serializers.CharField()
    model = serializers.CharField(source="effective_model", help_text=MODEL)
    fallback_model = serializers.CharField()
    model_settings = serializers.DictField(
        help_text="`temperature`, `max_tokens`, `reasoning`, `images`, as far as they are set."
    )
    timezone = serializers.CharField()
    engine = serializers.ChoiceField(choices=Engine.choices)
    unified_session = serializers.BooleanField()
    heartbeat = HeartbeatOut()
    routine_limit = serializers.IntegerField()
    policy = serializers.DictField()
    limits = Caps(scope="agent", zone="timezone")
    events_url = serializers.CharField(help_text=EVENTS_URL)
    mcp_servers = serializers.SerializerMethodField()
    allow_tools = Texts(help_text=ALLOW_TOOLS)
    primary_session = serializers.UUIDField()
    warnings = serializers.SerializerMethodField(
        help_text="Why its models cannot be called, as far as that is known, and which ones no cap in US dollars stops."
    )

    @extend_schema_field(Texts())
    def get_warnings(self, agent: Agent) -> list[str]:
        found = model_warnings(agent)
        return [*found.uncallable, *found.caps]

    @extend_schema_field(serializers.DictField(child=McpServerOut()))
    def get_mcp_servers(self, agent: Agent) -> dict[str, Any]:
        """The values of headers are hidden."""
        return mcp_settings.visible_servers(agent)


class AgentList(ApiView):
    scopes = {"get": READ, "post": MANAGE}
    within_limits = {"get"}
    ordering = ("name",)
    refuses = {"post": (409,)}

    @extend_schema(responses=AgentOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your agents, by name."""
        return self.page(selectors.agents(self.user), AgentOut)

    @extend_schema(parameters=[KEY], request=NewAgent, responses={201: AgentOut})
    def post(self, _request: Request) -> Response:
        """Create an agent and its primary session."""
        given = self.read(NewAgent)
        name = given.pop("name")
        return self.create(
            lambda: AgentOut(selectors.agent(self.user, edit.new_agent(self.user, name, given).name)).data,
            "/api/agents/{name}/",
        )


class AgentDetail(ApiView):
    scopes = {"get": READ, "patch": MANAGE, "delete": MANAGE}
    refuses = {"delete": (409,)}
    takes = {"delete": (DELETE_AUTOMATIONS,)}

    @extend_schema(responses=AgentOut)
    def get(self, _request: Request, name: str) -> Response:
        """Get an agent."""
        agent = selectors.agent(self.user, name)
        return tagged_response(AgentOut(agent).data, agent.revision)

    @extend_schema(request=AgentChanges, responses=AgentOut)
    def patch(self, _request: Request, name: str) -> Response:
        """Change settings. `heartbeat`, `policy`, `limits` and `mcp_servers` are merged; null removes a key, except of
        `heartbeat`.
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


class DocumentIn(Input):
    example = {"content": "# About me\nI live in Berlin."}
    content = Text(allow_blank=True)


class DocumentOut(Output):
    name = serializers.CharField()
    content = serializers.CharField()
    revision = serializers.IntegerField()


class WrittenOut(DocumentOut):
    parse = serializers.ChoiceField(
        choices=["ok", "corrupted", "empty"],
        required=False,
        help_text="HEARTBEAT.md only: the result of parsing. A corrupted document is stored and changes no routine.",
    )
    problem = serializers.CharField(required=False, help_text="What is wrong with a corrupted document.")


class OnePage(Output):
    next = serializers.CharField(allow_null=True, help_text="Always null: there is one page.")
    previous = serializers.CharField(allow_null=True)


class DocumentsOut(OnePage):
    results = DocumentOut(many=True)


class DocumentRevisionOut(Output):
    revision = serializers.IntegerField()
    characters = serializers.IntegerField()
    replaced_at = serializers.DateTimeField()


class DocumentRevisionsOut(OnePage):
    results = DocumentRevisionOut(many=True)


class OldDocumentOut(DocumentRevisionOut):
    content = serializers.CharField()


class DocumentList(ApiView):
    scopes = {"get": READ}

    @extend_schema(operation_id="agents_documents_list", responses=DocumentsOut)
    def get(self, _request: Request, name: str) -> Response:
        """List the agent's documents. One that was never written is empty and has revision 0."""
        found = selectors.documents(self.user, name)
        return Response(DocumentsOut({"results": found, "next": None, "previous": None}).data)


class DocumentDetail(ApiView):
    scopes = {"get": READ, "put": MANAGE}
    refuses = {"put": (409,)}

    @extend_schema(responses=DocumentOut)
    def get(self, _request: Request, name: str, document: str) -> Response:
        """Get a document. HEARTBEAT.md shows the current routines."""
        found = selectors.document(self.user, name, document)
        return _tagged(found, DocumentOut(found).data)

    @extend_schema(request=DocumentIn, responses=WrittenOut)
    def put(self, _request: Request, name: str, document: str) -> Response:
        """Replace a document; the next turn sees it. HEARTBEAT.md changes the routines that it lists."""
        found = selectors.document(self.user, name, document)
        revision = basis = None
        if found.basis is None:
            revision = revision_expected(self.request, found.revision)
        else:
            basis = revision_expected(self.request, found.basis)
        content = self.read(DocumentIn, of=DocumentOut)["content"]
        taken = documents.write_document(
            found.agent_id, found.name, content, revision=revision, basis=basis
        ).taken
        now = selectors.document(self.user, name, document)
        parsed = {"parse": taken.parse, "problem": taken.problem} if taken else {}
        shown = DocumentOut(now).data | {name: text for name, text in parsed.items() if text}
        return _tagged(now, WrittenOut(shown).data)


def _tagged(document: Document, data: Mapping[str, Any]) -> Response:
    """The answer with the ETag of a document: its revision, or its basis when it is more than text."""
    tag = etag(document.revision) if document.basis is None else etag(document.basis, document.content)
    return Response(data, headers={"ETag": tag})


class DocumentRevisionList(ApiView):
    scopes = {"get": READ}

    @extend_schema(operation_id="agents_documents_revisions_list", responses=DocumentRevisionsOut)
    def get(self, _request: Request, name: str, document: str) -> Response:
        """List the last 20 older revisions, the newest first. To restore one, write its content to the document."""
        found = documents.revisions_of(selectors.document(self.user, name, document))
        return Response(DocumentRevisionsOut({"results": found, "next": None, "previous": None}).data)


class DocumentRevisionDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=OldDocumentOut)
    def get(self, _request: Request, name: str, document: str, revision: int) -> Response:
        """Get an older revision with its content."""
        found = documents.get_revision(selectors.document(self.user, name, document), revision)
        return Response(OldDocumentOut(found).data)
