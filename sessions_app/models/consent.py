"""ConsentQuestion: what the server asked before a dangerous tool call, and who answered (rule 3.5)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models.session import Session
from sessions_app.models.turn import Turn


class ConsentState(models.TextChoices):
    """The state of a question. OPEN leads to each of the others; those are final."""

    OPEN = "open"
    GRANTED = "granted"
    REFUSED = "refused"
    CLOSED = "closed"  # answered with neither yes nor no, or cancelled


CONSENT_ARROWS = {
    ConsentState.OPEN: (ConsentState.GRANTED, ConsentState.REFUSED, ConsentState.CLOSED),
    ConsentState.GRANTED: (),
    ConsentState.REFUSED: (),
    ConsentState.CLOSED: (),
}


class ConsentQuestion(models.Model):
    """One question, as it was asked. It is kept as long as its session, as a record of who allowed what.

    `calls` are `{id, name, arguments, version}`, and `used`, the id of the call that used the consent. `asked_seq` is
    the message that contains the question, `asked_at` its time; both change when the server asks again. `execution` is
    the execution that waits; empty for a question of a chat. `answered_by` is the turn that answers it; while the
    question is open that turn may still be running.
    """

    id = models.CharField(primary_key=True, max_length=16, editable=False)
    session = models.ForeignKey(
        Session, on_delete=models.CASCADE, related_name="consent_questions", db_index=False
    )
    execution = models.CharField(max_length=16, blank=True, editable=False)
    # without database constraints: the turns may be deleted while the record stays
    turn = models.ForeignKey(
        Turn, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
    )
    text = models.TextField()
    calls = models.JSONField()
    state = models.CharField(max_length=8, choices=ConsentState, default=ConsentState.OPEN)
    asked_at = models.DateTimeField(db_default=Now())
    asked_seq = models.PositiveBigIntegerField()
    answered_by = models.ForeignKey(
        Turn, null=True, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
    )
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-asked_seq", "-id"]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=ConsentState.values), name="consent_state_known"),
            models.CheckConstraint(condition=~Q(calls=[]), name="consent_names_a_call"),
            models.CheckConstraint(
                condition=Q(state="open", answered_at__isnull=True)
                | Q(state="closed", answered_at__isnull=False)
                | Q(state__in=["granted", "refused"], answered_at__isnull=False, answered_by__isnull=False),
                name="consent_answered_by_a_turn",
            ),
            models.UniqueConstraint(
                fields=["execution"],
                condition=Q(state="open") & ~Q(execution=""),
                name="consent_one_open_per_execution",
            ),
        ]
        indexes = [models.Index(fields=["session", "-asked_seq"], name="consent_of_session")]

    def __str__(self) -> str:
        return self.text[:80]
