"""ConsentQuestion: what the server asked before a dangerous tool call, and who answered (rule 3.5)."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce, Now

from agent_core.execution import ConsentRequest
from sessions_app.models.session import Session
from sessions_app.models.turn import Turn

LONGEST_PERSON = 300  # characters of a hook's id and a sender


class ConsentState(models.TextChoices):
    """The state of a question; CONSENT_ARROWS lists every transition."""

    OPEN = "open"
    GRANTED = "granted"
    REFUSED = "refused"
    CLOSED = "closed"  # answered with neither yes nor no, or cancelled


CONSENT_ARROWS: dict[ConsentState, tuple[ConsentState, ...]] = {
    ConsentState.OPEN: (ConsentState.GRANTED, ConsentState.REFUSED, ConsentState.CLOSED),
    ConsentState.GRANTED: (),
    ConsentState.REFUSED: (),
    ConsentState.CLOSED: (),
}


class ConsentTransitions(models.QuerySet["ConsentQuestion"]):
    """The transitions, each a conditional UPDATE. False or 0: the state had already changed."""

    def open(self) -> Self:
        """Return the questions that are not answered yet."""
        return self.filter(state=ConsentState.OPEN)

    def settle(self, question_id: str, state: ConsentState, turn: Turn) -> bool:
        """OPEN → `state`: GRANTED, REFUSED or CLOSED by this turn."""
        rows = self.open().filter(pk=question_id)
        return bool(rows.update(state=state, answered_by=turn, answered_at=Now()))

    def grant(self, question: ConsentQuestion, turn: Turn) -> bool:
        """OPEN, or GRANTED by this turn → GRANTED, with the calls of `question`, which say what used the consent."""
        granted = Q(state=ConsentState.GRANTED, answered_by=turn)
        rows = self.filter(granted | Q(state=ConsentState.OPEN), pk=question.pk)
        answered = {"answered_by": turn, "answered_at": Coalesce("answered_at", Now())}
        return bool(rows.update(calls=question.calls, state=ConsentState.GRANTED, **answered))

    def close(self) -> int:
        """OPEN → CLOSED, without an answer."""
        return self.open().update(state=ConsentState.CLOSED, answered_at=Now())

    def reserve(self, question_id: str, turn: Turn) -> bool:
        """OPEN → OPEN: this turn will answer it."""
        return bool(self.open().filter(pk=question_id).update(answered_by=turn))

    def ask_again(self, asked: ConsentRequest, turn: Turn, seq: int) -> bool:
        """OPEN → OPEN, with the text of `asked`, which is now in this turn's message with this seq."""
        moved = {"text": asked.text, "asked_at": Now(), "asked_seq": seq, "turn": turn, "answered_by": None}
        return bool(self.open().filter(pk=asked.id).update(**moved))


class ConsentQuestion(models.Model):
    """One question, as it was asked. It is kept as long as its session, as a record of who allowed what.

    `calls` are `{id, name, arguments, version}`, and `used`, the id of the call that used the consent. `asked_seq` is
    the message that contains the question, `asked_at` its time; both change when the server asks again. `execution` is
    the execution that waits; empty for a question of a chat. `asked_of` is the person who was asked first and may
    consent, `<hook>:<sender>`; empty for the owner, who always may. `answered_by` is the turn that answers it; while
    the question is open that turn may still be running.
    """

    id = models.CharField(primary_key=True, max_length=16, editable=False)
    session = models.ForeignKey(
        Session, on_delete=models.CASCADE, related_name="consent_questions", db_index=False
    )
    execution = models.CharField(max_length=16, blank=True, editable=False)
    asked_of = models.CharField(max_length=LONGEST_PERSON, blank=True, editable=False)
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

    objects = ConsentTransitions.as_manager()

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
        indexes = [
            models.Index(fields=["session", "-asked_seq"], name="consent_of_session"),
            # for operators: the questions that wait for people
            models.Index(fields=["asked_at"], condition=Q(state="open"), name="consent_open"),
        ]

    def __str__(self) -> str:
        return self.text[:80]
