"""Session: one conversation, an actor with its own history and one turn at a time."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from sessions_app.models.agent import Agent

PRIMARY_KEY = "unified:default"
LONGEST_ADDRESS = 2_000  # characters: a web address may be long


class SessionType(models.TextChoices):
    """What a session is for; it decides how its context is built."""

    PRIMARY = "primary"
    SUB = "sub"
    HEARTBEAT = "heartbeat"
    JOB = "job"


BACKGROUND = (SessionType.HEARTBEAT, SessionType.JOB)  # no person writes in them


class SessionState(models.TextChoices):
    """What may still happen to a session. Active and idle are not stored: they are read from its turns."""

    OPEN = "open"
    ARCHIVED = "archived"
    DELETING = "deleting"


SESSION_ARROWS: dict[SessionState, tuple[SessionState, ...]] = {
    SessionState.OPEN: (SessionState.ARCHIVED, SessionState.DELETING),
    SessionState.ARCHIVED: (SessionState.DELETING,),
    # back to open: a delete that found automations in the way or could not get the lock
    SessionState.DELETING: (SessionState.OPEN, SessionState.ARCHIVED),
}


class ChatType(models.TextChoices):
    """Whether one person or several are on the other side."""

    PRIVATE = "private"
    GROUP = "group"


class Session(models.Model):
    """One conversation. `revision` grows by one per commit, `last_seq` is the seq of its newest message."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="sessions")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sessions")
    key = models.CharField(max_length=200)
    type = models.CharField(max_length=16, choices=SessionType, default=SessionType.SUB)
    state = models.CharField(max_length=16, choices=SessionState, default=SessionState.OPEN)
    channel = models.CharField(max_length=32, default="web")
    chat_id = models.CharField(
        max_length=LONGEST_ADDRESS, blank=True, help_text="Its address on the channel."
    )
    chat_type = models.CharField(max_length=16, choices=ChatType, default=ChatType.PRIVATE)
    channel_meta = models.JSONField(default=dict, blank=True)
    reopens_as = models.CharField(
        max_length=16, choices=SessionState, default=SessionState.OPEN, editable=False
    )
    deleting_since = models.DateTimeField(null=True, blank=True, editable=False)
    last_route = models.JSONField(null=True, blank=True)
    variables = models.JSONField(default=dict, blank=True)
    revision = models.PositiveBigIntegerField(default=0)
    last_seq = models.PositiveBigIntegerField(default=0)
    window_from_seq = models.PositiveBigIntegerField(default=1)
    title = models.CharField(max_length=200, blank=True)
    title_given = models.BooleanField(
        default=False, db_default=False, help_text="By a person; else it is the first message's beginning."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "key"], name="session_key_once_per_agent"),
            models.CheckConstraint(
                condition=models.Q(state="deleting", deleting_since__isnull=False)
                | (~models.Q(state="deleting") & models.Q(deleting_since__isnull=True)),
                name="session_deleting_since",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=SessionState.values), name="session_state_known"
            ),
            models.CheckConstraint(
                condition=models.Q(type__in=SessionType.values), name="session_type_known"
            ),
            models.CheckConstraint(
                condition=models.Q(chat_type__in=ChatType.values), name="session_chat_type_known"
            ),
        ]

    def __str__(self) -> str:
        return self.title or self.key
