"""Agent and Document: who answers, and the texts it lives by."""

from __future__ import annotations

import zoneinfo
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Now


def heartbeat_defaults() -> dict[str, Any]:
    """The heartbeat of a new agent: seconds, local hours [start, end), characters."""
    return {"enabled": True, "interval_seconds": 1800, "active_hours": [8, 22], "ack_max_chars": 300}


def validate_timezone(name: str) -> None:
    """Refuse a zone that the time-zone database does not know."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValidationError(f"unknown time zone {name!r}", code="unknown_timezone") from error


class Engine(models.TextChoices):
    """How an agent answers."""

    CHAT = "chat"
    PLANNER = "planner"


class Agent(models.Model):
    """A configured assistant of one user."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="agents")
    name = models.CharField(max_length=64)
    model = models.CharField(max_length=200, blank=True, help_text="Empty: the server's RONDO_MODEL.")
    timezone = models.CharField(max_length=64, default="UTC", validators=[validate_timezone])
    engine = models.CharField(max_length=16, choices=Engine, default=Engine.CHAT)
    unified_session = models.BooleanField(default=False)
    heartbeat = models.JSONField(default=heartbeat_defaults)
    policy = models.JSONField(default=dict, blank=True)
    mcp_servers = models.JSONField(default=dict, blank=True)  # by name; the headers are secrets
    signing_secret = models.CharField(
        max_length=100,
        blank=True,
        db_default="",
        editable=False,
        help_text="Webhooks are signed with it; made when it is first needed.",
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
        """The model that answers: the agent's own, or the server's while it names none."""
        return self.model or str(settings.RONDO_MODEL)


class Document(models.Model):
    """A text of an agent, read anew by every turn, so an edit is live with the next one."""

    basis: str | None = None  # no column: of a document that is more than text, what a writer has seen

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
