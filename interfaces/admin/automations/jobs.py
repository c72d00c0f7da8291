"""The admin pages of automations. Changes use the same functions as the API, which keep clocks and limits correct."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import Exists, OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from automations.jobs.edit import NewJob, bind_job, delete_job, update_job
from automations.models import CronJob, RunRecord, RunState
from automations.models.category import Category, category
from automations.routines.edit import update_routine
from automations.schedules.describe import describe_job
from automations.selectors import paused_until, state_of
from interfaces.admin.automations.explanation import explanation_of, sentences, state_panel
from interfaces.admin.automations.forms import JobForm
from interfaces.admin.base import VerbAdmin, instant
from interfaces.admin.big_table import Uncounted
from interfaces.admin.deletion import TwoStepDelete
from interfaces.admin.panels import LABELS, Panel, cell, label, link, list_url, table_panel, verbatim
from interfaces.admin.unfold import AutocompleteSelectFilter, display
from sessions_app.exceptions import SessionsError
from sessions_app.sessions.delete import Deletion

LAST = 20  # runs shown on a job's page


@admin.register(CronJob)
class CronJobAdmin(TwoStepDelete[CronJob], Uncounted[CronJob], VerbAdmin[CronJob]):
    form = JobForm
    list_display = [
        "name", "id", "category", "agent", "session_link", "words", "state", "next_run", "last_run", "fault",
    ]  # fmt: skip
    list_select_related = ["agent", "session", "home", "clock"]
    list_filter = [
        "enabled", ("fault", admin.EmptyFieldListFilter), "kind", "schedule_kind", "execution_mode", "source",
        ("agent", AutocompleteSelectFilter),
    ]  # fmt: skip
    search_fields = ["=id", "=session__id", "=session__key", "name"]
    search_help_text = "Id, the session's id or key, or a part of the name"
    ordering = ["-created_at", "-id"]
    actions = ["delete_selected", "pause", "resume"]
    autocomplete_fields = ["session"]
    given = [
        "name", "message", "schedule_kind", "cron", "cron_timezone", "seconds", "once_at", "enabled", "overlap",
        "catch_up", "timeout_seconds", "last_at", "max_runs", "jitter_seconds", "max_retry",
        "ping_url",
    ]  # fmt: skip
    facts = [
        "id", "agent", "session_link", "category", "words", "next_run", "paused_until", "last_slot", "started_by",
        "fault", "execution_mode", "source", "system_event", "imported_id", "created_by_turn_id", "revision",
        "created_at", "updated_at",
    ]  # fmt: skip
    legacy = [
        "kind", "system_event", "imported_id", "task_type", "description", "session_key", "deliver", "channel", "to",
        "channel_meta",
    ]  # fmt: skip
    plain = [
        "name", "message", "schedule_kind", "enabled", "overlap", "catch_up", "timeout_seconds", "ends_at", "max_runs",
        "jitter_seconds", "max_retry", "ping_url",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[CronJob]:
        runs = RunRecord.objects.filter(job=OuterRef("pk"))
        ended = runs.exclude(state=RunState.SKIPPED).order_by("-scheduled_for").values("state")[:1]
        return (
            super()
            .get_queryset(request)
            .annotate(
                last_status=Subquery(ended),
                _last_run=Subquery(runs.order_by("-scheduled_for").values("state")[:1]),
                runs_now=Exists(runs.filter(state=RunState.RUNNING)),
                pending=Exists(runs.filter(state=RunState.QUEUED)),
            )
        )

    def get_fieldsets(self, request: HttpRequest, obj: CronJob | None = None) -> Any:
        if obj is None:
            return [(None, {"fields": ["session", *self.given]})]
        editable = self.has_change_permission(request, obj)
        return [
            (None, {"fields": [*self.given, "seen_revision"] if editable else self.plain}),
            ("Facts", {"fields": self._timed(self.facts)}),
            ("Legacy and background", {"fields": self.legacy, "classes": ["collapse"]}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: CronJob | None = None) -> Any:
        return [] if obj is None else self._timed([*self.facts, *self.legacy])

    def has_change_permission(self, request: HttpRequest, obj: CronJob | None = None) -> bool:
        bound = obj is None or category(obj) is Category.BOUND
        return bound and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: CronJob | None = None) -> bool:
        protected = obj is not None and category(obj) is Category.SYSTEM
        return not protected and super().has_delete_permission(request, obj)

    @admin.display(description="category")
    def category(self, obj: CronJob) -> str:
        return category(obj)

    @admin.display(description="session")
    def session_link(self, obj: CronJob) -> str:
        told = obj.session or obj.home  # a routine's home gets its results
        return link(told) if told else obj.session_key or "-"

    @admin.display(description="schedule")
    def words(self, obj: CronJob) -> str:
        return describe_job(obj, obj.agent.timezone)

    @admin.display(description="next run (UTC)", ordering="clock__next_run_at")
    def next_run(self, obj: CronJob) -> str:
        return instant(obj.clock.next_run_at)

    @admin.display(description="paused until (UTC)")
    def paused_until(self, obj: CronJob) -> str:
        return instant(paused_until(obj))

    @admin.display(description="last slot (UTC)")
    def last_slot(self, obj: CronJob) -> str:
        return instant(obj.clock.last_slot)

    @admin.display(description="started by")
    def started_by(self, obj: CronJob) -> str:
        return "heartbeat" if obj.clock.inline else "beat"

    @display(description="state", label=LABELS)
    def state(self, obj: CronJob) -> str:
        if obj.fault:
            return "set aside"
        now = state_of(obj)
        return "paused" if now == "scheduled" and not obj.enabled else now

    @display(description="last run", label=LABELS)
    def last_run(self, obj: CronJob) -> str:
        return getattr(obj, "_last_run", None) or ""

    def create(self, request: HttpRequest, form: Any) -> CronJob:
        given = form.cleaned_data
        same = [
            "name", "message", "enabled", "overlap", "catch_up", "timeout_seconds", "max_runs", "jitter_seconds",
            "max_retry", "ping_url",
        ]  # fmt: skip
        return bind_job(
            NewJob(
                session_id=given["session"].pk,
                schedule=form.schedule,
                ends_at=given["last_at"] or None,
                **{name: given[name] for name in same},
            )
        )

    def change(self, request: HttpRequest, obj: CronJob, form: Any) -> None:
        if form.changes:
            update_job(obj.pk, form.changes, revision=form.cleaned_data["seen_revision"])

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("automations.change_cronjob")

    @admin.action(description="Pause the selected automations", permissions=["pause"])
    def pause(self, request: HttpRequest, queryset: QuerySet[CronJob]) -> None:
        self._switch(request, queryset, on=False)

    @admin.action(description="Resume the selected automations", permissions=["pause"])
    def resume(self, request: HttpRequest, queryset: QuerySet[CronJob]) -> None:
        self._switch(request, queryset, on=True)

    def _switch(self, request: HttpRequest, queryset: QuerySet[CronJob], *, on: bool) -> None:
        for job in queryset.filter(enabled=not on).order_by("pk"):
            try:
                if category(job) is Category.ROUTINE:
                    update_routine(job.pk, {"enabled": on})
                else:
                    update_job(job.pk, {"enabled": on}, by_operator=True)
            except SessionsError as refusal:
                self.message_user(request, f"{job}: {refusal}.", messages.ERROR)
            else:
                said = "is resumed" if on else "is paused"
                self.message_user(request, f"{job} {said}.", messages.SUCCESS)

    def lead(self, obj: CronJob) -> Iterable[Panel]:
        found = explanation_of(obj)
        if found is not None:
            yield state_panel(obj, found)
        if obj.fault:
            yield verbatim("Why it was disabled, for operators", obj.fault)

    def panels(self, obj: CronJob) -> Iterable[Panel]:
        runs = RunRecord.objects.filter(job=obj).order_by("-scheduled_for").select_related("turn")[:LAST]
        said = sentences(obj, runs, explanation_of(obj))
        yield table_panel(
            f"Last {LAST} runs",
            ["slot (UTC)", "state", "what happened", "turn", "lag ms", "duration ms", "answer or error"],
            [
                [
                    link(run, instant(run.scheduled_for)),
                    label(run.state),
                    said[run.pk],
                    link(run.turn) if run.turn else "",
                    run.lag_ms,
                    run.duration_ms,
                    cell(run.error_detail or run.error or run.response_summary),
                ]
                for run in runs
            ],
            more=list_url(RunRecord, job__id__exact=obj.pk),
        )

    def also_deleted(self, obj: CronJob) -> str:
        return (
            f"Its {RunRecord.objects.filter(job=obj).count()} runs are deleted, too. A running turn goes on."
        )

    def refusal(self, obj: CronJob) -> str:
        return "A system job cannot be deleted." if category(obj) is Category.SYSTEM else ""

    def remove(self, obj: CronJob, *, with_dependents: bool) -> Deletion:
        delete_job(obj.pk)
        return Deletion(deleted=True, deleted_ids=(obj.pk,))
