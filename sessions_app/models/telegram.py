"""TelegramBot, its chats and the updates that were handled."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models.agent import Agent

LONGEST_ERROR = 300  # characters


class TelegramBot(models.Model):
    """A bot of Telegram through which its owner talks with an agent. The token is stored as ciphertext only.

    `telegram_id` and `username` are Telegram's: one bot belongs to one agent, because Telegram gives its updates to one
    reader only. `code_sha256` is the hash of the code that connects the next chat; empty when there is none.
    `last_error` says why its updates cannot be read; empty when they can, or nobody tried yet.
    """

    agent = models.OneToOneField(
        Agent, on_delete=models.CASCADE, primary_key=True, related_name="telegram_bot"
    )
    telegram_id = models.BigIntegerField(unique=True)
    username = models.CharField(max_length=64)
    token_ciphertext = models.TextField(editable=False)
    enabled = models.BooleanField(default=True)
    code_sha256 = models.CharField(max_length=64, blank=True, default="", editable=False)
    code_expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=LONGEST_ERROR, blank=True, default="", editable=False)
    state_since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When reading began to succeed, or to fail."
    )
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name = "Telegram bot"
        constraints = [
            models.CheckConstraint(condition=~Q(token_ciphertext=""), name="telegram_bot_has_a_token"),
            models.CheckConstraint(
                condition=Q(code_sha256="", code_expires_at__isnull=True)
                | Q(code_sha256__regex="^[0-9a-f]{64}$", code_expires_at__isnull=False),
                name="telegram_code_is_a_hash",
            ),
        ]

    def __str__(self) -> str:
        return f"@{self.username}"


class TelegramChat(models.Model):
    """A private chat that is connected to the agent of its bot: the agent's owner writes in it.

    `chat_id` is also the id of the person's account at Telegram. `partial_key` and `partial_count` say how many parts
    of a long answer were sent, so that another attempt goes on after them.
    """

    bot = models.ForeignKey(TelegramBot, on_delete=models.CASCADE, related_name="chats", db_index=False)
    chat_id = models.BigIntegerField()
    name = models.CharField(max_length=80, blank=True)
    connected_at = models.DateTimeField(db_default=Now(), editable=False)
    blocked_at = models.DateTimeField(null=True, blank=True, editable=False)
    partial_key = models.CharField(max_length=200, blank=True, default="", editable=False)
    partial_count = models.PositiveSmallIntegerField(default=0, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["bot", "chat_id"], name="telegram_chat_once"),
            models.CheckConstraint(condition=Q(chat_id__gt=0), name="telegram_chat_is_private"),
        ]

    def __str__(self) -> str:
        return self.name or str(self.chat_id)


class TelegramUpdate(models.Model):
    """An update that was handled. It is stored with what it caused, so that a repeated one causes nothing."""

    bot = models.ForeignKey(TelegramBot, on_delete=models.CASCADE, related_name="+", db_index=False)
    update_id = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["bot", "update_id"], name="telegram_update_once")]
        indexes = [models.Index(fields=["created_at"], name="telegram_update_by_age")]

    def __str__(self) -> str:
        return str(self.update_id)
