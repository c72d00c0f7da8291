"""ZoneData: the time-zone data that slots were computed with."""

from __future__ import annotations

from django.db import models


class ZoneData(models.Model):
    """The fingerprint of the data that a zone's slots were computed with."""

    name = models.CharField(primary_key=True, max_length=64)
    fingerprint = models.CharField(max_length=64)

    def __str__(self) -> str:
        return self.name
