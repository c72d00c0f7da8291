"""The processes of the fleet with their heartbeats, and what maintenance and metrics count."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class ProcessKind(models.TextChoices):
    """What a process does."""

    WEB = "web"
    WORKER = "worker"
    BEAT = "beat"


class Process(models.Model):
    """One process of the fleet, as it reports itself. A worker's id is that of its `Worker`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    kind = models.CharField(max_length=8, choices=ProcessKind.choices)
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    address = models.CharField(max_length=300, blank=True, help_text="Where a web process listens.")
    version = models.CharField(max_length=40)
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "processes"
        constraints = [
            models.CheckConstraint(
                name="process_kind_known",
                condition=models.Q(kind__in=[kind.value for kind in ProcessKind]),
            ),
            models.CheckConstraint(
                name="process_seen_after_start", condition=models.Q(seen_at__gte=models.F("started_at"))
            ),
        ]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Worker(models.Model):
    """One process. `epoch` counts its lock connections."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    epoch = models.PositiveIntegerField(default=1)
    shards = models.JSONField(default=list, help_text="The queues that this process reads.")
    slots = models.PositiveIntegerField(
        default=0, db_default=0, help_text="The number of turns it can run at a time."
    )
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())
    steady_since = models.DateTimeField(
        null=True,
        help_text="When its heartbeats resumed after an interruption. Empty if they were never interrupted.",
    )

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Counter(models.Model):
    """One counter of `/metrics`. Processes add to it every few seconds, never in a turn's transaction."""

    name = models.CharField(max_length=64)
    labels = models.JSONField(default=dict)
    value = models.BigIntegerField(default=0)
    changed_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name", "labels"], name="counter_once"),
            models.CheckConstraint(condition=Q(value__gte=0), name="counter_not_negative"),
        ]

    def __str__(self) -> str:
        return self.name


EVENTS = "events"


class Pruning(models.Model):
    """How far a walk of maintenance has come. Each walk defines its own `position`, stored in the transaction of a
    batch.

    `horizon_xid` and `horizon_id` are the greatest cursor of a removed event. Readers before it may miss events.
    """

    name = models.CharField(primary_key=True, max_length=64)
    position = models.JSONField(default=dict)
    removed = models.PositiveBigIntegerField(default=0, help_text="Rows removed in total.")
    walked_at = models.DateTimeField(null=True, help_text="When its last batch ran.")
    completed_at = models.DateTimeField(null=True, help_text="When it last reached its end.")
    horizon_xid = models.BigIntegerField(default=0)
    horizon_id = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return self.name
