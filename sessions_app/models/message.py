"""Message: one entry of a session's history, and the files attached to it. Only commits and branches add messages.

ClientChat and ClientMessage: to which sessions the chats of other programs belong, and what they have sent there.
"""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agent_core.types import IMAGE_TYPES, Role
from sessions_app.models.agent import Agent
from sessions_app.models.session import Session
from sessions_app.models.turn import Turn

BY_AUTOMATION = "_automation_turn"  # in Message.metadata: this input came from an automation
ENDED_KEY = "ended_by"  # in Message.metadata: how the model ended this answer, if it is not whole
BY_CLIENT = "by_client"  # in Message.metadata: a program brought it in its history; it was not said here
PDF, TEXT = "application/pdf", "text/plain"
MEDIA_TYPES = (*IMAGE_TYPES, PDF, TEXT)  # of attachments
LONGEST_FILE_NAME = 100  # characters
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


class Attachment(models.Model):
    """A file. The metadata of its message name it, also in a branch, which does not copy it.

    `text` is what a model is shown of a file that is no image.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+")
    media_type = models.CharField(max_length=20)
    name = models.CharField(max_length=LONGEST_FILE_NAME, blank=True, db_default="", default="")
    content = models.BinaryField()
    text = models.TextField(blank=True, db_default="", default="")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "sessions_app_messageimage"  # processes of an older version go on during an upgrade
        constraints = [
            models.CheckConstraint(
                condition=Q(media_type__in=MEDIA_TYPES), name="attachment_media_type_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.media_type} {self.pk}"

    @property
    def is_image(self) -> bool:
        """Whether browsers show it in place."""
        return self.media_type in IMAGE_TYPES


class ClientChat(models.Model):
    """One session of a chat. A chat begins with number 0; each history that diverged adds a branch, the next number.

    `chat`: hash of the key that the program sent, or a random text for a chat without one. `told`: by session id, the
    seq up to which automations' answers were told to the program.
    """

    session = models.OneToOneField(
        Session, on_delete=models.CASCADE, primary_key=True, related_name="client_chat"
    )
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", db_index=False)
    door = models.CharField(max_length=32)  # the name of the protocol, of `interfaces/protocols.py`
    chat = models.CharField(max_length=64)
    number = models.PositiveIntegerField()
    told = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "door", "chat", "number"], name="client_chat_once"),
        ]

    def __str__(self) -> str:
        return f"{self.door} {self.number}"


class ClientMessage(models.Model):
    """A message that was accepted from the program.

    `path`: hash of all messages of the person up to it, as the program sent them. `ends_at_seq`: of a message that was
    copied into a branch, the last seq of its answer. `news`: ids of automations' messages that its answer begins with;
    `news_told`: they were sent. `delivered`: its whole answer was sent.
    """

    chat = models.ForeignKey(ClientChat, on_delete=models.CASCADE, related_name="accepted", db_index=False)
    position = models.PositiveIntegerField()
    path = models.CharField(max_length=64)
    request_key = models.CharField(max_length=64, blank=True, help_text="Hash of the Idempotency-Key.")
    turn = models.ForeignKey(Turn, null=True, on_delete=models.SET_NULL, related_name="+", db_index=False)
    ends_at_seq = models.PositiveBigIntegerField(null=True)
    news = models.JSONField(default=list)
    news_told = models.BooleanField(default=False)
    delivered = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["chat", "position"], name="client_message_once"),
            models.UniqueConstraint(
                fields=["request_key"], condition=~Q(request_key=""), name="client_message_key_once"
            ),
        ]
        indexes = [
            models.Index(fields=["path"], name="client_message_path"),
            # for the foreign key check when a turn is deleted
            models.Index(fields=["turn"], condition=Q(turn__isnull=False), name="client_message_turn"),
        ]

    def __str__(self) -> str:
        return f"message {self.position}"
