"""Session: one conversation with its own history and one turn at a time, and what is kept beside its row."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Case, F, Q, When
from django.db.models.functions import Now

from sessions_app.models.agent import Agent

NOBODY = 0  # what a row is inserted with; a trigger of the migration replaces it by the owner


def owner_column() -> models.BigIntegerField[Any, Any]:
    """The id of the user, who never changes. No foreign key: it follows from another column of the row."""
    return models.BigIntegerField(db_default=NOBODY, editable=False, help_text="The user that it belongs to.")


def has_owner(name: str, unless: Q | None = None) -> models.CheckConstraint:
    """Constraint: the row has an owner, or is one of those in `unless`."""
    is_set = Q(owner_id__gt=NOBODY)
    return models.CheckConstraint(condition=is_set if unless is None else is_set | unless, name=name)


PRIMARY_KEY = "unified:default"
WEB = "web"  # the channel without deliveries: its messages are read through history and event streams
INSTRUCTIONS_KEY = "job_instructions"  # in Session.variables: the standing instructions of a job's session
LONGEST_ADDRESS = 2_000  # characters; URLs may be long


class SessionType(models.TextChoices):
    """The type of a session. It decides how the context is built."""

    PRIMARY = "primary"
    SUB = "sub"
    HEARTBEAT = "heartbeat"
    JOB = "job"


BACKGROUND = (SessionType.HEARTBEAT, SessionType.JOB)  # sessions that no person writes in


class SessionState(models.TextChoices):
    """The stored state of a session. Active and idle are not stored: they are derived from its turns."""

    OPEN = "open"
    ARCHIVED = "archived"
    DELETING = "deleting"


SESSION_ARROWS: dict[SessionState, tuple[SessionState, ...]] = {
    SessionState.OPEN: (SessionState.ARCHIVED, SessionState.DELETING),
    SessionState.ARCHIVED: (SessionState.OPEN, SessionState.DELETING),
    # back to open or archived: a delete that was blocked or could not get the lock
    SessionState.DELETING: (SessionState.OPEN, SessionState.ARCHIVED),
}


class ChatType(models.TextChoices):
    """Whether one person or several read the chat."""

    PRIVATE = "private"
    GROUP = "group"


class SessionTransitions(models.QuerySet["Session"]):
    """The transitions, each a conditional UPDATE of the selected sessions. 0: the state had already changed."""

    def archive(self) -> int:
        """OPEN → ARCHIVED."""
        return self.filter(state=SessionState.OPEN).update(state=SessionState.ARCHIVED, updated_at=Now())

    def unarchive(self) -> int:
        """ARCHIVED → OPEN."""
        return self.filter(state=SessionState.ARCHIVED).update(state=SessionState.OPEN, updated_at=Now())

    def begin_delete(self, since: datetime) -> int:
        """OPEN, ARCHIVED or another delete's DELETING → DELETING. `since` identifies this delete."""
        return self.update(
            reopens_as=Case(When(state=SessionState.DELETING, then=F("reopens_as")), default=F("state")),
            state=SessionState.DELETING,
            deleting_since=since,
        )

    def reopen(self) -> int:
        """DELETING → the state before: the delete did not succeed."""
        return self.filter(state=SessionState.DELETING).update(state=F("reopens_as"), deleting_since=None)


class Session(models.Model):
    """One conversation. `revision` grows by one with each commit; `last_seq` is the seq of its newest message."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="sessions", db_index=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sessions", db_index=False
    )
    key = models.CharField(max_length=200)
    type = models.CharField(max_length=16, choices=SessionType, default=SessionType.SUB)
    state = models.CharField(max_length=16, choices=SessionState, default=SessionState.OPEN)
    channel = models.CharField(max_length=32, default=WEB)
    chat_id = models.CharField(
        max_length=LONGEST_ADDRESS, blank=True, help_text="The address on the channel."
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
    stored_bytes = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="The bytes of its messages; images count by themselves.",
    )
    title = models.CharField(max_length=200, blank=True)
    title_given = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Whether a person gave the title; else it is taken from the first message.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now())

    objects = SessionTransitions.as_manager()

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
        indexes = [
            # lists of a user's sessions, newest first: all, of one type, of one agent
            models.Index(fields=["owner", "created_at", "id"], name="session_of_owner"),
            models.Index(fields=["owner", "type", "created_at", "id"], name="session_of_owner_by_type"),
            models.Index(fields=["owner", "state", "created_at", "id"], name="session_of_owner_by_state"),
            models.Index(fields=["agent", "created_at", "id"], name="session_of_agent"),
            # an agent's conversations, newest first: ids are read from the index alone
            models.Index(
                fields=["agent", "created_at", "id"],
                condition=models.Q(type="sub"),
                name="session_conversation",
            ),
            # for operators: all sessions, newest first, and those of a key
            models.Index(fields=["created_at", "id"], name="session_by_age"),
            models.Index(fields=["key"], name="session_by_key"),
            # for the sweep: nearly always empty
            models.Index(
                fields=["deleting_since"], condition=models.Q(state="deleting"), name="session_deleting"
            ),
            # archived sessions of each job by age, for pruning. Not by `updated_at`: commits must not update an index
            models.Index(
                fields=["agent", "chat_id", "created_at"],
                condition=models.Q(type="job", state="archived"),
                name="session_of_job",
            ),
        ]

    def __str__(self) -> str:
        return self.title or self.key

    @property
    def is_thread(self) -> bool:
        """Whether it is a conversation on the web, which shows the primary session while its agent is unified."""
        return self.type == SessionType.SUB and self.channel == WEB

    @property
    def own_route(self) -> dict[str, Any]:
        """The session's channel, address and metadata."""
        return {"channel": self.channel, "chat_id": self.chat_id, "meta": self.channel_meta}

    @property
    def standing_route(self) -> dict[str, Any]:
        """Where answers go that no message asked for: where a person last wrote, else the session's own (rule 4.9).

        Without an address it is the channel `web`: the answer stays on the server.
        """
        if self.last_route:
            return dict(self.last_route)
        if self.channel and self.chat_id:
            return self.own_route
        return {"channel": WEB, "chat_id": "", "meta": {}}


def rerouted(route: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the session's old address in a route by the new one. Other routes stay as they are."""
    if (route["channel"], route["chat_id"]) != (before["channel"], before["chat_id"]):
        return dict(route)
    meta = after["meta"] if route.get("meta", {}) == before["meta"] else route["meta"]
    return {**route, "chat_id": after["chat_id"], "meta": meta}


class ReadMark(models.Model):
    """The seq of the newest message that the owner has seen. It only grows. No row: nothing has been read.

    It is no column of the session, since each commit of a turn updates that row.
    """

    session = models.OneToOneField(
        Session, on_delete=models.CASCADE, primary_key=True, related_name="read_mark"
    )
    seq = models.PositiveBigIntegerField()

    def __str__(self) -> str:
        return f"read up to {self.seq}"


class TaskState(models.Model):
    """Lasting facts of one session, without waiting steps and live state.

    `open_loops` and `important_facts` are lists of texts.
    """

    session = models.OneToOneField(
        Session, primary_key=True, on_delete=models.CASCADE, related_name="task_state"
    )
    current_goal = models.TextField(blank=True)
    active_flow = models.TextField(blank=True)
    open_loops = models.JSONField(default=list, blank=True)
    important_facts = models.JSONField(default=list, blank=True)
    last_decision = models.TextField(blank=True)
    revision = models.PositiveIntegerField(default=1)
    consolidated_revision = models.PositiveIntegerField(
        default=0, help_text="The revision that was last merged into MEMORY.md."
    )
    read_to_seq = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        help_text="Last message included in the task state while that message is still in the window.",
    )
    updated_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.current_goal or f"task state of {self.session_id}"
