"""ClientChat and ClientMessage: which sessions a chat of another program became, and how far it has come in each."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models.agent import Agent
from sessions_app.models.session import Session
from sessions_app.models.turn import Turn


class ClientChat(models.Model):
    """One session of a chat. A chat begins with number 0; each history that diverged adds a branch, the next number.

    `chat`: hash of the key that the program sent, or a random text for a chat without one. `told`: by session id, the
    seq up to which automations' answers were told to the program.
    """

    session = models.OneToOneField(
        Session, on_delete=models.CASCADE, primary_key=True, related_name="client_chat"
    )
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", db_index=False)
    door = models.CharField(max_length=32)
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
