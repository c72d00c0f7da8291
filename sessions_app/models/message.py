"""Message: one entry of a session's history, and the images in it. Only commits and branches add messages."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agent_core.types import Role
from sessions_app.models.session import Session
from sessions_app.models.turn import Turn

BY_AUTOMATION = "_automation_turn"  # in Message.metadata: this input came from an automation
ENDED_KEY = "ended_by"  # in Message.metadata: how the model ended this answer, if it is not whole
BY_CLIENT = "by_client"  # in Message.metadata: a program brought it in its history; it was not said here
ASKED_FROM = "asked_from"  # in Message.metadata: where in the content the question for consent begins


class Message(models.Model):
    """One entry. `content` is what people see; `model_content` is what the model saw, if that differs.

    `parts` holds the entry's tool calls or results in the form of agent_core's Entry.
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="messages", db_index=False)
    seq = models.PositiveBigIntegerField()
    role = models.CharField(max_length=16, choices=[(role.value, role.value) for role in Role])
    content = models.TextField(blank=True)
    model_content = models.TextField(null=True, blank=True)
    parts = models.JSONField(default=dict, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    turn = models.ForeignKey(
        Turn, null=True, on_delete=models.SET_NULL, related_name="messages", db_index=False
    )
    shown_after_seq = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        editable=False,
        help_text="For a thread's own message in unified mode: the primary session's last seq at that time.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["session_id", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["session", "seq"], name="message_seq_once_per_session"),
            models.CheckConstraint(
                condition=Q(role__in=[str(role) for role in Role]), name="message_role_known"
            ),
            models.CheckConstraint(condition=Q(seq__gte=1), name="message_seq_from_one"),
        ]
        # the messages of a turn; also for the foreign key check when a turn is deleted
        indexes = [
            models.Index(fields=["turn", "seq"], name="message_of_turn"),
            models.Index(
                fields=["session", "shown_after_seq", "seq"],
                condition=Q(shown_after_seq__isnull=False),
                name="message_beside",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.seq}"


class MessageImage(models.Model):
    """An image. The metadata of its message name it, also in a branch, which does not copy it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+")
    media_type = models.CharField(max_length=20)
    content = models.BinaryField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return f"{self.media_type} {self.pk}"
