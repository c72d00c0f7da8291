"""CronJob, its clock, the titles of removed routines, and the time-zone data that slots were computed with."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from sessions_app.models import Agent, Session, Turn
from sessions_app.models.session import has_owner, owner_column

LONGEST_FAULT = 2_000  # characters
LONGEST_HOLIDAYS, MOST_DATES = 16, 100  # of the days on which a schedule has no slots
FIRST_INSTANT, LAST_INSTANT = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
RESERVED_IDS = frozenset({"dream", "heartbeat"})
ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # without characters that look alike


def readable(name: str, *columns: str) -> models.CheckConstraint:
    """Limit the columns to instants that Python can hold; PostgreSQL also has infinity and later years."""
    within = {f"{column}__range": (FIRST_INSTANT, LAST_INSTANT) for column in columns}
    return models.CheckConstraint(condition=Q(**within), name=name)


def known(name: str, column: str, choices: type[models.TextChoices]) -> models.CheckConstraint:
    """Limit the column to the values of these choices."""
    return models.CheckConstraint(condition=Q(**{f"{column}__in": choices.values}), name=name)


def new_job_id() -> str:
    """A short public id: 10 characters of 31, about 50 bits."""
    return "".join(secrets.choice(ID_ALPHABET) for _ in range(10))


class JobKind(models.TextChoices):
    """The kind of turn that a job starts."""

    AGENT_TURN = "agent_turn"
    SYSTEM_EVENT = "system_event"


class ScheduleKind(models.TextChoices):
    """The kind of a job's schedule."""

    CRON = "cron"
    RRULE = "rrule", "Recurrence rule"
    EVERY = "every"
    AT = "at"


ON_WALL_TIME = (ScheduleKind.CRON.value, ScheduleKind.RRULE.value)  # the kinds with a zone of their own


class ExecutionMode(models.TextChoices):
    """The session in which a job runs: its bound one, the heartbeat's (inline), or a new one (isolated)."""

    SESSION = "session"
    INLINE = "inline"
    ISOLATED = "isolated"


class Overlap(models.TextChoices):
    """What happens to a slot while the previous run is still open."""

    SKIP = "skip"
    QUEUE = "queue"


class CatchUp(models.TextChoices):
    """What happens to slots that were missed during downtime."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


class Source(models.TextChoices):
    """Who created a job."""

    MANUAL = "manual"
    CHAT = "chat"
    HEARTBEAT_REFLECT = "heartbeat_reflect"
    IMPORT = "import"
    SYSTEM = "system"


_NO_LEGACY: dict[str, Any] = {
    **dict.fromkeys(("session_key", "channel", "to"), ""),
    **dict.fromkeys(("deliver__isnull", "channel_meta__isnull"), True),
}


class JobQuerySet(models.QuerySet["CronJob"]):
    """Changes of jobs that are not edits."""

    def set_aside(self, ids: Iterable[str], fault: str) -> int:
        """Disable these jobs because of an error, which becomes their fault. Returns their number."""
        return self.filter(pk__in=ids).update(enabled=False, fault=fault[:LONGEST_FAULT])


class CronJob(models.Model):
    """A scheduled input. Bound to a session it is an automation; `session` is null for legacy and system jobs."""

    id = models.CharField(primary_key=True, max_length=32, default=new_job_id, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="jobs")
    session = models.ForeignKey(Session, null=True, blank=True, on_delete=models.PROTECT, related_name="jobs")
    home = models.ForeignKey(
        Session,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="routines",
        help_text="Routines only: the session that gets the results; empty: the primary one.",
    )
    owner_id = owner_column()
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=16, choices=JobKind, default=JobKind.AGENT_TURN)
    schedule_kind = models.CharField(max_length=8, choices=ScheduleKind)
    expr = models.CharField(max_length=200, blank=True)
    every_seconds = models.PositiveIntegerField(null=True, blank=True)
    anchor = models.DateTimeField(
        null=True,
        blank=True,
        help_text="The first slot of an interval; the local start of a rule, stored as if it was UTC.",
    )
    at = models.DateTimeField(null=True, blank=True)
    timezone = models.CharField(max_length=64, default="UTC")
    except_dates: Any = ArrayField(
        models.DateField(), null=True, blank=True, help_text="Dates in the zone without slots; null: none."
    )
    except_holidays = models.CharField(
        max_length=LONGEST_HOLIDAYS,
        blank=True,
        default="",
        db_default="",
        help_text="The country whose public holidays have no slots, such as DE or DE-BY.",
    )
    active_from = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Heartbeats only: the first active hour, in the zone."
    )
    active_to = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="The hour at which activity ends; if less than `active_from`, the next day.",
    )
    message = models.TextField(blank=True, help_text="A routine's instructions.")
    description = models.TextField(blank=True)
    task_type = models.CharField(max_length=32, blank=True)
    execution_mode = models.CharField(max_length=16, choices=ExecutionMode, default=ExecutionMode.SESSION)
    enabled = models.BooleanField(default=True)
    fault = models.TextField(
        blank=True, help_text="The error for which the job was disabled; empty if there is none."
    )
    overlap = models.CharField(max_length=8, choices=Overlap, default=Overlap.SKIP)
    catch_up = models.CharField(max_length=8, choices=CatchUp, default=CatchUp.ONE)
    timeout_seconds = models.PositiveIntegerField(null=True, blank=True)
    policy = models.JSONField(
        default=dict,
        blank=True,
        help_text="Routines only: limits of one turn, which override the agent's; `timeout_seconds` overrides them.",
    )
    limits = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="Caps in tokens and US dollars by run, day and month.",
    )
    max_retry = models.PositiveSmallIntegerField(default=0, help_text="Retries of a failed run.")
    ends_at = models.DateTimeField(null=True, blank=True, help_text="No runs after this time.")
    max_runs = models.PositiveIntegerField(null=True, blank=True, help_text="Maximum number of runs.")
    jitter_seconds = models.PositiveIntegerField(
        default=0, help_text="Delay each run by a fixed amount, up to this many seconds."
    )
    ping_url = models.CharField(
        max_length=1900,
        blank=True,
        default="",
        db_default="",
        help_text="Called by GET after each run that succeeded, with /fail after one that failed. Empty: none.",
    )
    model = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="Empty: the agent's model."
    )
    fallback_model = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="Empty: the agent's fallback model."
    )
    max_output_tokens = models.PositiveIntegerField(
        null=True, blank=True, help_text="The longest reply of one model call; empty: as the agent has it."
    )
    allow_tools = models.JSONField(
        null=True,
        blank=True,
        help_text="The only tools that its turns are offered, with the agent's rights; null: all.",
    )
    gate = models.JSONField(
        null=True,
        blank=True,
        help_text="The check that runs before the model: its kind and settings; null: none.",
    )
    source = models.CharField(max_length=20, choices=Source, default=Source.MANUAL)
    # the turn may have been deleted: clearing this column would read the whole table for each deletion
    created_by_turn = models.ForeignKey(
        Turn,
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    # the provenance is stored here because the turn that made or changed the job may have been deleted
    stranger = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="The hook whose post made or changed the job; its turns are restricted like that post's turn.",
    )
    has_read = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="A turn that had read text from outside made or changed the job.",
    )
    revision = models.PositiveIntegerField(default=1)
    system_event = models.CharField(
        max_length=32, blank=True, help_text="System jobs only: dream or heartbeat."
    )
    imported_id = models.CharField(max_length=200, blank=True, help_text="Its id in the imported store.")
    session_key = models.CharField(max_length=200, blank=True, help_text="Legacy jobs only.")
    deliver = models.BooleanField(null=True, blank=True, help_text="Legacy jobs only.")
    channel = models.CharField(max_length=64, blank=True, help_text="Legacy jobs only.")
    to = models.CharField(max_length=200, blank=True, help_text="Legacy jobs only.")
    channel_meta = models.JSONField(null=True, blank=True, help_text="Legacy jobs only.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        verbose_name = "automation"
        constraints = [
            models.CheckConstraint(
                condition=Q(schedule_kind="cron", every_seconds__isnull=True, at__isnull=True) & ~Q(expr="")
                | Q(
                    schedule_kind="rrule",
                    every_seconds__isnull=True,
                    anchor__isnull=False,
                    at__isnull=True,
                )
                & ~Q(expr="")
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
                condition=Q(except_dates__isnull=True, except_holidays="")
                | Q(schedule_kind__in=ON_WALL_TIME)
                & (Q(except_dates__isnull=True) | Q(except_dates__len__range=(1, MOST_DATES))),
                name="cronjob_excepts_days_on_wall_time",
            ),
            models.CheckConstraint(
                condition=Q(execution_mode="session") | Q(session__isnull=True),
                name="cronjob_bound_runs_in_session",
            ),
            models.CheckConstraint(
                condition=Q(execution_mode="session", home__isnull=True)
                | Q(execution_mode__in=["inline", "isolated"], kind="agent_turn", **_NO_LEGACY),
                name="cronjob_routine_has_no_legacy_field",
            ),
            models.CheckConstraint(
                condition=Q(active_from__isnull=True, active_to__isnull=True)
                | Q(active_from__range=(0, 24), active_to__range=(0, 24), active_from__isnull=False)
                & Q(active_to__isnull=False)
                & ~Q(active_from=models.F("active_to")),
                name="cronjob_active_hours",
            ),
            models.CheckConstraint(
                condition=Q(session__isnull=True) | Q(**_NO_LEGACY), name="cronjob_bound_has_no_legacy_field"
            ),
            models.CheckConstraint(
                condition=Q(kind="agent_turn", system_event="")
                | (Q(kind="system_event", session__isnull=True) & ~Q(system_event="")),
                name="cronjob_system_names_its_event",
            ),
            models.UniqueConstraint(
                fields=["agent", "system_event"],
                condition=~Q(system_event=""),
                name="cronjob_system_event_once_per_agent",
            ),
            models.UniqueConstraint(
                fields=["agent", "imported_id"],
                condition=~Q(imported_id=""),
                name="cronjob_imported_once_per_agent",
            ),
            models.CheckConstraint(
                condition=Q(max_runs__isnull=True) | Q(max_runs__gte=1), name="cronjob_max_runs_positive"
            ),
            models.CheckConstraint(
                condition=Q(max_output_tokens__isnull=True) | Q(max_output_tokens__gte=1),
                name="cronjob_max_output_tokens_positive",
            ),
            known("cronjob_kind_known", "kind", JobKind),
            has_owner("cronjob_has_owner"),
            known("cronjob_execution_mode_known", "execution_mode", ExecutionMode),
            readable("cronjob_times_readable", "at", "anchor", "ends_at", "created_at", "updated_at"),
            known("cronjob_overlap_known", "overlap", Overlap),
            known("cronjob_catch_up_known", "catch_up", CatchUp),
        ]
        indexes = [
            models.Index(fields=["created_at", "id"], name="job_by_age"),
            models.Index(
                fields=["timezone", "id"],
                condition=Q(enabled=True, schedule_kind__in=ON_WALL_TIME),
                name="job_on_wall_time",
            ),
            models.Index(fields=["id"], condition=~Q(fault=""), name="job_set_aside"),
            # the list of a user's automations by age, and the names of what runs are of
            models.Index(fields=["owner_id", "created_at", "id"], name="job_of_owner"),
        ]

    def __str__(self) -> str:
        return self.name


class Pause(NamedTuple):
    """From when, None: at once, and until when a job runs no slot. A slot at the end runs."""

    begin: datetime | None
    end: datetime


class JobClock(models.Model):
    """A narrow row that beat writes: when the job is next due, and the last slot that was run or skipped.

    `next_run_at` is the slot plus the job's jitter; null while the job is paused, done or disabled. `last_slot` only
    grows and `runs_started` counts the slots that became runs, so that deleting old runs repeats no slot. If a person
    chose the first run of a cron schedule, `planned_from` has it, too.
    """

    job = models.OneToOneField(CronJob, primary_key=True, on_delete=models.CASCADE, related_name="clock")
    inline = models.BooleanField(default=False, help_text="Started by the heartbeat instead of beat.")
    next_run_at = models.DateTimeField(null=True, blank=True)
    last_slot = models.DateTimeField(null=True, blank=True)
    planned_from = models.DateTimeField(
        db_default=Now(),
        help_text="Slots count from here: when the job was created, resumed or given its schedule.",
    )
    runs_started = models.PositiveBigIntegerField(default=0)
    skipped_to = models.DateTimeField(
        null=True, blank=True, help_text="The last slot that a person has skipped; it may be to come."
    )
    paused_from = models.DateTimeField(
        null=True, blank=True, help_text="When the pause begins; empty: it began when it was set."
    )
    paused_until = models.DateTimeField(
        null=True, blank=True, help_text="No slot of the pause before this time runs. It may have passed."
    )
    moved = models.JSONField(
        null=True,
        blank=True,
        help_text="Slots that a person has moved: to which instant. They may have passed.",
    )

    class Meta:
        constraints = [
            readable(
                "jobclock_times_readable",
                *("next_run_at", "last_slot", "planned_from", "skipped_to", "paused_from", "paused_until"),
            ),
            models.CheckConstraint(
                condition=Q(next_run_at__isnull=True)
                | Q(skipped_to__isnull=True)
                | Q(next_run_at__gt=F("skipped_to")),
                name="jobclock_next_is_not_skipped",
            ),
            models.CheckConstraint(
                condition=Q(next_run_at__isnull=True)
                | Q(paused_until__isnull=True)
                | Q(next_run_at__gte=F("paused_until"))
                | Q(paused_from__isnull=False, next_run_at__lt=F("paused_from")),
                name="jobclock_next_is_outside_the_pause",
            ),
            models.CheckConstraint(
                condition=Q(paused_from__isnull=True)
                | Q(paused_until__isnull=False, paused_from__lt=F("paused_until")),
                name="jobclock_pause_ends_after_it_begins",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_run_at"],
                condition=Q(next_run_at__isnull=False, inline=False),
                name="jobclock_due",
            ),
            models.Index(
                fields=["next_run_at"],
                condition=Q(next_run_at__isnull=False, inline=True),
                name="jobclock_inline_due",
            ),
        ]

    def __str__(self) -> str:
        return f"clock of {self.job_id}"

    @property
    def pause(self) -> Pause | None:
        """The pause that was set last, also when it has passed."""
        return None if self.paused_until is None else Pause(self.paused_from, self.paused_until)

    def pause_at(self, instant: datetime) -> datetime | None:
        """The end of the pause in which this instant lies; None: it lies in none."""
        has_begun = self.paused_from is None or self.paused_from <= instant
        is_over = self.paused_until is None or self.paused_until <= instant
        return self.paused_until if has_begun and not is_over else None


class RemovedRoutine(models.Model):
    """One normalised title of one agent. A disabled routine is not listed here: it still has its row."""

    agent = models.ForeignKey(
        Agent, on_delete=models.CASCADE, related_name="removed_routines", db_index=False
    )
    title = models.CharField(max_length=200)
    removed_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "title"], name="removed_routine_once")]

    def __str__(self) -> str:
        return self.title


class ZoneData(models.Model):
    """The fingerprint of the data that a zone's slots were computed with."""

    name = models.CharField(primary_key=True, max_length=64)
    fingerprint = models.CharField(max_length=64)

    def __str__(self) -> str:
        return self.name


class Category(StrEnum):
    """How a job is run."""

    SYSTEM = "system"
    BOUND = "bound"
    ROUTINE = "routine"
    LEGACY = "legacy"


def category(job: CronJob) -> Category:
    """System by kind or reserved id, never by name; routine by its mode; bound with a session; else legacy."""
    if job.kind == JobKind.SYSTEM_EVENT or job.pk in RESERVED_IDS:
        return Category.SYSTEM
    if job.execution_mode != ExecutionMode.SESSION:
        return Category.ROUTINE
    legacy = job.channel or job.to or job.deliver is not None or job.channel_meta is not None
    if job.session_id is not None and not legacy:
        return Category.BOUND
    return Category.LEGACY


def is_of_people(job: CronJob) -> bool:
    """Whether a person or an agent has made the job, so that its owner is shown its runs and told of them."""
    return category(job) in (Category.BOUND, Category.ROUTINE)


def internal_key(job_id: str, system_event: str, agent_name: str) -> str:
    """The key of the session of a legacy or system job."""
    return heartbeat_key(agent_name) if system_event == "heartbeat" else f"cron:{job_id}"


def heartbeat_key(agent_name: str) -> str:
    """The key of an agent's heartbeat session."""
    return f"heartbeat:{agent_name}"
