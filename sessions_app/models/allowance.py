"""Allowance: the rate limit of a client. One row for each user, hook or network that sent requests lately."""

from __future__ import annotations

from django.db import models


class Allowance(models.Model):
    """The key of a client, and when its full allowance is available again. After that the row has no effect.

    The table is unlogged: a database crash empties it, and every client has its full allowance again.
    """

    key = models.CharField(
        max_length=100,
        primary_key=True,
        help_text="`user:<id>`, `hook:<id>` or `address:<network>`, and the rate.",
    )
    full_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["full_at"], name="allowance_full")]

    def __str__(self) -> str:
        return self.key
