"""IdempotencyKey: the stored response of a create, which a repeated request gets again."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

KEPT = timedelta(days=1)


class IdempotencyKey(models.Model):
    """One key of one user at one address. Its row is stored in the transaction of the create."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    address = models.CharField(max_length=300, help_text="Method and path.")
    key = models.CharField(max_length=200)
    body_sha256 = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(default=0)
    body = models.TextField(blank=True, help_text="The JSON text of the response.")
    location = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "address", "key"], name="idempotency_key_once"),
        ]
        indexes = [
            models.Index(fields=["created_at"], name="idempotency_age"),
            models.Index(fields=["key"], name="idempotency_key"),  # what operators search for
        ]

    def __str__(self) -> str:
        return self.key
