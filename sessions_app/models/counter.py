"""Counter: how often something happened, in total over all processes."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


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
