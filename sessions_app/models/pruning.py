"""Pruning: the position of a walk through one kind of rows, where the next batch continues."""

from __future__ import annotations

from django.db import models

EVENTS = "events"


class Pruning(models.Model):
    """One walk. Each walk defines its own `position`; it is stored in the transaction of the batch.

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
