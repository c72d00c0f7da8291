"""Process: a web process, worker or beat that runs."""

from __future__ import annotations

import uuid

from django.db import models
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
                condition=models.Q(kind__one_of=[kind.value for kind in ProcessKind]),
            ),
            models.CheckConstraint(
                name="process_seen_after_start", condition=models.Q(seen_at__gte=models.F("started_at"))
            ),
        ]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
