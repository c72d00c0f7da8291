"""Serializers of agents, documents, sessions, turns and mailboxes. The functions that store values validate them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agent_core.connections import EFFORTS
from agent_core.mcp.server import HIDDEN
from interfaces.http.fields import (
    AnyObject,
    Flag,
    Input,
    Items,
    JsonNumber,
    LineField,
    NeededText,
    OneOf,
    Output,
    Text,
    TextOrNull,
    WholeNumber,
)
from interfaces.http.waiting import WaitingOut, waiting_of
from sessions_app import permits
from sessions_app.agents import mcp_servers as mcp_settings
from sessions_app.channels.base import why_unserved
from sessions_app.connections.usable import model_warnings
from sessions_app.models import (
    Agent,
    ChatType,
    DeliveryState,
    Engine,
    Session,
    SessionType,
    TurnKind,
    TurnState,
)
from sessions_app.models.session import LONGEST_ADDRESS, WEB
from sessions_app.questions.question_reads import waiting_questions

SESSION_STATES = ["active", "idle", "archived", "deleting"]
LONGEST_PREVIEW = 100  # characters
DELIVERIES = "The deliveries of the answer; empty when it stays on the server."
ADDRESS = "Where answers go: a URL, a mailbox…, as the channel defines it."
CHANNEL_META = "Metadata for the channel, such as a topic or a thread: texts, whole numbers, true or false."
MODEL = "`offline`, `<provider>:<model>`, or `<connection>:<model>`."
ALLOW_TOOLS = "Names of tools that need no consent, in all turns except those of hooks."


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


EVENTS_URL = (
    "Where system events are posted: `run.failed`, `delivery.failed`, `budget.reached`. Empty: nowhere."
)


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
    timezone = NeededText(required=False)
    engine = OneOf(choices=Engine.choices, required=False)
    unified_session = Flag(required=False)
    heartbeat = HeartbeatIn(required=False)
    routine_limit = WholeNumber(required=False)
    policy = AnyObject(required=False)
    events_url = Text(required=False, allow_blank=True, max_length=LONGEST_ADDRESS, help_text=EVENTS_URL)
    mcp_servers = AnyObject(
        required=False,
        help_text="`{url, headers, trusted}` by name, or null to remove it. Values of headers are never shown;"
        f" `{HIDDEN}` keeps the stored one.",
    )
    allow_tools = Items(
        child=Text(max_length=permits.LONGEST_NAME),
        required=False,
        max_length=permits.MOST_ALLOWED,
        help_text=ALLOW_TOOLS,
    )


class NewAgent(AgentChanges):
    example = {"name": "helper", "model": "offline", "timezone": "Europe/Berlin"}
    name = Text(max_length=64)


class HeartbeatOut(Output):
    enabled = serializers.BooleanField()
    interval_seconds = serializers.IntegerField()
    active_hours = serializers.ListField(child=serializers.IntegerField(), min_length=2, max_length=2)
    ack_max_chars = serializers.IntegerField()


class McpServerOut(Output):
    url = serializers.CharField()
    headers = serializers.DictField(child=serializers.CharField(), help_text=f"Each value is `{HIDDEN}`.")
    trusted = serializers.BooleanField()


class AgentOut(Output):
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
    events_url = serializers.CharField(help_text=EVENTS_URL)
    mcp_servers = serializers.SerializerMethodField()
    allow_tools = serializers.ListField(child=serializers.CharField(), help_text=ALLOW_TOOLS)
    primary_session = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    warnings = serializers.SerializerMethodField(
        help_text="Why its models cannot be called; empty as far as that is known."
    )
    revision = serializers.IntegerField()

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_warnings(self, agent: Agent) -> list[str]:
        return model_warnings(agent)

    @extend_schema_field(serializers.DictField(child=McpServerOut()))
    def get_mcp_servers(self, agent: Agent) -> dict[str, Any]:
        """The values of headers are hidden."""
        return mcp_settings.visible_servers(agent)


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


class DocumentsOut(Output):
    next = serializers.CharField(allow_null=True, help_text="Always null: there is one page.")
    previous = serializers.CharField(allow_null=True)
    results = DocumentOut(many=True)


class NewSession(Input):
    example = {"agent": "demo", "title": "Trip to Lisbon"}
    agent = Text(help_text="The name of one of your agents.")
    key = Text(required=False, help_text="`<channel>:<id>`; generated when not given.")
    channel = Text(required=False)
    chat_type = OneOf(choices=ChatType.choices, required=False)
    title = Text(required=False, allow_blank=True, max_length=200)
    address = Text(required=False, allow_blank=True, help_text=ADDRESS)
    channel_meta = AnyObject(required=False, help_text=CHANNEL_META)


class SessionChanges(Input):
    example = {"title": "Trip to Porto"}
    title = Text(required=False, allow_blank=True, max_length=200)
    address = Text(required=False, help_text="Where answers go from now on, also those not yet sent.")
    channel_meta = AnyObject(required=False, help_text=f"{CHANNEL_META} It replaces all of the old metadata.")
    chat_type = OneOf(choices=ChatType.choices, required=False)
    archived = Flag(
        required=False,
        help_text="Whether the conversation is archived: it can be read, takes no messages, and its automations do"
        " not run. False opens it again.",
    )


class SessionOut(Output):
    id = serializers.UUIDField()
    key = serializers.CharField()
    type = serializers.ChoiceField(choices=SessionType.choices)
    agent = serializers.CharField(source="agent_name")
    state = serializers.ChoiceField(choices=SESSION_STATES, source="shown_state")
    revision = serializers.IntegerField()
    channel = serializers.CharField()
    address = serializers.SerializerMethodField(help_text=f"{ADDRESS} Null on the web.")
    chat_type = serializers.ChoiceField(choices=ChatType.choices)
    channel_meta = serializers.DictField(help_text=CHANNEL_META)
    title = serializers.CharField()
    preview = LineField(
        LONGEST_PREVIEW,
        source="last_words",
        help_text=f"The first {LONGEST_PREVIEW} characters of the last message; not an automation's trigger.",
    )
    waiting = serializers.SerializerMethodField(
        help_text="Open questions of its agent, the newest first: at most 20, of 1 MB together, but at least one."
    )
    more_waiting = serializers.SerializerMethodField(
        help_text="Whether older questions wait that `waiting` has no room for."
    )
    warnings = serializers.SerializerMethodField(
        help_text="Why its answers cannot be delivered; empty when they can."
    )
    created_at = serializers.DateTimeField()

    @extend_schema_field(WaitingOut(many=True))
    def get_waiting(self, session: Any) -> list[dict[str, Any]]:
        return waiting_of(session)

    def get_more_waiting(self, session: Any) -> bool:
        return waiting_questions(session).is_more

    def get_warnings(self, session: Session) -> list[str]:
        reason = why_unserved(session.standing_route, session.agent_id)
        return [reason] if reason else []

    def get_address(self, session: Session) -> str | None:
        return None if session.channel == WEB else session.chat_id


class BlockerOut(Output):
    id = serializers.CharField()
    name = serializers.CharField()
    enabled = serializers.BooleanField()


class BlockedOut(Output):
    deleted = serializers.BooleanField(help_text="false")
    blocked_by_automations = serializers.BooleanField(help_text="true")
    automations = BlockerOut(many=True)


class DeletedOut(Output):
    deleted = serializers.BooleanField(help_text="true")
    deleted_automations = serializers.ListField(child=serializers.CharField())
    moved_routines = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Routines of the session that now report to the primary session; left out when there are none.",
    )


class SentOut(Output):
    id = serializers.IntegerField()
    channel = serializers.CharField()
    state = serializers.ChoiceField(choices=DeliveryState.choices)
    attempts = serializers.IntegerField()
    last_error = serializers.CharField(allow_null=True)


class TurnOut(Output):
    id = serializers.IntegerField()
    agent = serializers.CharField(source="agent_name")
    session = serializers.UUIDField(source="session_id")
    kind = serializers.ChoiceField(choices=TurnKind.choices)
    state = serializers.ChoiceField(choices=TurnState.choices)
    content = serializers.CharField()
    reply = serializers.CharField(allow_null=True)
    error = TextOrNull(allow_null=True, help_text="A short sentence.")
    error_code = TextOrNull(allow_null=True)
    provider_message = TextOrNull(allow_null=True, help_text="What the model's provider said of the error.")
    deliveries = SentOut(many=True, source="shown_deliveries", help_text=DELIVERIES)
    usage = serializers.DictField()
    model = TextOrNull(
        allow_null=True, help_text="The model that replied last: the agent's, or its fallback."
    )
    ended_by = TextOrNull(
        allow_null=True,
        help_text="How the model ended the answer: `stop`, `length`, `filter` or `refusal`. Null: there is no answer.",
    )
    attempt = serializers.IntegerField()
    lock_wait_ms = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField(source="queued_at", help_text="The same as `queued_at`.")
    queued_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
