"""The tables of an agent: its documents, the instructions of its users, and connections to models."""

from __future__ import annotations

import zoneinfo
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

DOCUMENTS = ("AGENTS.md", "USER.md", "MEMORY.md", "SKILLS.md", "HEARTBEAT.md")
DEFAULT_ZONE = "UTC"  # of an agent whose owner's zone is not known


def heartbeat_defaults() -> dict[str, Any]:
    """The heartbeat settings of a new agent: off, because each beat costs money. `active_hours` are local hours
    [start, end).
    """
    return {"enabled": False, "interval_seconds": 1800, "active_hours": [8, 22], "ack_max_chars": 300}


def validate_timezone(name: str) -> None:
    """Reject a zone that the time zone database does not contain. ValidationError."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        text = f"unknown time zone {name!r}; use an IANA name such as 'Europe/Berlin'"
        raise ValidationError(text, code="unknown_timezone") from error


class Engine(models.TextChoices):
    """How an agent answers."""

    CHAT = "chat"
    PLANNER = "planner"


class Agent(models.Model):
    """A configured assistant of one user."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="agents")
    name = models.CharField(max_length=64)
    model = models.CharField(max_length=200, blank=True, help_text="Empty: the server's RONDO_MODEL.")
    fallback_model = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="The model that is asked if the model cannot be reached; empty: none.",
    )
    model_settings = models.JSONField(
        default=dict, db_default={}, blank=True, help_text="temperature, max_tokens, reasoning and images."
    )
    timezone = models.CharField(max_length=64, default=DEFAULT_ZONE, validators=[validate_timezone])
    engine = models.CharField(max_length=16, choices=Engine, default=Engine.CHAT)
    unified_session = models.BooleanField(default=False)
    heartbeat = models.JSONField(default=heartbeat_defaults)
    policy = models.JSONField(default=dict, blank=True)
    limits = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="Caps in tokens and US dollars by run, day and month.",
    )
    mcp_servers = models.JSONField(default=dict, blank=True)  # by name; the headers are secrets
    allow_tools = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        help_text="Names of tools that the agent may use without consent, in all turns except those of hooks.",
    )
    signing_secret = models.CharField(
        max_length=100,
        blank=True,
        db_default="",
        editable=False,
        help_text="The key that signs webhooks. It is created when it is first needed.",
    )
    events_url = models.CharField(
        max_length=2000,
        blank=True,
        default="",
        db_default="",
        help_text="Where system events are posted: failed runs, dead letters, used up budgets. Empty: nowhere.",
    )
    routine_limit = models.PositiveSmallIntegerField(default=20)
    revision = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="agent_name_once_per_owner"),
            models.CheckConstraint(condition=models.Q(engine__in=Engine.values), name="agent_engine_known"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def effective_model(self) -> str:
        """The agent's own model, or the server's if it has none."""
        return self.model or str(settings.RONDO_MODEL)

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        """The agent's time zone; UTC if this machine does not have its data."""
        try:
            return zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            return zoneinfo.ZoneInfo("UTC")


class Document(models.Model):
    """A text of an agent. Every turn reads it again, so an edit takes effect with the next turn."""

    basis: str | None = None  # not a column: identifies what a reader has seen of a document with a backing

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="documents")
    name = models.CharField(max_length=64)
    content = models.TextField(blank=True)
    revision = models.PositiveIntegerField(default=1)
    imported_digest = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of the file that it was last imported from."
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "name"], name="document_name_once_per_agent"),
        ]

    def __str__(self) -> str:
        return self.name


class DocumentRevision(models.Model):
    """An earlier revision of a document. The newest ones are kept, so that people can restore them."""

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="revisions", db_index=False)
    revision = models.PositiveIntegerField()
    content = models.TextField(blank=True)
    replaced_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["document", "revision"], name="document_revision_once_per_document"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.document_id} revision {self.revision}"


LONGEST_ERROR = 300  # characters


class Connection(models.Model):
    """A connection. Agents name its models as `<name>:<model>`.

    The secret is stored as ciphertext only. `last_error` says why its last call failed; it is empty if that succeeded
    or there was none, and `state_since` is when this last changed.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="connections",
        help_text="Empty: the server's; all users may use it.",
    )
    name = models.CharField(max_length=40)
    provider = models.CharField(max_length=40)
    base_url = models.CharField(max_length=500, blank=True, help_text="Empty: the provider's own address.")
    secret_ciphertext = models.TextField(blank=True, editable=False)
    allowed_models = models.JSONField(
        default=list, db_default=[], blank=True, help_text="Names of the models that may be used; empty: all."
    )
    requests_per_minute = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Of all agents together; 0: no limit."
    )
    limits = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="Caps in tokens and US dollars by run, day and month.",
    )
    prices = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="US dollars for a million tokens by model, each {input, output}; * is for all others.",
    )
    last_error = models.CharField(
        max_length=LONGEST_ERROR, blank=True, default="", db_default="", editable=False
    )
    state_since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When calls began to succeed, or to fail."
    )
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"],
                condition=Q(owner__isnull=False),
                name="connection_name_once_per_owner",
            ),
            models.UniqueConstraint(
                fields=["name"], condition=Q(owner__isnull=True), name="connection_name_once_on_server"
            ),
            models.CheckConstraint(
                condition=Q(name__regex="^[a-z0-9][a-z0-9_-]{0,39}$"), name="connection_name_valid"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Preference(models.Model):
    """One person's standing instructions to one agent. They are part of the system prompt of their conversations."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="preferences", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    content = models.TextField(blank=True)
    revision = models.PositiveIntegerField(default=1)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "user"], name="preference_once_per_person")]

    def __str__(self) -> str:
        return f"preferences of {self.user_id}"
