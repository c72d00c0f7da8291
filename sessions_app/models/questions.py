"""What waits for a person: consent questions, and the executions of planners.

ConsentQuestion: what the server asked before a dangerous tool call, and who answered (rule 3.5). ExecutionState: a
request that a planner executes; it is kept after the turn in which it waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from django.db import models
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Coalesce, Now

from agent_core.execution import ARROWS, AT_WORK, ENDED, WAITING, ConsentRequest, Status
from sessions_app.models.session import Session
from sessions_app.models.turn import Turn

LONGEST_PERSON = 300  # characters of a hook's id and a sender


class ConsentState(models.TextChoices):
    """The state of a question; CONSENT_ARROWS lists every transition."""

    OPEN = "open"
    GRANTED = "granted"
    REFUSED = "refused"
    CLOSED = "closed"  # answered with neither yes nor no, or cancelled


class ClosedBecause(models.TextChoices):
    """Why a question was closed that nobody allowed or refused; the labels end a sentence. Empty in older rows."""

    UNKNOWN = "", ""
    EXPIRED = "expired", "nobody answered in time"
    NEWER = "newer", "a newer question took its place"
    GONE = "gone", "what it is about is gone"
    CLEAR = "clear", "the conversation was cleared"
    PERSON = "person", "its plan was cancelled"
    OTHERWISE = "otherwise", "something else was said"
    NOT_MADE = "not_made", "the call could not be made any more"


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
        # a scheduled turn's question is answered by its id only
        why = Case(When(expires_at=None, then=Value("otherwise")), default=Value("not_made"))
        closed = {"closed_because": why} if state == ConsentState.CLOSED else {}
        return bool(rows.update(state=state, answered_by=turn, answered_at=Now(), **closed))

    def grant(self, question: ConsentQuestion, turn: Turn) -> bool:
        """OPEN, or GRANTED by this turn → GRANTED, with the calls of `question`, which say what used the consent."""
        granted = Q(state=ConsentState.GRANTED, answered_by=turn)
        rows = self.filter(granted | Q(state=ConsentState.OPEN), pk=question.pk)
        answered = {"answered_by": turn, "answered_at": Coalesce("answered_at", Now())}
        return bool(rows.update(calls=question.calls, state=ConsentState.GRANTED, **answered))

    def grant_in_time(self, question_id: str, turn: Turn) -> bool:
        """OPEN and not expired → GRANTED by this turn, which makes the call."""
        return self.filter(expires_at__gt=Now()).settle(question_id, ConsentState.GRANTED, turn)

    def place(self, turn: Turn, seq: int) -> int:
        """OPEN → OPEN: the questions of this scheduled turn are now in its message with this seq."""
        mine = self.open().filter(turn=turn, session_id=turn.session_id, expires_at__isnull=False)
        return mine.update(asked_seq=seq)

    def expired(self) -> Self:
        """Return the open questions that nobody answered in time."""
        return self.open().filter(expires_at__lte=Now())

    def about(self, owner_id: int, **argument: str) -> Self:
        """Return the open questions of a user whose calls have this argument. A plan looks at its own again."""
        calls = [{"arguments": argument}]
        return self.open().filter(session__owner_id=owner_id, execution="", calls__contains=calls)

    def close(self, why: ClosedBecause | str) -> int:
        """OPEN → CLOSED, without an answer."""
        return self.open().update(state=ConsentState.CLOSED, answered_at=Now(), closed_because=why)

    def reserve(self, question_id: str, turn: Turn) -> bool:
        """OPEN → OPEN: this turn will answer it."""
        return bool(self.open().filter(pk=question_id).update(answered_by=turn))

    def ask_again(self, asked: ConsentRequest, turn: Turn, seq: int) -> bool:
        """OPEN → OPEN, with the text of `asked`, which is now in this turn's message with this seq."""
        moved = {"text": asked.text, "asked_at": Now(), "asked_seq": seq, "turn": turn, "answered_by": None}
        return bool(self.open().filter(pk=asked.id).update(**moved))


class ConsentQuestion(models.Model):
    """One question, as it was asked. It is kept as long as its session, as a record of who allowed what.

    `calls` are `{id, name, arguments, version}`, with `used`, the id of the call that used the consent, and with
    `has_read` if a scheduled turn asks that has read text from outside. `asked_seq` is the message that contains the
    question, `asked_at` its time; both change when the server asks again. `execution` is the execution that waits;
    empty for a question of a chat. `asked_of` is the person who was asked first and may consent, `<hook>:<sender>`;
    empty for the owner, who always may. `answered_by` is the turn that answers it; while the question is open that turn
    may still be running.

    `expires_at` is set for the question of a scheduled turn (rule 11.4), which waits for nothing. `run` is its run, and
    `same_call` a digest of its call: a newer question for the same call replaces it.
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
    closed_because = models.CharField(
        max_length=12, choices=ClosedBecause, blank=True, default="", db_default="", editable=False
    )
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Only of a scheduled turn's question.")
    run = models.CharField(max_length=64, blank=True, default="", db_default="", editable=False)
    same_call = models.CharField(max_length=64, blank=True, default="", db_default="", editable=False)

    objects = ConsentTransitions.as_manager()

    class Meta:
        ordering = ["-asked_seq", "-id"]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=ConsentState.values), name="consent_state_known"),
            models.CheckConstraint(condition=~Q(calls=[]), name="consent_names_a_call"),
            models.CheckConstraint(
                condition=Q(closed_because="") | Q(closed_because__in=ClosedBecause.values, state="closed"),
                name="consent_closed_because_known",
            ),
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
            models.CheckConstraint(
                condition=Q(expires_at__isnull=True, run="", same_call="")
                | Q(expires_at__isnull=False, execution="") & ~Q(same_call=""),
                name="consent_expires_if_scheduled",
            ),
            models.UniqueConstraint(
                fields=["session", "same_call"],
                condition=Q(state="open") & ~Q(same_call=""),
                name="consent_one_open_per_call",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "-asked_seq"], name="consent_of_session"),
            # for operators: the questions that wait for people
            models.Index(fields=["asked_at"], condition=Q(state="open"), name="consent_open"),
        ]

    def __str__(self) -> str:
        return self.text[:80]

    @property
    def why_closed(self) -> str:
        """Why it was closed, as the end of a sentence; empty if it was not, or that is not known."""
        return str(ClosedBecause(self.closed_because).label)


EXECUTION_ARROWS = ARROWS
_CHANGED: dict[str, Any] = {"revision": models.F("revision") + 1, "updated_at": Now()}


class ExecutionTransitions(models.QuerySet["ExecutionState"]):
    """The transitions, each a conditional UPDATE. False or 0: the state had already changed, or does not allow it."""

    def begin(self, execution_id: str, turn: Turn, origin: str, values: dict[str, Any]) -> None:
        """→ the status in `values`: a new execution of this turn. `origin`: the job or the hook that began it."""
        self.create(
            id=execution_id,
            session_id=turn.session_id,
            turn=turn,
            source=turn.kind,
            origin=origin,
            **values,
        )

    def move(self, execution_id: str, turn: Turn, before: Iterable[Status], values: dict[str, Any]) -> bool:
        """Store `values`. The turn must be the one that works on it, unless it waits or has ended."""
        mine = Q(status__in=AT_WORK, turn=turn) | ~Q(status__in=AT_WORK)
        found = self.filter(mine, pk=execution_id, session_id=turn.session_id, status__in=before)
        return bool(found.update(turn=turn, **_CHANGED, **values))

    def reserve(self, execution_id: str, turn: Turn) -> bool:
        """Waiting → the same: this turn will answer its question."""
        return bool(self.filter(pk=execution_id, status__in=WAITING).update(turn=turn))

    def ask_again(self, asked: ConsentRequest, turn: Turn, seq: int) -> bool:
        """Waiting → the same, with the question `asked`, which is now in this turn's message with this seq."""
        found = self.filter(pk=asked.execution, session_id=turn.session_id, status__in=WAITING)
        moved = {"question": asked.text, "question_id": asked.id, "asked_at": Now(), "asked_seq": seq}
        return bool(found.update(**moved, turn=turn, **_CHANGED))

    def end_with_turn(self, turn: Turn, status: Status, why: str) -> int:
        """At work in this turn → `status`: it ends with the turn."""
        return self.filter(turn=turn, status__in=AT_WORK).update(status=status, last_error=why, **_CHANGED)

    def close_all(self) -> int:
        """Cancel the ones that wait, and mark the ended ones so that they are not resumed."""
        self.close("clear")
        return self.filter(status__in=ENDED).update(closed_by="clear")

    def close(self, why: str) -> int:
        """Waiting → CANCELLED, and close their questions."""
        waiting = self.filter(status__in=WAITING).values("question_id")
        ConsentQuestion.objects.filter(pk__in=waiting).close(why)
        ended = {"status": Status.CANCELLED, "closed_by": why}
        return self.filter(status__in=WAITING).update(**ended, **_CHANGED)


class ExecutionState(models.Model):
    """One execution. `request` is the original text, `goal` the planner's description of it.

    `turn` works on it, or did last, or will process the answer to its waiting question; until that turn has ended the
    question takes no other answer. `question_id` identifies the question, since one execution may ask several;
    `asked_seq` is the message that contains it. `has_read`: a turn that worked on it had read text from outside.

    `steps` and `observations` are lists in the form of `agent_core.execution`. `catalogue` is the version of the tools
    that the plan was made for. `closed_by` says why a waiting execution was cancelled: clear, person or newer
    (a newer question of the same job). `clear` also marks ended ones that must not be resumed.
    """

    id = models.CharField(primary_key=True, max_length=16, editable=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="executions", db_index=False)
    turn = models.ForeignKey(Turn, null=True, on_delete=models.SET_NULL, related_name="executions")
    source = models.CharField(
        max_length=20, editable=False, help_text="The kind of the turn that started it."
    )
    origin = models.CharField(
        max_length=80,
        blank=True,
        editable=False,
        help_text="The id of the job that started it, or hook:<id>.",
    )
    status = models.CharField(max_length=24, choices=[(each.value, each.value) for each in Status])
    request = models.TextField()
    goal = models.TextField(blank=True)
    plans = models.PositiveSmallIntegerField(default=0)
    steps = models.JSONField(default=list)
    current_step = models.CharField(max_length=16, blank=True)
    observations = models.JSONField(default=list)
    iterations = models.PositiveSmallIntegerField(default=0)
    question = models.TextField(blank=True)
    question_id = models.CharField(max_length=16, blank=True, default="", db_default="", editable=False)
    asked_seq = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    asked_at = models.DateTimeField(null=True, blank=True, help_text="When the question was asked.")
    reply = models.TextField(blank=True)
    has_read = models.BooleanField(default=False, db_default=False, editable=False)
    final_answer = models.TextField(blank=True)
    last_error = models.TextField(blank=True)
    catalogue = models.CharField(max_length=32, blank=True)
    revise = models.TextField(blank=True)
    heard = models.PositiveIntegerField(default=0)
    closed_by = models.CharField(max_length=16, blank=True)
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now())

    objects = ExecutionTransitions.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=[each.value for each in Status]), name="execution_state_known"
            ),
            models.CheckConstraint(
                condition=~Q(status__in=[each.value for each in WAITING])
                | (~Q(question="") & Q(asked_at__isnull=False)),
                name="execution_waits_with_a_question",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=[each.value for each in AT_WORK]) | Q(turn__isnull=False),
                name="execution_at_work_in_a_turn",
            ),
            models.UniqueConstraint(
                fields=["session"],
                condition=Q(status__in=[each.value for each in AT_WORK]),
                name="execution_one_at_work_per_session",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "-created_at"], name="execution_of_session"),
            # for operators: the questions that wait for people
            models.Index(
                fields=["asked_at"],
                condition=Q(status__in=[each.value for each in WAITING]),
                name="execution_waits",
            ),
        ]

    def __str__(self) -> str:
        return self.goal or self.request[:80]
