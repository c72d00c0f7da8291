"""Connection: how to call the models of a provider. It belongs to a user, or to the server."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

LONGEST_ERROR = 300  # characters


class Connection(models.Model):
    """A connection. Agents name its models as `<name>:<model>`.

    The secret is stored as ciphertext only. `last_error` says why its last call failed; it is empty if that succeeded
    or there was none, and `state_since` is when this last changed.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="connections",
        help_text="Empty: the server's; all users may use it.",
    )
    name = models.CharField(max_length=40)
    provider = models.CharField(max_length=40)
    base_url = models.CharField(max_length=500, blank=True, help_text="Empty: the provider's own address.")
    secret_ciphertext = models.TextField(blank=True, editable=False)
    allowed_models = models.JSONField(
        default=list, db_default=[], blank=True, help_text="Names of the models that may be used; empty: all."
    )
    requests_per_minute = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Of all agents together; 0: no limit."
    )
    last_error = models.CharField(
        max_length=LONGEST_ERROR, blank=True, default="", db_default="", editable=False
    )
    state_since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When calls began to succeed, or to fail."
    )
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"],
                condition=Q(owner__isnull=False),
                name="connection_name_once_per_owner",
            ),
            models.UniqueConstraint(
                fields=["name"], condition=Q(owner__isnull=True), name="connection_name_once_on_server"
            ),
            models.CheckConstraint(
                condition=Q(name__regex="^[a-z0-9][a-z0-9_-]{0,39}$"), name="connection_name_valid"
            ),
        ]

    def __str__(self) -> str:
        return self.name
