"""ZoneData: by which time-zone data plans were made."""

from __future__ import annotations

from django.db import models


class ZoneData(models.Model):
    """The time-zone data by which the slots of a zone were computed."""

    name = models.CharField(primary_key=True, max_length=64)
    fingerprint = models.CharField(max_length=64)

    def __str__(self) -> str:
        return self.name
