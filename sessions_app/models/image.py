"""MessageImage: an image in a person's message."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models.functions import Now

from sessions_app.models.session import Session


class MessageImage(models.Model):
    """An image. The metadata of its message name it, also in a branch, which does not copy it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+")
    media_type = models.CharField(max_length=20)
    content = models.BinaryField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return f"{self.media_type} {self.pk}"
