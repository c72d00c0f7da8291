"""The rows of automations: the job, its clock, its runs."""

from __future__ import annotations

import secrets

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models import Agent, Session, Turn

ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # nothing that is misread aloud


def new_job_id() -> str:
    """A short public id: 10 characters of 31, about 50 bits."""
    return "".join(secrets.choice(ID_ALPHABET) for _ in range(10))


class JobKind(models.TextChoices):
    """What a job asks for."""

    AGENT_TURN = "agent_turn"
    SYSTEM_EVENT = "system_event"


class ScheduleKind(models.TextChoices):
    """How a job's slots are given."""

    CRON = "cron"
    EVERY = "every"
    AT = "at"


class ExecutionMode(models.TextChoices):
    """Where a job's work is done."""

    SESSION = "session"
    INLINE = "inline"
    ISOLATED = "isolated"


class Overlap(models.TextChoices):
    """What happens to a slot while the previous run is still open."""

    SKIP = "skip"
    QUEUE = "queue"


class CatchUp(models.TextChoices):
    """What happens to slots that passed while nobody looked."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


class Source(models.TextChoices):
    """Who made a job."""

    MANUAL = "manual"
    CHAT = "chat"
    HEARTBEAT_REFLECT = "heartbeat_reflect"
    IMPORT = "import"


class CronJob(models.Model):
    """A scheduled input. Bound to a session it is an automation; `session` is null for legacy and system jobs."""

    id = models.CharField(primary_key=True, max_length=32, default=new_job_id, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="jobs")
    session = models.ForeignKey(Session, null=True, blank=True, on_delete=models.PROTECT, related_name="jobs")
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=16, choices=JobKind, default=JobKind.AGENT_TURN)
    schedule_kind = models.CharField(max_length=8, choices=ScheduleKind)
    expr = models.CharField(max_length=200, blank=True)
    every_seconds = models.PositiveIntegerField(null=True, blank=True)
    anchor = models.DateTimeField(null=True, blank=True, help_text="Where the grid of `every` begins.")
    at = models.DateTimeField(null=True, blank=True)
    timezone = models.CharField(max_length=64, default="UTC")
    message = models.TextField(blank=True)
    description = models.TextField(blank=True)
    task_type = models.CharField(max_length=32, blank=True)
    execution_mode = models.CharField(max_length=16, choices=ExecutionMode, default=ExecutionMode.SESSION)
    enabled = models.BooleanField(default=True)
    fault = models.TextField(blank=True, help_text="Why the job was set aside; empty while it is sound.")
    overlap = models.CharField(max_length=8, choices=Overlap, default=Overlap.SKIP)
    catch_up = models.CharField(max_length=8, choices=CatchUp, default=CatchUp.ONE)
    timeout_seconds = models.PositiveIntegerField(null=True, blank=True)
    max_retry = models.PositiveSmallIntegerField(default=0)
    source = models.CharField(max_length=20, choices=Source, default=Source.MANUAL)
    created_by_turn = models.ForeignKey(
        Turn,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    revision = models.PositiveIntegerField(default=1)
    session_key = models.CharField(max_length=200, blank=True, help_text="Legacy jobs only.")
    deliver = models.BooleanField(null=True, blank=True, help_text="Legacy jobs only.")
    channel = models.CharField(max_length=64, blank=True, help_text="Legacy jobs only.")
    to = models.CharField(max_length=200, blank=True, help_text="Legacy jobs only.")
    channel_meta = models.JSONField(null=True, blank=True, help_text="Legacy jobs only.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "automation"
        constraints = [
            models.CheckConstraint(
                condition=Q(schedule_kind="cron", every_seconds__isnull=True, at__isnull=True) & ~Q(expr="")
                | Q(
                    schedule_kind="every",
                    every_seconds__isnull=False,
                    every_seconds__gte=1,
                    anchor__isnull=False,
                    at__isnull=True,
                    expr="",
                )
                | Q(schedule_kind="at", at__isnull=False, every_seconds__isnull=True, expr=""),
                name="cronjob_exactly_one_schedule",
            ),
            models.CheckConstraint(
                condition=Q(execution_mode="session") | Q(session__isnull=True),
                name="cronjob_bound_runs_in_session",
            ),
            models.CheckConstraint(
                condition=Q(session__isnull=True)
                | Q(session_key="", channel="", to="", deliver__isnull=True, channel_meta__isnull=True),
                name="cronjob_bound_has_no_legacy_field",
            ),
            models.CheckConstraint(condition=Q(kind__in=JobKind.values), name="cronjob_kind_known"),
            models.CheckConstraint(
                condition=Q(execution_mode__in=ExecutionMode.values), name="cronjob_execution_mode_known"
            ),
            models.CheckConstraint(condition=Q(overlap__in=Overlap.values), name="cronjob_overlap_known"),
            models.CheckConstraint(condition=Q(catch_up__in=CatchUp.values), name="cronjob_catch_up_known"),
        ]

    def __str__(self) -> str:
        return self.name


class JobClock(models.Model):
    """The narrow row beat writes: when the job is next due and the last slot that was accounted for.

    `next_run_at` is null while the job has nothing to do (paused, done, set aside). `last_slot` only grows, so
    that a purge of runs never reopens a slot.
    """

    job = models.OneToOneField(CronJob, primary_key=True, on_delete=models.CASCADE, related_name="clock")
    inline = models.BooleanField(default=False, help_text="Started by the heartbeat, not by beat.")
    next_run_at = models.DateTimeField(null=True, blank=True)
    last_slot = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["next_run_at"],
                condition=Q(next_run_at__isnull=False, inline=False),
                name="jobclock_due",
            )
        ]

    def __str__(self) -> str:
        return f"clock of {self.job_id}"


class RunState(models.TextChoices):
    """Where a run stands; RUN_ARROWS lists every way on."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


RUN_ARROWS: dict[RunState, tuple[RunState, ...]] = {
    RunState.QUEUED: (RunState.RUNNING, RunState.CANCELLED),
    # back to queued: another attempt of the same run
    RunState.RUNNING: (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.QUEUED),
    RunState.SUCCEEDED: (),
    RunState.FAILED: (),
    RunState.CANCELLED: (),
    RunState.SKIPPED: (),
}


class RunRecord(models.Model):
    """One slot of one job and its real outcome. A skipped gap of slots is one row: from, to, count."""

    run_id = models.CharField(primary_key=True, max_length=64)
    job = models.ForeignKey(CronJob, on_delete=models.CASCADE, related_name="runs", db_index=False)
    session = models.ForeignKey(Session, null=True, on_delete=models.SET_NULL, related_name="+")
    session_key = models.CharField(max_length=200, blank=True)
    scheduled_for = models.DateTimeField()
    state = models.CharField(max_length=16, choices=RunState, default=RunState.QUEUED)
    reason = models.CharField(max_length=64, blank=True)
    slots_from = models.DateTimeField(null=True, blank=True)
    slots_to = models.DateTimeField(null=True, blank=True)
    slots_count = models.PositiveIntegerField(
        null=True, blank=True, help_text="Null: more than were counted."
    )
    attempt = models.PositiveSmallIntegerField(default=1)
    not_before = models.DateTimeField(null=True, blank=True)
    turn = models.ForeignKey(Turn, null=True, blank=True, on_delete=models.SET_NULL, related_name="runs")
    snapshot = models.JSONField(default=dict, help_text="What was run: name, message, schedule, revision.")
    prompt_ref = models.JSONField(null=True, blank=True)
    prompt_variables = models.JSONField(null=True, blank=True)
    rendered_prompt = models.TextField(blank=True)
    error = models.CharField(max_length=300, blank=True)
    error_detail = models.TextField(blank=True)
    response_summary = models.CharField(max_length=300, blank=True)
    lag_ms = models.BigIntegerField(null=True, blank=True)
    duration_ms = models.BigIntegerField(null=True, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "run"
        constraints = [
            models.UniqueConstraint(fields=["job", "scheduled_for"], name="run_once_per_slot"),
            models.CheckConstraint(condition=Q(state__in=RunState.values), name="run_state_known"),
            models.CheckConstraint(
                condition=~Q(state="skipped") | ~Q(reason=""), name="run_skipped_with_reason"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running"], finished_at__isnull=True)
                | Q(state__in=["succeeded", "failed", "cancelled", "skipped"], finished_at__isnull=False),
                name="run_finished_iff_ended",
            ),
        ]
        indexes = [
            models.Index(
                fields=["job"], condition=Q(state__in=["queued", "running"]), name="run_open_of_job"
            ),
        ]

    def __str__(self) -> str:
        return self.run_id
