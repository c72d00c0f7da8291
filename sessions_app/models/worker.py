"""Worker: a process that runs turns, and when it last gave a sign of life."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models.functions import Now


class Worker(models.Model):
    """One process. `epoch` counts the connections its locks have lived on."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    epoch = models.PositiveIntegerField(default=1)
    shards = models.JSONField(default=list, help_text="Queue names this process reads.")
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
