"""ReadMark: how far the owner of a session has read it on the pages."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session


class ReadMark(models.Model):
    """The seq of the newest message that the owner has seen. It only grows. No row: nothing has been read.

    It is no column of the session, since each commit of a turn updates that row.
    """

    session = models.OneToOneField(
        Session, on_delete=models.CASCADE, primary_key=True, related_name="read_mark"
    )
    seq = models.PositiveBigIntegerField()

    def __str__(self) -> str:
        return f"read up to {self.seq}"
