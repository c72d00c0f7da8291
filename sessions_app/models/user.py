"""What a user has set for themselves on the account page."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class UserSettings(models.Model):
    """The settings of one user. The row is made when the first of them is set."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="settings"
    )
    timezone = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="Empty: not known yet."
    )

    class Meta:
        verbose_name = verbose_name_plural = "settings of a user"

    def __str__(self) -> str:
        return f"settings of {self.user_id}"
