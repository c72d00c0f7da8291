"""What users may spend, what was spent in each period, and what is reserved for calls in progress."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

NEAR, REACHED = 80, 100  # percent of a cap that its owner is told of


class UserLimits(models.Model):
    """The caps of one user, which operators set."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="spending_limits"
    )
    limits = models.JSONField(default=dict, db_default={}, blank=True)

    class Meta:
        verbose_name = "caps"
        verbose_name_plural = "caps"

    def __str__(self) -> str:
        return f"caps of {self.user_id}"


class Spending(models.Model):
    """What one subject has spent and reserved in one period. `rondo_reserve` and `rondo_settle` write it.

    `key`: `<scope>:<subject>:<period>:<begin>`, such as `agent:7:day:2026-11-28`. Amounts are tokens and micro-dollars.
    `told`: the percentage of the cap that was told last. `ends_at`: when the period ends; null: with its run.
    """

    key = models.CharField(primary_key=True, max_length=200)
    spent_tokens = models.BigIntegerField(default=0, db_default=0)
    spent_micro_usd = models.BigIntegerField(default=0, db_default=0)
    reserved_tokens = models.BigIntegerField(default=0, db_default=0)
    reserved_micro_usd = models.BigIntegerField(default=0, db_default=0)
    told = models.PositiveSmallIntegerField(default=0, db_default=0)
    ends_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name_plural = "spending"
        constraints = [
            models.CheckConstraint(
                condition=Q(spent_tokens__gte=0, spent_micro_usd__gte=0)
                & Q(reserved_tokens__gte=0, reserved_micro_usd__gte=0),
                name="spending_not_negative",
            ),
            models.CheckConstraint(condition=Q(told__in=(0, NEAR, REACHED)), name="spending_told_known"),
        ]
        indexes = [models.Index(fields=["created_at"], name="spending_age")]

    def __str__(self) -> str:
        return self.key


class Reservation(models.Model):
    """What a call in progress may cost at most. It is settled after the call, or by the sweep when its worker died.

    `turn_id` and `claim` are those of the turn; null for a call without one. `caps`: `{key, …}` of each cap that counts
    it.
    """

    turn_id = models.BigIntegerField(null=True, blank=True)
    claim = models.UUIDField(null=True, blank=True)
    tokens = models.BigIntegerField()
    micro_usd = models.BigIntegerField()
    caps = models.JSONField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(tokens__gte=0, micro_usd__gte=0), name="reservation_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(turn_id__isnull=True, claim__isnull=True)
                | Q(turn_id__isnull=False, claim__isnull=False),
                name="reservation_of_a_claim",
            ),
        ]

    def __str__(self) -> str:
        return f"reservation {self.pk}"
