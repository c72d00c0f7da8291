"""What a user has set for themselves on the account page, and the browsers that they are told things in."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

LONGEST_ENDPOINT, LONGEST_KEY, LONGEST_SECRET = 1_000, 100, 40  # characters


class UserSettings(models.Model):
    """The settings of one user. The row is made when the first of them is set."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="settings"
    )
    timezone = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="Empty: not known yet."
    )
    notify_pages = models.BooleanField(default=False, db_default=False)
    notify_text = models.BooleanField(
        default=False, db_default=False, help_text="Pushes have the first words, not the title only."
    )
    notify_mail = models.EmailField(
        blank=True, default="", db_default="", help_text="Told of failures. Empty: nobody."
    )
    quiet_from = models.TimeField(null=True, blank=True, help_text="Nothing is sent from then on.")
    quiet_to = models.TimeField(null=True, blank=True)

    class Meta:
        verbose_name = verbose_name_plural = "settings of a user"
        constraints = [
            models.CheckConstraint(
                condition=Q(quiet_from__isnull=True, quiet_to__isnull=True)
                | (Q(quiet_from__isnull=False, quiet_to__isnull=False) & ~Q(quiet_from=F("quiet_to"))),
                name="user_settings_quiet_hours_whole_or_none",
                violation_error_message="Quiet hours need a beginning and another end.",
            ),
        ]

    def __str__(self) -> str:
        return f"settings of {self.user_id}"

    @property
    def zone(self) -> tzinfo:
        """The user's clock; UTC while it is not known, or if this machine does not have its data."""
        try:
            return zoneinfo.ZoneInfo(self.timezone) if self.timezone else UTC
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            return UTC

    def quiet_until(self, now: datetime) -> datetime | None:
        """When the quiet hours end that it is in now; None outside of them."""
        if self.quiet_from is None or self.quiet_to is None:
            return None
        here = now.astimezone(self.zone)
        is_after, is_before = here.time() >= self.quiet_from, here.time() < self.quiet_to
        is_overnight = self.quiet_from > self.quiet_to
        if not ((is_after or is_before) if is_overnight else (is_after and is_before)):
            return None
        day = here.date() if is_before else here.date() + timedelta(days=1)
        return datetime.combine(day, self.quiet_to, tzinfo=self.zone)


class PushSubscription(models.Model):
    """A browser that a user is told things in by its push service. `key` and `secret` encrypt what it is sent.

    `server_key`: the public key of this server that the browser was given; it takes no push of another one.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="push_subscriptions"
    )
    name = models.CharField(max_length=60, help_text="The browser, as people know it.")
    endpoint = models.CharField(max_length=LONGEST_ENDPOINT, editable=False)
    key = models.CharField(max_length=LONGEST_KEY, editable=False)
    secret = models.CharField(max_length=LONGEST_SECRET, editable=False)
    server_key = models.CharField(max_length=100, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["endpoint"], name="push_subscription_endpoint_once"),
            models.CheckConstraint(
                condition=Q(endpoint__startswith="https://"), name="push_subscription_is_private"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.user_id}"
