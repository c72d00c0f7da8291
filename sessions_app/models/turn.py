"""Turn and TurnStep: one input to a session, what came of it, and the journal of how."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agent_core.types import StepKind, TurnResult
from sessions_app.models.session import Session


class TurnState(models.TextChoices):
    """Where a turn stands; TURN_ARROWS lists every way on."""

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
    """What gave the input."""

    MESSAGE = "message"
    AUTOMATION = "automation"
    LEGACY = "legacy"
    HEARTBEAT = "heartbeat"
    JOB = "job"
    SCHEDULED_MESSAGE = "scheduled_message"
    SYSTEM = "system"


class Lane(models.TextChoices):
    """Which queue a turn's hint travels in: people never wait behind a storm of automations."""

    PEOPLE = "turns"
    AUTO = "auto"


class OnBusy(models.TextChoices):
    """What a person's message does when its session is busy."""

    INJECT = "inject"
    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"


class TurnTransitions(models.QuerySet["Turn"]):
    """The ways on from a state, each one conditional UPDATE; False or 0: somebody else was faster.

    QUEUED → RUNNING is claim.py's, since it must pick and take in one statement.
    """

    def finish(self, turn: Turn, state: TurnState, result: TurnResult) -> bool:
        """RUNNING, own claim → an end. The claim stays on the row, so an unclear COMMIT can be looked up."""
        ended = {
            "state": state,
            "finished_at": Now(),
            "usage": result.usage.to_json(),
            "error_code": result.error_code or "",
            "error": (result.error_text or "")[:300],
            "error_detail": (result.error_detail or "").replace("\x00", ""),
        }
        done = self.filter(pk=turn.pk, claim=turn.claim, state=TurnState.RUNNING).update(**ended)
        for name in ("state", "error_code", "error", "error_detail", "usage"):
            setattr(turn, name, ended[name])
        return bool(done)

    def cancel_queued(self, turn_id: int, reason: str) -> bool:
        """QUEUED and nobody's guest → CANCELLED."""
        return bool(
            self.filter(pk=turn_id, state=TurnState.QUEUED, host__isnull=True).update(
                state=TurnState.CANCELLED, finished_at=Now(), error_code=reason
            )
        )

    def request_cancel(self, turn_id: int) -> bool:
        """Ask whoever runs the turn to end it; the state is theirs to change."""
        return bool(
            self.filter(pk=turn_id, state__in=OPEN_STATES, cancel_requested_at__isnull=True).update(
                cancel_requested_at=Now()
            )
        )

    def merge(self, guest: Turn) -> bool:
        """QUEUED, taken along → MERGED, with its host's commit."""
        done = self.filter(pk=guest.pk, state=TurnState.QUEUED, host=guest.host_id).update(
            state=TurnState.MERGED, finished_at=Now()
        )
        guest.state = TurnState.MERGED
        return bool(done)

    def release_guests(self, host: Turn) -> int:
        """QUEUED, taken along → QUEUED by itself: the host did not come through."""
        return self.filter(session_id=host.session_id, host=host, state=TurnState.QUEUED).update(host=None)

    def hand_back(self, turn: Turn) -> bool:
        """RUNNING, own claim → RUNNING without one: whoever comes next resumes it, no rescue counted."""
        return bool(
            self.filter(pk=turn.pk, claim=turn.claim, state=TurnState.RUNNING).update(claim=None, worker=None)
        )


class Turn(models.Model):
    """One input to a session. Its QUEUED rows are the session's queue; RUNNING is unique per session.

    `claim` names the one run that may write; a RUNNING row without a claim was handed back and waits for a
    worker. `due_at` orders the lane: when a message came, or the slot of an automation.
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="turns", db_index=False)
    kind = models.CharField(max_length=20, choices=TurnKind)
    lane = models.CharField(max_length=8, choices=Lane)
    content = models.TextField(blank=True)
    metadata = models.JSONField(default=dict, blank=True)
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

    due_at = models.DateTimeField(db_default=Now())
    queued_at = models.DateTimeField(db_default=Now(), editable=False)
    hinted_at = models.DateTimeField(null=True, blank=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    lock_wait_ms = models.PositiveBigIntegerField(null=True, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    error_code = models.CharField(max_length=64, blank=True)
    error = models.CharField(max_length=300, blank=True, help_text="What people see.")
    error_detail = models.TextField(blank=True, help_text="What operators see; never shown to people.")

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
        ]
        indexes = [
            models.Index(
                fields=["session", "lane", "due_at", "id"], condition=Q(state="queued"), name="turn_queue"
            ),
            models.Index(fields=["session", "id"], name="turn_of_session"),
            # what PostgreSQL looks through when a host is deleted
            models.Index(fields=["host"], condition=Q(host__isnull=False), name="turn_of_host"),
        ]

    def __str__(self) -> str:
        return f"turn {self.pk}"


class TurnStep(models.Model):
    """One row of a turn's journal. n=0 is what the model was shown; what follows is what happened."""

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
