"""RunRecord: one slot of one job, or the sending of one scheduled message, with its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import models
from django.db.models import F, Func, OuterRef, Q, Subquery, Value
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, JSONObject, Now, NullIf

from agent_core.spending import MICRO
from agent_core.types import Usage
from automations.models.health import JobHealth
from automations.models.job import FIRST_INSTANT, LAST_INSTANT, CronJob, known, readable
from automations.models.scheduled_message import ScheduledMessage
from sessions_app import metrics
from sessions_app.models import Session, Turn
from sessions_app.models.session import NOBODY, owner_column


class RunState(models.TextChoices):
    """The state of a run; RUN_ARROWS lists every transition."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Attention(models.TextChoices):
    """Why a run that succeeded may not have done what it should; empty: nothing says so."""

    NONE = ""
    EMPTY = "empty"
    UNDELIVERED = "undelivered"
    CUT_SHORT = "cut_short"
    NEEDS_CONSENT = "needs_consent"


RUN_ARROWS: dict[RunState, tuple[RunState, ...]] = {
    RunState.QUEUED: (RunState.RUNNING, RunState.CANCELLED),
    # back to queued: another attempt of the same run
    # skipped: a check in its turn found nothing to do, or a cap stopped it before its first model call
    RunState.RUNNING: (
        RunState.SUCCEEDED,
        RunState.FAILED,
        RunState.CANCELLED,
        RunState.QUEUED,
        RunState.SKIPPED,
    ),
    RunState.FAILED: (RunState.QUEUED,),  # a person tries it again
    **dict.fromkeys((RunState.SUCCEEDED, RunState.CANCELLED, RunState.SKIPPED), ()),
}
LONGEST_ERROR = 500  # characters
OPEN_RUNS = (RunState.QUEUED, RunState.RUNNING)
# reasons of cancelled runs whose attempts failed: no person decided these
CANCELLED_BY_ERROR = ("retry_error", "superseded")


def part_of(used: Usage, runs: int) -> Usage:
    """Return what each of so many runs used of their turn's usage: equal parts, but `requests` are those of the turn.

    Parts are rounded down, so that they are never more than the whole.
    """
    return replace(
        used,
        input_tokens=used.input_tokens // runs,
        output_tokens=used.output_tokens // runs,
        micro_usd=used.micro_usd // runs,
    )


def with_usage(used: Usage) -> Func:
    """The column `usage` with this added."""

    def more(name: str, part: int | Decimal, field: models.Field[Any, Any]) -> Combinable:
        return Coalesce(Cast(KT(f"usage__{name}"), field), Value(0), output_field=field) + Value(part, field)

    whole, dollars = models.BigIntegerField(), models.DecimalField(max_digits=20, decimal_places=6)
    usd = more("usd", Decimal(used.micro_usd) / MICRO, dollars)
    counts = JSONObject(
        input_tokens=more("input_tokens", used.input_tokens, whole),
        output_tokens=more("output_tokens", used.output_tokens, whole),
        requests=more("requests", used.requests, whole),
        usd=Cast(NullIf(usd, Value(0), output_field=dollars), models.TextField()),
    )
    return Func(counts, function="jsonb_strip_nulls", output_field=models.JSONField())


class RunTransitions(models.QuerySet["RunRecord"]):
    """The transitions, each one conditional UPDATE of the chosen runs; 0: another process was faster.

    A run begins as QUEUED, when firing inserts it. Its turn starts it (`runs/with_turn.py`) and ends it.
    """

    def open(self) -> RunTransitions:
        """Queued or running."""
        return self.filter(state__in=OPEN_RUNS)

    def unfinished(self) -> RunTransitions:
        """As `open`, for runs found by key: given a `state`, PostgreSQL may read the index of all open runs."""
        return self.filter(finished_at=None)

    def ended_by_itself(self) -> RunTransitions:
        """Succeeded, failed, or cancelled after an error: no person ended it."""
        by_error = Q(state=RunState.CANCELLED, reason__in=CANCELLED_BY_ERROR)
        return self.filter(Q(state__in=[RunState.SUCCEEDED, RunState.FAILED]) | by_error)

    def of_turn(self, turn: Turn) -> RunTransitions:
        """The run of which this turn is the present attempt, or the runs that share it, as in `runs/with_turn.py`."""
        return self.filter(turn=turn, not_before=None)

    def add_skipped(self, **columns: Any) -> None:
        """→ SKIPPED. Nothing is inserted when the slot has a run already."""
        run = self.model(state=RunState.SKIPPED, finished_at=Now(), **columns)
        self.bulk_create([run], ignore_conflicts=True)
        metrics.count_run(RunState.SKIPPED, str(columns["reason"]), columns.get("slots_count") or 1)

    def extend_gap(self, run_id: str, to: datetime, count: int | None) -> int:
        """SKIPPED → SKIPPED, with the slots up to `to`. `count` is their number in all, None above 1,000."""
        return self.filter(pk=run_id, state=RunState.SKIPPED).update(slots_to=to, slots_count=count)

    def take_back(self) -> None:
        """SKIPPED → nothing: the slots are to come again."""
        self.filter(state=RunState.SKIPPED).delete()

    def queue_in(self, turn: Turn, **session: Any) -> int:
        """QUEUED → QUEUED, with the turn of its next attempt."""
        return self.filter(state=RunState.QUEUED).update(turn=turn, not_before=None, **session)

    def continue_in(self, turn: Turn, used: Usage) -> int:
        """RUNNING → RUNNING, in its next turn. `used`: by the one before."""
        return self.filter(state=RunState.RUNNING).update(turn=turn, usage=with_usage(used))

    def retry(self, wait: timedelta, outcome: Mapping[str, Any], *, fruitless: bool = False) -> int:
        """QUEUED or RUNNING → QUEUED: its turn failed, and the next attempt comes after `wait`.

        `fruitless`: it had done nothing, so the attempt does not count against `max_retry`.
        """
        again = {"state": RunState.QUEUED, "attempt": F("attempt") + 1, "not_before": Now() + wait}
        return self.unfinished().update(**again, fruitless=F("fruitless") + int(fruitless), **outcome)

    def try_again(self, run_id: str) -> int:
        """FAILED → QUEUED: a person asks for another attempt, which is due at once.

        If it does nothing, it is repeated as the first one was.
        """
        blank = {"attention": "", "fruitless": 0, "finished_at": None}
        again = {"state": RunState.QUEUED, "attempt": F("attempt") + 1, "not_before": Now()}
        return self.filter(pk=run_id, state=RunState.FAILED).update(**again, **blank)

    def end(self, state: RunState, **columns: Any) -> int:
        """QUEUED or RUNNING → SUCCEEDED, FAILED or CANCELLED, as its turn."""
        return self.unfinished().update(state=state, finished_at=Now(), **columns)

    def skip(self, reason: str, **columns: Any) -> int:
        """RUNNING → SKIPPED, as a gap of this one slot: its turn ended before a model was asked."""
        slot = {"slots_from": F("scheduled_for"), "slots_to": F("scheduled_for"), "slots_count": 1}
        ended = {"state": RunState.SKIPPED, "reason": reason, "finished_at": Now()}
        done = self.unfinished().update(**ended, **slot, **columns)
        if done:
            metrics.count_run(RunState.SKIPPED, reason, done)
        return done

    def of_well_jobs(self) -> RunTransitions:
        """Runs of scheduled messages, and of jobs of which neither failures are counted nor good news awaited."""
        # a scalar: for NOT EXISTS PostgreSQL may plan a join that reads other runs of the job
        well = JobHealth.objects.filter(pk=OuterRef("job_id")).values(is_well=Q(failures_in_a_row=0, told=""))
        return self.alias(is_well=Coalesce(Subquery(well), True)).filter(is_well=True)

    def undelivered(self, turn_id: int) -> int:
        """SUCCEEDED → the same: the answer of this turn did not leave the server."""
        answered = self.filter(turn=turn_id, state=RunState.SUCCEEDED)
        shown = [Attention.UNDELIVERED, Attention.NEEDS_CONSENT]  # the owner is asked elsewhere, too
        return answered.exclude(attention__in=shown).update(attention=Attention.UNDELIVERED)

    def answered(self, run_id: str) -> int:
        """SUCCEEDED or FAILED, and it needed consent → the same: a person has answered what it asked."""
        ended = self.filter(pk=run_id, state__in=[RunState.SUCCEEDED, RunState.FAILED])
        return ended.filter(attention=Attention.NEEDS_CONSENT).update(attention=Attention.NONE)

    def delivered(self, turn_id: int, attention: Attention) -> int:
        """SUCCEEDED, undelivered → the same: the answer left the server after all. `attention`: what else it lacks."""
        missing = self.filter(turn=turn_id, state=RunState.SUCCEEDED, attention=Attention.UNDELIVERED)
        return missing.update(attention=attention)

    def cancel_queued(self, reason: str, **columns: Any) -> int:
        """QUEUED → CANCELLED."""
        return self.filter(state=RunState.QUEUED).cancel(reason, **columns)

    def cancel(self, reason: str, **columns: Any) -> int:
        """QUEUED or RUNNING → CANCELLED."""
        ended = {"state": RunState.CANCELLED, "not_before": None, "finished_at": Now()}
        done = self.open().update(reason=reason, **ended, **columns)
        if done:
            metrics.count_run(RunState.CANCELLED, reason, done)
        return done


class RunRecord(models.Model):
    """One slot of one job and its outcome. A gap of skipped slots is one row: from, to, count.

    The sending of a scheduled message is a run without a job; its slot is `send_at`.
    """

    run_id = models.CharField(primary_key=True, max_length=64)
    # the migration makes its constraint: it refers to the job's clock, which refers to the job. Firing has locked the
    # clock and writes it, so the check reads and locks no row of another page
    job = models.ForeignKey(
        CronJob,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="runs",
        db_index=False,
        db_constraint=False,
    )
    scheduled_message = models.ForeignKey(
        ScheduledMessage,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="runs",
        db_index=False,
    )
    # no constraints for session and turn, whose checks would be a tenth of firing: a run gets its turn in the
    # transaction that inserts the turn, which has one for the session. Without a turn it is written under the lock of
    # its clock or message, which a delete of the session takes first
    session = models.ForeignKey(
        Session, null=True, on_delete=models.SET_NULL, related_name="+", db_constraint=False
    )
    session_key = models.CharField(max_length=200, blank=True)
    owner_id = owner_column()  # nobody's is a run that no user is shown: of a system or legacy job
    scheduled_for = models.DateTimeField()
    state = models.CharField(max_length=16, choices=RunState, default=RunState.QUEUED)
    reason = models.CharField(max_length=64, blank=True)
    slots_from = models.DateTimeField(null=True, blank=True)
    slots_to = models.DateTimeField(null=True, blank=True)
    slots_count = models.PositiveIntegerField(null=True, blank=True, help_text="Null: more than 1,000.")
    moved_to = models.DateTimeField(
        null=True, blank=True, help_text="The instant to which a person has moved the slot."
    )
    attention = models.CharField(
        max_length=16,
        choices=Attention,
        blank=True,
        default=Attention.NONE,
        db_default=Attention.NONE.value,
        help_text="Why a run that succeeded may not have done what it should.",
    )
    attempt = models.PositiveSmallIntegerField(default=1)
    fruitless = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Attempts in which no model answered and no tool was called."
    )
    not_before = models.DateTimeField(null=True, blank=True)
    turn = models.ForeignKey(
        Turn, null=True, blank=True, on_delete=models.SET_NULL, related_name="runs", db_constraint=False
    )
    snapshot = models.JSONField(
        default=dict, help_text="The job when it ran: name, message, schedule, revision."
    )
    prompt_ref = models.JSONField(null=True, blank=True)
    prompt_variables = models.JSONField(null=True, blank=True)
    rendered_prompt = models.TextField(blank=True)
    error = models.CharField(max_length=LONGEST_ERROR, blank=True)
    provider_message = models.CharField(max_length=LONGEST_ERROR, blank=True, default="", db_default="")
    error_detail = models.TextField(blank=True)
    response_summary = models.CharField(max_length=300, blank=True)
    lag_ms = models.BigIntegerField(null=True, blank=True)
    duration_ms = models.BigIntegerField(null=True, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    cap = models.JSONField(
        null=True, blank=True, help_text="The cap that allowed no further call, and what that call needed."
    )
    gate_seen = models.JSONField(
        null=True, blank=True, help_text="The gate that looked, and what it remembers; null: none did."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = RunTransitions.as_manager()

    class Meta:
        verbose_name = "run"
        constraints = [
            models.UniqueConstraint(fields=["job", "scheduled_for"], name="run_once_per_slot"),
            models.UniqueConstraint(  # partial: the run of a job's slot does not write it
                fields=["scheduled_message"],
                condition=Q(scheduled_message__isnull=False),
                name="run_once_per_message",
            ),
            models.CheckConstraint(
                condition=Q(job__isnull=False, scheduled_message__isnull=True)
                | Q(job__isnull=True, scheduled_message__isnull=False),
                name="run_of_a_job_or_a_message",
            ),
            known("run_state_known", "state", RunState),
            known("run_attention_known", "attention", Attention),
            models.CheckConstraint(
                condition=~Q(state="skipped") | ~Q(reason=""), name="run_skipped_with_reason"
            ),
            readable(
                "run_times_readable",
                *("scheduled_for", "slots_from", "slots_to", "not_before"),
                *("created_at", "started_at", "finished_at"),
            ),
            models.CheckConstraint(
                condition=Q(not_before__isnull=True) | Q(state="queued"), name="run_retry_waits_queued"
            ),
            models.CheckConstraint(
                condition=Q(moved_to__isnull=True) & ~Q(reason="moved")
                | Q(state="skipped", reason="moved", moved_to__isnull=False)
                & Q(moved_to__range=(FIRST_INSTANT, LAST_INSTANT))
                & ~Q(moved_to=F("scheduled_for")),
                name="run_moved_says_where",
            ),
            models.UniqueConstraint(
                fields=["job", "moved_to"], condition=Q(moved_to__isnull=False), name="run_moved_there_once"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running"], finished_at__isnull=True)
                | Q(state__in=["succeeded", "failed", "cancelled", "skipped"], finished_at__isnull=False),
                name="run_finished_iff_ended",
            ),
        ]
        indexes = [
            models.Index(fields=["created_at", "run_id"], name="run_by_age"),
            models.Index(
                fields=["job"], condition=Q(state__in=["queued", "running"]), name="run_open_of_job"
            ),
            models.Index(fields=["not_before"], condition=Q(not_before__isnull=False), name="run_retry_due"),
            # for operators: the newest failures; other runs do not write it
            models.Index(
                fields=["created_at", "run_id"],
                condition=Q(state="failed") | Q(state="cancelled", reason__in=CANCELLED_BY_ERROR),
                name="run_failed",
            ),
            # a user's runs by slot: all of them, and by state (most are succeeded, so that state has no index)
            models.Index(
                fields=["owner_id", "scheduled_for", "run_id"],
                condition=Q(owner_id__gt=NOBODY),
                name="run_of_owner",
            ),
            models.Index(
                fields=["owner_id", "state", "scheduled_for", "run_id"],
                condition=Q(owner_id__gt=NOBODY) & ~Q(state="succeeded"),
                name="run_of_owner_by_state",
            ),
            models.Index(
                fields=["owner_id", "attention", "scheduled_for", "run_id"],
                condition=Q(owner_id__gt=NOBODY) & ~Q(attention=""),
                name="run_of_owner_by_attention",
            ),
        ]

    def __str__(self) -> str:
        return self.run_id

    @property
    def of_job(self) -> CronJob:
        """The job. TypeError for the run of a scheduled message."""
        if self.job is None:
            raise TypeError(f"the run {self.run_id} has no job")
        return self.job
