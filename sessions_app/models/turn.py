"""Turn and TurnStep: one input to a session with its result, and the journal of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agent_core.types import StepKind
from sessions_app.models.session import Session, has_owner, owner_column
from sessions_app.models.turn_input import TurnInput


class TurnState(models.TextChoices):
    """The state of a turn; TURN_ARROWS lists every transition."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    MERGED = "merged"


TURN_ARROWS: dict[TurnState, tuple[TurnState, ...]] = {
    TurnState.QUEUED: (TurnState.RUNNING, TurnState.MERGED, TurnState.CANCELLED),
    TurnState.RUNNING: (TurnState.SUCCEEDED, TurnState.FAILED, TurnState.CANCELLED),
    TurnState.SUCCEEDED: (),
    TurnState.FAILED: (),
    TurnState.CANCELLED: (),
    TurnState.MERGED: (),
}
OPEN_STATES = (TurnState.QUEUED, TurnState.RUNNING)
ENDED_STATES = tuple(state for state, ways in TURN_ARROWS.items() if not ways)


class TurnKind(models.TextChoices):
    """The source of a turn's input."""

    MESSAGE = "message"
    AUTOMATION = "automation"
    LEGACY = "legacy"
    HEARTBEAT = "heartbeat"
    JOB = "job"
    SCHEDULED_MESSAGE = "scheduled_message"
    SYSTEM = "system"


class Lane(models.TextChoices):
    """The queue for a turn's hints, so that people never wait behind many automations."""

    PEOPLE = "turns"
    AUTO = "auto"


class OnBusy(models.TextChoices):
    """What happens to a message when its session is busy."""

    INJECT = "inject"
    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"


class TurnTransitions(models.QuerySet["Turn"]):
    """The transitions, each a conditional UPDATE. False or 0: the state had already changed.

    QUEUED → RUNNING is in `turns/claim.py`, which selects and claims a turn in one statement, and the end of a RUNNING
    turn in `turns/commit_statements.py`, with what is written on that condition. A request to cancel the turns of
    inactive owners is in `worker/sweep.py`, which returns the turns that it chose.
    """

    def cancel_queued(self, turn_id: int, reason: str) -> bool:
        """QUEUED and not a guest → CANCELLED."""
        return bool(
            self.filter(pk=turn_id, state=TurnState.QUEUED, host__isnull=True).update(
                state=TurnState.CANCELLED, finished_at=Now(), error_code=reason
            )
        )

    def request_cancel(self, turn_id: int) -> bool:
        """Ask the worker that runs the turn to end it. Used for persons, so without a reason."""
        return bool(
            self.filter(pk=turn_id, state__in=OPEN_STATES, cancel_requested_at__isnull=True).update(
                cancel_requested_at=Now()
            )
        )

    def change_queued(self, turn: Turn, content: str, **changes: Any) -> bool:
        """QUEUED → QUEUED, with this content and these changes of its input."""
        changed = replace(turn.input, **changes).to_json()
        return bool(self.filter(pk=turn.pk, state=TurnState.QUEUED).update(content=content, metadata=changed))

    def change_input(self, turn: Turn, **changes: Any) -> bool:
        """RUNNING, own claim → the same, with these changes of its input."""
        turn.metadata = replace(turn.input, **changes).to_json()
        return bool(self._mine(turn).update(metadata=turn.metadata))

    def take_guests(self, host: Turn, ids: Iterable[int]) -> int:
        """QUEUED → QUEUED, as guests of this host. Only the worker that runs the host takes guests."""
        host.has_taken_guests = True
        free = self.filter(pk__in=ids, state=TurnState.QUEUED, host__isnull=True)
        return free.update(host=host)

    def merge(self, guest: Turn) -> bool:
        """QUEUED guest → MERGED, in its host's commit."""
        done = self.filter(pk=guest.pk, state=TurnState.QUEUED, host=guest.host_id).update(
            state=TurnState.MERGED, finished_at=Now()
        )
        guest.state = TurnState.MERGED
        return bool(done)

    def release_guests(self, host: Turn) -> int:
        """QUEUED guest → QUEUED without a host, because the host did not succeed."""
        return self.filter(session_id=host.session_id, host=host, state=TurnState.QUEUED).update(host=None)

    def mark_unstored(self, turn: Turn) -> bool:
        """RUNNING, own claim → the same, with the mark that its result could not be stored."""
        return bool(self._mine(turn).update(error_code="commit_failed"))

    def hand_back(self, turn: Turn, unwritten: Mapping[str, Any] | None = None) -> bool:
        """RUNNING, own claim → RUNNING without a claim: the next worker resumes it, without counting a rescue.

        `unwritten`: the usage of model calls that no journal step tells of.
        """
        return bool(self._mine(turn).update(claim=None, worker=None, usage=unwritten or {}))

    def _mine(self, turn: Turn) -> Self:
        return self.filter(pk=turn.pk, claim=turn.claim, state=TurnState.RUNNING)


class Turn(models.Model):
    """One input to a session. The QUEUED rows are the session's queue; at most one is RUNNING per session.

    `claim` is the id of the one run that may write; a RUNNING row without a claim was handed back and waits for a
    worker. `due_at` orders the lane: the arrival of a message, or the slot of an automation.
    """

    # not columns: whether this object was just queued, so nothing has happened to the turn yet, and whether another
    # turn waited in its lane then; whether this worker let messages join it
    is_new = is_behind = has_taken_guests = False
    _read: tuple[dict[str, Any], TurnInput] | None = None

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="turns", db_index=False)
    kind = models.CharField(max_length=20, choices=TurnKind)
    lane = models.CharField(max_length=8, choices=Lane)
    content = models.TextField(blank=True)
    metadata = models.JSONField(default=dict, blank=True)  # see `TurnInput`
    owner_id = owner_column()
    origin_run = models.CharField(max_length=80, blank=True)
    origin_attempt = models.PositiveSmallIntegerField(default=0)
    on_busy = models.CharField(max_length=16, choices=OnBusy, default=OnBusy.ENQUEUE)
    host = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="guests", db_index=False
    )
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)

    state = models.CharField(max_length=16, choices=TurnState, default=TurnState.QUEUED)
    claim = models.UUIDField(null=True, blank=True)
    worker = models.UUIDField(null=True, blank=True)
    attempt = models.PositiveSmallIntegerField(default=0)
    rescues = models.PositiveSmallIntegerField(default=0)
    steps_at_claim = models.PositiveIntegerField(default=0)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_reason = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Why it was cancelled; empty if a person cancelled it.",
    )

    due_at = models.DateTimeField(db_default=Now())
    queued_at = models.DateTimeField(db_default=Now(), editable=False)
    hinted_at = models.DateTimeField(null=True, blank=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    lock_wait_ms = models.PositiveBigIntegerField(null=True, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    model = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="The model that replied last; empty: none did.",
    )
    ended_by = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        help_text="How the model ended the answer: stop, length, filter or refusal; empty: there is none.",
    )
    error_code = models.CharField(max_length=64, blank=True)
    error = models.CharField(max_length=300, blank=True, help_text="What people see.")
    provider_message = models.CharField(max_length=300, blank=True, default="", db_default="")
    error_detail = models.TextField(blank=True, help_text="Details for operators; never shown to people.")

    objects = TurnTransitions.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["session"], condition=Q(state="running"), name="turn_one_running_per_session"
            ),
            models.UniqueConstraint(
                fields=["session", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="turn_idempotency_key_once",
            ),
            models.CheckConstraint(condition=Q(state__in=TurnState.values), name="turn_state_known"),
            models.CheckConstraint(condition=Q(kind__in=TurnKind.values), name="turn_kind_known"),
            models.CheckConstraint(condition=Q(lane__in=Lane.values), name="turn_lane_known"),
            models.CheckConstraint(
                condition=Q(state__in=OPEN_STATES, finished_at__isnull=True)
                | Q(state__in=ENDED_STATES, finished_at__isnull=False),
                name="turn_finished_iff_ended",
            ),
            models.CheckConstraint(
                condition=Q(claim__isnull=True) | ~Q(state__in=["queued", "merged"]),
                name="turn_claim_only_once_started",
            ),
            models.CheckConstraint(
                condition=Q(host__isnull=True) | Q(state__in=["queued", "merged"]),
                name="turn_host_only_for_guests",
            ),
            has_owner("turn_has_owner"),
        ]
        indexes = [
            models.Index(
                fields=["session", "lane", "due_at", "id"], condition=Q(state="queued"), name="turn_queue"
            ),
            models.Index(fields=["session", "id"], name="turn_of_session"),
            # for the foreign key check when a host is deleted
            models.Index(fields=["host"], condition=Q(host__isnull=False), name="turn_of_host"),
            # for the sweep, which releases those whose host has ended
            models.Index(
                fields=["host"], condition=Q(host__isnull=False, state="queued"), name="turn_waiting_guest"
            ),
            # for operators: the newest failures; other turns do not write it
            models.Index(fields=["id"], condition=Q(state="failed"), name="turn_failed"),
            # lists of a user's turns by time: all turns, and those that did not succeed
            models.Index(fields=["owner_id", "queued_at", "id"], name="turn_of_owner"),
            models.Index(
                fields=["owner_id", "state", "queued_at", "id"],
                condition=~Q(state="succeeded"),
                name="turn_of_owner_by_state",
            ),
        ]

    def __str__(self) -> str:
        return f"turn {self.pk}"

    @property
    def input(self) -> TurnInput:
        """The input of the turn besides its content."""
        if self._read is None or self._read[0] is not self.metadata:
            self._read = self.metadata, TurnInput.from_json(self.metadata)
        return self._read[1]


class TurnStep(models.Model):
    """One step of a turn's journal. Step 0 is what the model was shown; the others are what happened."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="steps", db_index=False)
    n = models.PositiveIntegerField()
    kind = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in StepKind])
    data = models.JSONField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["turn_id", "n"]
        constraints = [
            models.UniqueConstraint(fields=["turn", "n"], name="turnstep_n_once_per_turn"),
            models.CheckConstraint(
                condition=Q(kind__in=[str(kind) for kind in StepKind]), name="turnstep_kind_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.n}"
