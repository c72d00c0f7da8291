"""What requests authenticate with, and what limits and repeats them: tokens, hooks, links, keys, allowances."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from sessions_app.models.agent import Agent
from sessions_app.models.session import LONGEST_ADDRESS, Session

LONGEST_NAME = 64
SHOWN = 8  # characters of a token that lists show: enough to tell tokens apart, too few to use one
_HASH = "^[0-9a-f]{64}$"


class TokenScope(models.TextChoices):
    """What a token allows. Each includes `read`, and `manage` includes all."""

    READ = "read"
    TALK = "talk"
    SCHEDULE = "schedule"
    MANAGE = "manage"


class ApiToken(models.Model):
    """A token of a user, of which only the hash is stored.

    With `agent` or `session` it reaches only what belongs to that agent or session, and is deleted with it. Nothing but
    `last_used_at` ever changes, so a stream need not look whether its token allows less by now.
    """

    id = models.CharField(primary_key=True, max_length=16, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=LONGEST_NAME)
    token_sha256 = models.CharField(max_length=64, editable=False)
    prefix = models.CharField(max_length=SHOWN, editable=False, help_text="How the token begins.")
    scopes: Any = ArrayField(models.CharField(max_length=16, choices=TokenScope))
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    session = models.ForeignKey(Session, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: never.")
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")

    class Meta:
        verbose_name = "API token"
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="api_token_has_a_name"),
            models.CheckConstraint(condition=Q(token_sha256__regex=_HASH), name="api_token_is_a_hash"),
            models.UniqueConstraint(fields=["token_sha256"], name="api_token_once"),
            models.CheckConstraint(
                condition=Q(scopes__len__gt=0) & Q(scopes__contained_by=list(TokenScope.values)),
                name="api_token_scopes_are_known",
            ),
            models.CheckConstraint(
                condition=Q(agent__isnull=True) | Q(session__isnull=True), name="api_token_has_one_limit"
            ),
            models.CheckConstraint(
                condition=Q(expires_at__isnull=True) | Q(expires_at__gt=F("created_at")),
                name="api_token_expires_later",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    def allows(self, scope: str) -> bool:
        """Whether an operation that needs this scope is allowed."""
        return scope == TokenScope.READ or scope in self.scopes or TokenScope.MANAGE in self.scopes

    @property
    def is_limited(self) -> bool:
        """Whether the token reaches one agent or one session only."""
        return self.agent_id is not None or self.session_id is not None

    @property
    def manages_account(self) -> bool:
        """Whether the token may see, make and revoke the other tokens of its user."""
        return self.allows(TokenScope.MANAGE) and not self.is_limited


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
            models.CheckConstraint(condition=Q(token_sha256__regex=_HASH), name="hook_token_is_a_hash"),
            models.UniqueConstraint(fields=["token_sha256"], name="hook_token_once"),
            models.CheckConstraint(
                condition=Q(channel="", address="") | (~Q(channel="") & ~Q(address="")),
                name="hook_route_whole_or_none",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class StreamTicket(models.Model):
    """Opens one event stream with the rights of `token`. It is deleted when it is used."""

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="tickets")
    ticket_sha256 = models.CharField(max_length=64, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(ticket_sha256__regex=_HASH), name="stream_ticket_is_a_hash"),
            models.UniqueConstraint(fields=["ticket_sha256"], name="stream_ticket_once"),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="stream_ticket_expires_later"
            ),
        ]

    def __str__(self) -> str:
        return f"ticket of {self.created_at:%Y-%m-%d %H:%M}"


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
                condition=Q(token_sha256__regex=_HASH), name="sign_in_link_token_is_a_hash"
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


class Invitation(models.Model):
    """A link with which somebody makes themselves an account, once. Only the hash of its token is stored."""

    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    token_sha256 = models.CharField(max_length=64, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.OneToOneField(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(token_sha256__regex=_HASH), name="invitation_token_is_a_hash"),
            models.UniqueConstraint(fields=["token_sha256"], name="invitation_token_once"),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="invitation_expires_later"
            ),
            models.CheckConstraint(
                condition=Q(used_at__isnull=True, used_by__isnull=True)
                | Q(used_at__isnull=False, used_at__lt=F("expires_at")),
                name="invitation_used_in_time",
            ),
        ]

    def __str__(self) -> str:
        return f"invitation of {self.created_at:%Y-%m-%d %H:%M}"


class CalendarAddress(models.Model):
    """The secret address of a user's calendar for other programs. Only the hash of its token is stored."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="+"
    )
    token_sha256 = models.CharField(max_length=64, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(token_sha256__regex=_HASH), name="calendar_token_is_a_hash"),
            models.UniqueConstraint(fields=["token_sha256"], name="calendar_token_once"),
        ]

    def __str__(self) -> str:
        return f"calendar of {self.created_at:%Y-%m-%d %H:%M}"


IDEMPOTENCY_KEPT = timedelta(days=1)


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


class Allowance(models.Model):
    """The key of a client, and when its full allowance is available again. After that the row has no effect.

    The table is unlogged: a database crash empties it, and every client has its full allowance again.
    """

    key = models.CharField(
        max_length=100,
        primary_key=True,
        help_text="`user:<id>`, `hook:<id>` or `address:<network>`, and the rate.",
    )
    full_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["full_at"], name="allowance_full")]

    def __str__(self) -> str:
        return self.key
