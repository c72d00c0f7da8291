"""The shapes of what comes in and goes out. Fields only: what a value may be is the verbs' business."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agent_core.execution import WAITING
from agent_core.mcp_server import HIDDEN
from agent_core.types import Role, ToolOutcome
from sessions_app import mcp_settings
from sessions_app.api.fields import AnyObject, Flag, Input, OneOf, Text, WholeNumber
from sessions_app.channels.base import WEB
from sessions_app.lines import one_line
from sessions_app.models import (
    Agent,
    ChatType,
    DeliveryState,
    Engine,
    OnBusy,
    Session,
    SessionType,
    TurnKind,
    TurnState,
)
from sessions_app.models import Priority as MailPriority
from sessions_app.receive import LONGEST_MESSAGE

SESSION_STATES = ["active", "idle", "archived", "deleting"]
LONGEST_PREVIEW = 100  # characters
DELIVERIES = "Whether the answer reached people outside; empty when it does not leave the server."
ADDRESS = "Where answers go: a web address, a mailbox… as the channel wants it."
MAIL_STATES = ["pending", "acknowledged", "dropped"]


class Output(serializers.Serializer[Any]):
    """Something that is only shown."""


class HeartbeatIn(Input):
    enabled = Flag(required=False)
    interval_seconds = WholeNumber(required=False)
    active_hours = serializers.ListField(child=WholeNumber(), required=False)
    ack_max_chars = WholeNumber(required=False)


class AgentChanges(Input):
    model = Text(required=False, allow_blank=True)
    timezone = Text(required=False, allow_blank=True)
    engine = OneOf(choices=Engine.choices, required=False)
    unified_session = Flag(required=False)
    heartbeat = HeartbeatIn(required=False)
    routine_limit = WholeNumber(required=False)
    policy = AnyObject(required=False)
    mcp_servers = AnyObject(
        required=False,
        help_text="By name: `{url, headers, trusted}`, or null to remove it. Values of headers are never shown;"
        f" `{HIDDEN}` keeps one.",
    )


class NewAgent(AgentChanges):
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
    model = serializers.CharField(source="effective_model")
    timezone = serializers.CharField()
    engine = serializers.ChoiceField(choices=Engine.choices)
    unified_session = serializers.BooleanField()
    heartbeat = HeartbeatOut()
    routine_limit = serializers.IntegerField()
    policy = serializers.DictField()
    mcp_servers = serializers.SerializerMethodField()
    primary_session = serializers.UUIDField()
    revision = serializers.IntegerField()

    @extend_schema_field(serializers.DictField(child=McpServerOut()))
    def get_mcp_servers(self, agent: Agent) -> dict[str, Any]:
        """Without the values of headers."""
        return mcp_settings.shown(agent)


class DocumentIn(Input):
    content = Text(allow_blank=True)


class DocumentOut(Output):
    name = serializers.CharField()
    content = serializers.CharField()
    revision = serializers.IntegerField()


class WrittenOut(DocumentOut):
    parse = serializers.ChoiceField(
        choices=["ok", "corrupted", "empty"],
        required=False,
        help_text="HEARTBEAT.md only: what the text turned out to be. A corrupted one is kept and changes no routine.",
    )
    problem = serializers.CharField(required=False, help_text="Of a corrupted one: what is wrong with it.")


class DocumentsOut(Output):
    next = serializers.CharField(allow_null=True, help_text="Always null: there is one page.")
    previous = serializers.CharField(allow_null=True)
    results = DocumentOut(many=True)


class NewSession(Input):
    agent = Text(help_text="The name of an agent of yours.")
    key = Text(required=False, help_text="`<channel>:<id>`; made up when it is not given.")
    channel = Text(required=False)
    chat_type = OneOf(choices=ChatType.choices, required=False)
    title = Text(required=False, allow_blank=True, max_length=200)
    address = Text(required=False, allow_blank=True, help_text=ADDRESS)


class SessionChanges(Input):
    title = Text(required=False, allow_blank=True, max_length=200)
    address = Text(required=False, help_text="Where answers go from now on, those too that are still here.")


class LineField(serializers.CharField):
    """A text's beginning on one line; null is empty."""

    def __init__(self, length: int, **options: Any) -> None:
        self.length = length
        super().__init__(**options)

    def get_attribute(self, instance: Any) -> str:
        """The text."""
        return super().get_attribute(instance) or ""

    def to_representation(self, value: Any) -> str:
        """The line."""
        return one_line(value, self.length)


class WaitingOut(Output):
    execution = serializers.CharField()
    question = serializers.CharField()
    status = serializers.ChoiceField(choices=[status.value for status in WAITING])


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
    title = serializers.CharField()
    preview = LineField(
        LONGEST_PREVIEW,
        source="last_words",
        help_text=f"What was said last, at most {LONGEST_PREVIEW} characters of it; not an automation's trigger.",
    )
    waiting = WaitingOut(
        allow_null=True, help_text="The newest question of its agent that waits for a reply."
    )
    created_at = serializers.DateTimeField()

    def get_address(self, session: Session) -> str | None:
        """What is said on the web leaves for nowhere."""
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


class NewMessage(Input):
    content = Text(allow_blank=True, help_text=f"1 to {LONGEST_MESSAGE} characters.")
    on_busy = OneOf(choices=OnBusy.choices, required=False, help_text="inject when it is not given")


class CallOut(Output):
    id = serializers.CharField()
    name = serializers.CharField()
    arguments = serializers.DictField()


class ResultOut(Output):
    id = serializers.CharField(help_text="The call's.")
    name = serializers.CharField()
    outcome = serializers.ChoiceField(choices=[outcome.value for outcome in ToolOutcome])
    output = serializers.CharField()


class PartsOut(Output):
    calls = CallOut(many=True)
    results = ResultOut(many=True)

    def to_representation(self, instance: Any) -> Any:
        """Both lists, whatever the entry holds."""
        return super().to_representation({"calls": [], "results": []} | instance)


class SentOut(Output):
    id = serializers.IntegerField()
    channel = serializers.CharField()
    state = serializers.ChoiceField(choices=DeliveryState.choices)
    attempts = serializers.IntegerField()
    last_error = serializers.CharField(allow_null=True)


class MessageOut(Output):
    id = serializers.IntegerField()
    seq = serializers.IntegerField()
    role = serializers.ChoiceField(choices=[role.value for role in Role])
    content = serializers.CharField()
    parts = PartsOut(help_text="The tools that an assistant calls, and what a tool entry holds of them.")
    metadata = serializers.DictField()
    turn = serializers.IntegerField(source="turn_id", allow_null=True)
    deliveries = SentOut(many=True, source="shown_deliveries", help_text=DELIVERIES)
    created_at = serializers.DateTimeField()


@extend_schema_field({"type": "string", "nullable": True})
class TextOrNull(serializers.CharField):
    """An empty text is shown as null."""

    def to_representation(self, value: Any) -> Any:
        """The text or None."""
        return str(value) if value else None


class TurnOut(Output):
    id = serializers.IntegerField()
    session = serializers.UUIDField(source="session_id")
    kind = serializers.ChoiceField(choices=TurnKind.choices)
    state = serializers.ChoiceField(choices=TurnState.choices)
    content = serializers.CharField()
    reply = serializers.CharField(allow_null=True)
    error = TextOrNull(allow_null=True, help_text="A short sentence.")
    error_code = TextOrNull(allow_null=True)
    deliveries = SentOut(many=True, source="shown_deliveries", help_text=DELIVERIES)
    usage = serializers.DictField()
    attempt = serializers.IntegerField()
    lock_wait_ms = serializers.IntegerField(allow_null=True)
    queued_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class MailOut(Output):
    event_id = serializers.UUIDField()
    event_type = serializers.CharField()
    summary = serializers.CharField()
    detail = serializers.CharField()
    artifacts = serializers.ListField(child=serializers.CharField())
    priority = serializers.ChoiceField(choices=MailPriority.choices)
    state = serializers.ChoiceField(choices=MAIL_STATES)
    reason = TextOrNull(allow_null=True)
    turn = serializers.IntegerField(source="acknowledged_by_id", allow_null=True)
    created_at = serializers.DateTimeField()
