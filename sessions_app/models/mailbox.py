"""MailboxEvent: an update from another session's work, shown to the model with the next turn."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models.session import Session
from sessions_app.models.turn import Turn

TARGET_GONE = "target_gone"  # the reason of an update that was dropped because its session is gone


class Priority(models.IntegerChoices):
    """Urgent events are shown first."""

    NORMAL = 0
    HIGH = 1
    URGENT = 2


class MailboxEvent(models.Model):
    """One update. It is pending until it is acknowledged or dropped, never both."""

    event_id = models.UUIDField(unique=True, default=uuid.uuid4)
    target = models.ForeignKey(
        Session, null=True, on_delete=models.SET_NULL, related_name="mailbox", db_index=False
    )
    source_key = models.CharField(max_length=200, blank=True)
    event_type = models.CharField(max_length=64)
    summary = models.CharField(max_length=300)
    detail = models.TextField(blank=True)
    artifacts = models.JSONField(default=list, blank=True)
    priority = models.SmallIntegerField(choices=Priority, default=Priority.NORMAL)
    suppress_if_stale = models.BooleanField(default=False)
    dedupe_key = models.CharField(max_length=200, blank=True)
    foreign = models.BooleanField(
        default=False,
        db_default=False,
        help_text="The reporting turn had read text from outside. A turn that is shown it is restricted.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        Turn, null=True, blank=True, on_delete=models.SET_NULL, related_name="acknowledged", db_index=False
    )
    dropped_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=64, blank=True)
    lost = models.PositiveIntegerField(
        default=0,
        db_default=0,
        help_text="Unread updates that were dropped over the limit.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["target", "dedupe_key"],
                condition=Q(acknowledged_at__isnull=True, dropped_at__isnull=True) & ~Q(dedupe_key=""),
                name="mailbox_one_unread_per_dedupe_key",
            ),
            models.CheckConstraint(
                condition=Q(acknowledged_at__isnull=True) | Q(dropped_at__isnull=True),
                name="mailbox_acknowledged_or_dropped",
            ),
            models.CheckConstraint(
                condition=Q(dropped_at__isnull=True) | ~Q(reason=""), name="mailbox_dropped_with_reason"
            ),
            models.CheckConstraint(condition=Q(priority__in=Priority.values), name="mailbox_priority_known"),
            models.CheckConstraint(
                condition=Q(target__isnull=False) | Q(dropped_at__isnull=False),
                name="mailbox_without_target_is_dropped",
            ),
            models.CheckConstraint(
                condition=Q(acknowledged_by__isnull=True) | Q(acknowledged_at__isnull=False),
                name="mailbox_turn_acknowledged_it",
            ),
        ]
        indexes = [
            models.Index(
                fields=["target", "-priority", "id"],
                condition=Q(acknowledged_at__isnull=True, dropped_at__isnull=True),
                name="mailbox_pending",
            ),
            # the list of a session's mailbox, newest first
            models.Index(fields=["target", "id"], name="mailbox_of_session"),
            # for the foreign key check when a turn is deleted
            models.Index(
                fields=["acknowledged_by"],
                condition=Q(acknowledged_by__isnull=False),
                name="mailbox_of_turn",
            ),
        ]

    def __str__(self) -> str:
        return self.summary or str(self.event_id)

    @property
    def type_in_words(self) -> str:
        """What it is about, as a person reads it: `Works again`."""
        return self.event_type.replace("_", " ").capitalize()
