"""Hook: an address with a token of its own, at which another system posts messages."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models.agent import Agent
from sessions_app.models.session import LONGEST_ADDRESS, Session


class Hook(models.Model):
    """An inbound webhook. Its posts become messages of `session`, or of the agent's primary session.

    Answers go to `channel` and `address`; empty: to the session's own. The token is not stored: the row has its hash,
    and a salt from which only the server can compute the token again.
    """

    id = models.CharField(primary_key=True, max_length=16, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="hooks")
    session = models.ForeignKey(Session, null=True, on_delete=models.CASCADE, related_name="hooks")
    name = models.CharField(max_length=64)
    token_sha256 = models.CharField(max_length=64, editable=False)
    token_salt = models.CharField(max_length=32, editable=False)
    channel = models.CharField(max_length=32, blank=True)
    address = models.CharField(max_length=LONGEST_ADDRESS, blank=True)
    signed = models.BooleanField(default=False, help_text="Accepts signed messages only.")
    as_person = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Treat its messages as a person's, as from a bridge to a chat service.",
    )
    allow_tools = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        help_text="Names of writing or dangerous tools that turns of its messages may use.",
    )
    enabled = models.BooleanField(default=True)
    revision = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="hook_has_a_name"),
            models.CheckConstraint(
                condition=Q(token_sha256__regex="^[0-9a-f]{64}$"),  # noqa: S106 - the form of a hash
                name="hook_token_is_a_hash",
            ),
            models.UniqueConstraint(fields=["token_sha256"], name="hook_token_once"),
            models.CheckConstraint(
                condition=Q(channel="", address="") | (~Q(channel="") & ~Q(address="")),
                name="hook_route_whole_or_none",
            ),
        ]

    def __str__(self) -> str:
        return self.name
