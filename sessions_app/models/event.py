"""Event: a change that open windows are told of. Events are kept for one day; deltas are never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Func, Q
from django.db.models.functions import Now

from sessions_app.models.agent import Agent
from sessions_app.models.session import Session

if TYPE_CHECKING:
    _TextIsRead = models.Field[str, str]
else:
    _TextIsRead = models.Field  # at run time Django's Field has no type parameters


class TransactionIdField(_TextIsRead):
    """PostgreSQL's xid8: the id of the writing transaction. The database sets it; it is read as text."""

    def db_type(self, connection: Any) -> str:  # noqa: ARG002 - Django calls it by name
        return "xid8"


class CurrentTransactionId(Func):
    function = "pg_current_xact_id"
    template = "%(function)s()"
    output_field = TransactionIdField()


class Scope(models.TextChoices):
    """Which windows an event is for: its session's, or every one of its agent."""

    SESSION = "session"
    AGENT = "agent"


class EventType(models.TextChoices):
    """The types of stored events. `delta` and `snapshot` are sent but not stored."""

    TURN_QUEUED = "turn_queued"
    TURN_START = "turn_start"
    TOOL_CALL = "tool_call"
    TOOL_OUTPUT = "tool_output"
    STATUS = "status"
    PLANNING = "planning"
    PLAN = "plan"
    STEP_START = "step_start"
    STEP_COMPLETE = "step_complete"
    REPLAN = "replan"
    WAITING = "waiting"
    DONE = "done"
    MESSAGE = "message"
    DELIVERY = "delivery"
    TURN_END = "turn_end"


class Event(models.Model):
    """One stored event. Its cursor is (xid, id), because ids alone are assigned before their transaction commits."""

    xid = TransactionIdField(db_default=CurrentTransactionId(), editable=False)
    # no constraint in the database, whose check would be a tenth of firing: the agent is the session's
    agent = models.ForeignKey(
        Agent, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="+"
    )
    # none either: an event is stored with a change to a row of the session, which a delete locks or removes before it
    # removes the events
    session = models.ForeignKey(
        Session, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="events"
    )
    turn_id = models.BigIntegerField(null=True, blank=True)
    scope = models.CharField(max_length=16, choices=Scope, default=Scope.SESSION)
    source_type = models.CharField(max_length=20, blank=True)
    run_id = models.CharField(max_length=80, blank=True)
    type = models.CharField(max_length=20, choices=EventType)
    content = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(type__in=EventType.values), name="event_type_known"),
            models.CheckConstraint(condition=Q(scope__in=Scope.values), name="event_scope_known"),
            # only the session's own windows get text (rule 9.1)
            models.CheckConstraint(
                condition=Q(scope=Scope.SESSION) | Q(type=EventType.STATUS), name="event_for_all_is_status"
            ),
        ]
        indexes = [
            models.Index(fields=["session", "xid", "id"], name="event_cursor"),
            models.Index(
                fields=["agent", "xid", "id"], condition=Q(scope=Scope.AGENT), name="event_agent_cursor"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.pk}"
