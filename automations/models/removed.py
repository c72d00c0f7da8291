"""RemovedRoutine: the title of a deleted routine, so that no heartbeat registers it again."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from sessions_app.models import Agent


class RemovedRoutine(models.Model):
    """One normalised title of one agent. A disabled routine is not listed here: it still has its row."""

    agent = models.ForeignKey(
        Agent, on_delete=models.CASCADE, related_name="removed_routines", db_index=False
    )
    title = models.CharField(max_length=200)
    removed_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "title"], name="removed_routine_once")]

    def __str__(self) -> str:
        return self.title
