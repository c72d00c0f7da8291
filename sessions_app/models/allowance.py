"""Allowance: how much somebody may still ask for. One row for each user and address that asked lately."""

from __future__ import annotations

from django.db import models


class Allowance(models.Model):
    """Whose requests are counted, and when all of what was used is there again; past that, the row says nothing.

    The table is not logged: a database that crashed forgets it, and everybody may ask again.
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
