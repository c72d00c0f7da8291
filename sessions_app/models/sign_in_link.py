"""SignInLink: a link that signs a user in once."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now


class SignInLink(models.Model):
    """A link that signs `user` in once, before `expires_at`. Only the hash of its token is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    token_sha256 = models.CharField(max_length=64, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(token_sha256__regex="^[0-9a-f]{64}$"),  # noqa: S106 - the form of a hash
                name="sign_in_link_token_is_a_hash",
            ),
            models.UniqueConstraint(fields=["token_sha256"], name="sign_in_link_token_once"),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="sign_in_link_expires_later"
            ),
            models.CheckConstraint(
                condition=Q(used_at__isnull=True) | Q(used_at__lt=F("expires_at")),
                name="sign_in_link_used_in_time",
            ),
        ]

    def __str__(self) -> str:
        return f"link of {self.created_at:%Y-%m-%d %H:%M}"
