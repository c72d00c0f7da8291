"""The admin pages of automations. Changes use the same functions as the API, which keep clocks and limits correct."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from automations.exceptions import JobNotFound
from automations.jobs.edit import NewJob, bind_job, delete_job, update_job
from automations.jobs.explain import Explanation, explain
from automations.jobs.validate import CHOICES
from automations.models import CronJob, RunRecord, ScheduleKind
from automations.models.health import health_of
from automations.models.job import ON_WALL_TIME, Category, category
from automations.routines.edit import update_routine
from automations.runs.describe import describe_run, when
from automations.schedules.describe import describe_job
from automations.schedules.schedule import AtSchedule
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import coming_pause, paused_until, usage_of_runs, with_runs
from interfaces.admin.agents import CappedForm
from interfaces.admin.base import VerbAdmin, clean_line, row_action
from interfaces.admin.deletion import TwoStepDelete
from interfaces.admin.panels import (
    Panel,
    cell,
    instant,
    label,
    link,
    list_url,
    outcome,
    spent_panel,
    table,
    used_panel,
)
from sessions_app.sessions.delete import Deletion
from sessions_app.spending.caps import budget_of

KINDS_OF: dict[str, tuple[str, ...]] = {
    "cron": (ScheduleKind.CRON,),
    "rule": (ScheduleKind.RRULE,),
    "starts_at": (ScheduleKind.RRULE,),
    **dict.fromkeys(("cron_timezone", "except_on", "holidays"), ON_WALL_TIME),
    "seconds": (ScheduleKind.EVERY,),
    "once_at": (ScheduleKind.AT,),
}
SCHEDULE_FIELDS = ("schedule_kind", *KINDS_OF)
NUMBERS = ("jitter_seconds", "max_retry")  # empty is 0


def _line(help_text: str, **more: Any) -> forms.CharField:
    """An optional text of one line."""
    widget = UnfoldAdminTextInputWidget
    return forms.CharField(required=False, widget=widget, help_text=help_text, **more)


class JobForm(CappedForm[CronJob]):
    """The fields that a person may set. Most checks are those of `create_job` and `update_job`."""

    field_of = {
        "bad_cron": "cron",
        "bad_rule": "rule",
        "bad_except": "except_on",
        "bad_except_holidays": "holidays",
        "missing_extra": "holidays",
        "never_fires": "schedule_kind",
        "unknown_timezone": "cron_timezone",
        "bad_interval": "seconds",
        "bad_time": "once_at",
        "past_at": "once_at",
        "empty_name": "name",
        "bad_name": "name",
        "empty_message": "message",
        "bad_message": "message",
        "message_too_long": "message",
        "bad_ends_at": "last_at",
        **{
            f"bad_{name}": name
            for name in ("timeout_seconds", "max_runs", "ping_url", "limits", *NUMBERS, *CHOICES)
        },
    }
    name = _line("Default: the first words of the message.", max_length=200)
    schedule_kind = forms.ChoiceField(
        choices=ScheduleKind.choices,
        initial=ScheduleKind.CRON,
        widget=UnfoldAdminSelectWidget,
        label="Schedule",
    )
    cron = _line("For cron: five fields, such as <code>0 9 * * 1-5</code>.")
    rule = _line("For a rule of RFC 5545, such as <code>FREQ=WEEKLY;INTERVAL=2;BYDAY=MO</code>.")
    starts_at = _line(
        "For a rule: the local time from which it counts, such as <code>2026-11-30T09:00</code>."
    )
    cron_timezone = _line("For cron and rules. Default: the agent's zone.", label="Time zone")
    except_on = _line("For cron and rules: days without runs, such as <code>2026-12-24, 2026-12-31</code>.")
    holidays = _line(
        "For cron and rules: no runs on the public holidays of <code>DE</code> or <code>DE-BY</code>."
    )
    seconds = forms.IntegerField(
        required=False, widget=UnfoldAdminIntegerFieldWidget, help_text="For every: seconds between two runs."
    )
    once_at = _line(
        "For at: <code>2027-01-01T09:00:00+01:00</code>. Without an offset: in the agent's zone.", label="At"
    )
    last_at = _line("No runs after this time. Without an offset: in the agent's zone.", label="Ends at")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in {"session", "message", *NUMBERS} & self.fields.keys():
            self.fields[name].required = name not in NUMBERS
        if "session" in self.fields:
            self.fields["session"].help_text = "If the agent is unified, a thread means the primary session."
        job = self.instance
        if not job._state.adding:
            stored: dict[str, Any] = {
                "schedule_kind": job.schedule_kind,
                "cron": job.expr if job.schedule_kind == ScheduleKind.CRON else "",
                "rule": job.expr if job.schedule_kind == ScheduleKind.RRULE else "",
                "starts_at": f"{job.anchor:%Y-%m-%dT%H:%M}" if job.expr and job.anchor else "",
                "cron_timezone": job.timezone if job.expr else "",
                "except_on": ", ".join(map(str, job.except_dates or ())),
                "holidays": job.except_holidays,
                "seconds": job.every_seconds,
                "once_at": _written(job, job.at),
                "last_at": _written(job, job.ends_at),
            }
            self.initial = {**stored, **self.initial}

    def clean_name(self) -> str:
        return clean_line("name", self.cleaned_data["name"])

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        given = self.cleaned_data
        for name in given.keys() & set(NUMBERS):
            given[name] = given[name] or 0
        for name, kinds in KINDS_OF.items():
            # a field that still has the old schedule's value was not changed, and is ignored
            is_given = name in self.changed_data and given.get(name) not in (None, "")
            if is_given and given.get("schedule_kind", kinds[0]) not in kinds:
                label = ScheduleKind(kinds[0]).label
                self.add_error(name, f"Exactly one schedule: leave this empty, or choose {label}.")
        return cleaned

    @property
    def schedule(self) -> dict[str, Any]:
        """The schedule as the API's JSON."""
        given = self.cleaned_data
        kind = given["schedule_kind"]
        if kind in ON_WALL_TIME:
            own = {"expr": given["cron"]}
            if kind == ScheduleKind.RRULE:
                own = {"rule": given["rule"], "starts_at": given["starts_at"]}
            return {"kind": kind, **own, **_more_on_wall(given)}
        if kind == ScheduleKind.EVERY:
            return {"kind": kind, "seconds": given["seconds"]}
        return {"kind": kind, "at": given["once_at"]}

    @property
    def changes(self) -> dict[str, Any]:
        changes = super().changes
        for name in NUMBERS:
            if changes.get(name) == self.initial.get(name):
                changes.pop(name, None)
        if changes.keys() & set(SCHEDULE_FIELDS):
            changes = {name: value for name, value in changes.items() if name not in SCHEDULE_FIELDS}
            changes["schedule"] = self.schedule
        if "last_at" in changes:
            changes["ends_at"] = changes.pop("last_at") or None
        return changes


def _more_on_wall(given: Mapping[str, Any]) -> dict[str, Any]:
    more = {
        "timezone": given["cron_timezone"],
        "except": given["except_on"].replace(",", " ").split(),
        "except_holidays": given["holidays"].strip(),
    }
    return {name: value for name, value in more.items() if value}


def _written(job: CronJob, instant: datetime | None) -> str:
    if instant is None:
        return ""
    return str(AtSchedule(at=instant).to_json(zone=job.agent.timezone)["at"])


LAST = 20  # runs shown on a job's page


def explanation_of(job: CronJob | None) -> Explanation | None:
    """The explanation that the job's owner gets; None for a job that belongs to no conversation."""
    if job is None or job.session is None:
        return None
    try:
        return explain(job.session.owner, job.pk)
    except JobNotFound:  # it was deleted meanwhile
        return None


def sentence_of(run: RunRecord, explanation: Explanation | None) -> str:
    """A run in one sentence, with times in the zone of its automation."""
    for each in explanation.last if explanation else ():
        if each.run_id == run.pk:
            return each.text
    return describe_run(run, zone_or_utc(run.job.timezone if run.job else "UTC"))


def _switch(job: CronJob, *, on: bool) -> None:
    if job.enabled == on:
        return
    if category(job) is Category.ROUTINE:
        update_routine(job.pk, {"enabled": on})
    else:
        update_job(job.pk, {"enabled": on}, by_operator=True)


@admin.register(CronJob)
class CronJobAdmin(TwoStepDelete[CronJob], VerbAdmin[CronJob]):
    form = JobForm
    list_display = [
        "name", "id", "category", "agent", "session_link", "words", "state", "next_run", "last_run", "fault",
    ]  # fmt: skip
    list_select_related = ["agent", "session", "home", "clock", "health"]
    list_filter = [
        "enabled", ("health__paused_reason", admin.ChoicesFieldListFilter),
        ("fault", admin.EmptyFieldListFilter), "kind", "schedule_kind", "execution_mode", "source",
        ("agent", AutocompleteSelectFilter),
    ]  # fmt: skip
    search_fields = ["=id", "=session__id", "=session__key", "name"]
    search_help_text = "Id, the session's id or key, or a part of the name"
    ordering = ["-created_at", "-id"]
    sortable_by = ()
    actions = [
        "delete_selected",
        row_action("pause", "Pause the selected automations", partial(_switch, on=False), "is paused"),
        row_action("resume", "Resume the selected automations", partial(_switch, on=True), "is resumed"),
    ]
    autocomplete_fields = ["session"]
    fixed = ["session"]
    editable = [
        "name", "message", "enabled", "overlap", "catch_up", "timeout_seconds", "max_runs", "jitter_seconds",
        "max_retry", "ping_url", "limits", "model", "fallback_model", "max_output_tokens", "allow_tools", "gate",
    ]  # fmt: skip
    form_only = [*SCHEDULE_FIELDS, "last_at", "seen_revision"]
    facts = [
        "id", "agent", "home", "category", "words", "ends_at", "next_run", "paused_until", "last_slot", "started_by",
        "fault", "failures", "execution_mode", "source", "created_by_turn_id", "revision", "created_at", "updated_at",
    ]  # fmt: skip
    legacy = [
        "kind", "system_event", "imported_id", "task_type", "description", "session_key", "deliver", "channel", "to",
        "channel_meta",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[CronJob]:
        last = RunRecord.objects.filter(job=OuterRef("pk")).order_by("-scheduled_for")[:1]
        newest = {f"newest_{name}": Subquery(last.values(name)) for name in ("state", "attention")}
        rows: QuerySet[CronJob] = with_runs(super().get_queryset(request)).annotate(**newest)
        return rows

    def get_fieldsets(self, request: HttpRequest, obj: CronJob | None = None) -> Any:
        names = self.get_fields(request, obj)
        if obj is None:
            return [(None, {"fields": names})]
        return [
            (None, {"fields": [name for name in names if name not in self.facts]}),
            ("Facts", {"fields": self.facts}),
            ("Legacy and background", {"fields": self.legacy, "classes": ["collapse"]}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: CronJob | None = None) -> Any:
        return [] if obj is None else [*self.fixed, *self.facts, *self.legacy]

    def has_change_permission(self, request: HttpRequest, obj: CronJob | None = None) -> bool:
        is_bound = obj is None or category(obj) is Category.BOUND
        return is_bound and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: CronJob | None = None) -> bool:
        is_protected = obj is not None and category(obj) is Category.SYSTEM
        return not is_protected and super().has_delete_permission(request, obj)

    @admin.display(description="category")
    def category(self, obj: CronJob) -> str:
        return category(obj)

    @admin.display(description="session")
    def session_link(self, obj: CronJob) -> str:
        session = obj.session or obj.home  # a routine's home gets its results
        return link(session) if session else obj.session_key or "-"

    @admin.display(description="schedule")
    def words(self, obj: CronJob) -> str:
        return describe_job(obj, obj.agent.timezone)

    @admin.display(description="next run (UTC)")
    def next_run(self, obj: CronJob) -> str:
        return instant(obj.clock.next_run_at)

    @admin.display(description="paused until (UTC)")
    def paused_until(self, obj: CronJob) -> str:
        coming = coming_pause(obj)
        return f"{instant(coming.begin)} to {instant(coming.end)}" if coming else instant(paused_until(obj))

    @admin.display(description="last slot (UTC)")
    def last_slot(self, obj: CronJob) -> str:
        return instant(obj.clock.last_slot)

    @admin.display(description="failed runs in a row")
    def failures(self, obj: CronJob) -> str:
        health = health_of(obj)
        told = f", owner told: {health.told}" if health.told else ""
        return f"{health.failures_in_a_row}{' (slowed down)' if health.is_slowed else ''}{told}"

    @admin.display(description="started by")
    def started_by(self, obj: CronJob) -> str:
        return "heartbeat" if obj.clock.inline else "beat"

    @admin.display(description="state")
    def state(self, obj: Any) -> str:
        if obj.fault:
            return label("set aside")
        return label("paused" if obj.state == "scheduled" and not obj.enabled else obj.state)

    @admin.display(description="last run")
    def last_run(self, obj: Any) -> str:
        return outcome(obj.newest_state, obj.newest_attention) if obj.newest_state else "-"

    def create(self, request: HttpRequest, form: Any) -> CronJob:
        given = form.cleaned_data
        return bind_job(
            NewJob(
                session_id=given["session"].pk,
                schedule=form.schedule,
                allow_duplicate=False,
                ends_at=given["last_at"] or None,
                **{name: given[name] for name in self.editable},
            )
        )

    def change(self, request: HttpRequest, obj: CronJob, form: Any) -> None:
        if form.changes:
            update_job(obj.pk, form.changes, revision=form.cleaned_data["seen_revision"])

    def panels(self, obj: CronJob) -> Iterable[Panel]:
        explanation = explanation_of(obj)
        if explanation is not None:
            zone = zone_or_utc(obj.timezone)
            coming = ", ".join(when(firing, zone) for firing in explanation.next) or "none"
            lines = [explanation.now, *explanation.warnings, f"Next runs ({zone}): {coming}."]
            yield Panel(title="Current state", text="\n".join(lines), leads=True)
        if obj.fault:
            yield Panel(title="Why it was disabled, for operators", text=obj.fault, leads=True)
        yield from spent_panel(budget_of("automation", obj.pk, obj.limits, zone=obj.agent.timezone))
        if (used := usage_of_runs(obj.pk)).runs:
            yield used_panel(used.words)
        runs = RunRecord.objects.filter(job=obj).order_by("-scheduled_for").select_related("turn", "job")
        yield table(
            f"Last {LAST} runs",
            runs[:LAST],
            {
                "slot (UTC)": lambda run: link(run, run.scheduled_for),
                "state": lambda run: outcome(run.state, run.attention),
                "what happened": lambda run: sentence_of(run, explanation),
                "turn": lambda run: link(run.turn),
                "lag ms": lambda run: run.lag_ms,
                "duration ms": lambda run: run.duration_ms,
                "answer or error": lambda run: cell(run.error_detail or run.error or run.response_summary),
            },
            more=list_url(RunRecord, job__id__exact=obj.pk),
        )

    def also_deleted(self, obj: CronJob) -> str:
        count = RunRecord.objects.filter(job=obj).count()
        return f"Its {count} runs will be deleted too. A running turn goes on."

    def refusal(self, obj: CronJob) -> str:
        return "A system job cannot be deleted." if category(obj) is Category.SYSTEM else ""

    def remove(self, obj: CronJob, *, with_dependents: bool) -> Deletion:
        delete_job(obj.pk)
        return Deletion(deleted=True, deleted_ids=(obj.pk,))
