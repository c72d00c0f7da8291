"""Worker: a process that runs turns, with its last heartbeat."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models.functions import Now


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
