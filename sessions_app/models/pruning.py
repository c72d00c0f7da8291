"""Pruning: how far the walk through one kind of rows has come, so that the next batch goes on there."""

from __future__ import annotations

from django.db import models

EVENTS = "events"


class Pruning(models.Model):
    """One walk. `position` is its own business; it is written in the transaction of the batch that it tells of.

    `horizon_xid` and `horizon_id` are the greatest cursor of an event that was removed: whoever stood before it
    may have missed something.
    """

    name = models.CharField(primary_key=True, max_length=64)
    position = models.JSONField(default=dict)
    removed = models.PositiveBigIntegerField(default=0, help_text="Rows, ever.")
    walked_at = models.DateTimeField(null=True, help_text="Its last batch.")
    completed_at = models.DateTimeField(null=True, help_text="When it last came to the end of its walk.")
    horizon_xid = models.BigIntegerField(default=0)
    horizon_id = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return self.name
