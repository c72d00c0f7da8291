"""The read-only admin pages of runs and scheduled messages, with an action to cancel messages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import AutocompleteSelectFilter, RangeDateTimeFilter

from automations.jobs.failing import try_again
from automations.models import RunRecord, RunState, ScheduledMessage
from automations.runs.describe import REASONS
from automations.scheduled_messages import cancel_message
from interfaces.admin.base import ReadOnlyAdmin, row_action, value_filter
from interfaces.admin.jobs import explanation_of, sentence_of
from interfaces.admin.panels import Panel, beginning, delivery_states, label, link, linked, state_label, table
from sessions_app.reads.selectors import with_deliveries


class TimeRange(RangeDateTimeFilter):  # type: ignore[misc]  # it has no annotations
    """A filter by a range of time in UTC, both ends included. An end without a time of day is a whole day's."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002
        for end, lookup, time in (("from", "gte", "00:00:00"), ("to", "lte", "23:59:59.999999")):
            name = f"{self.field_path}_{end}"
            text = f"{self.used_parameters.get(f'{name}_0')}T{self.used_parameters.get(f'{name}_1') or time}"
            try:
                instant = datetime.fromisoformat(text).replace(tzinfo=UTC)
            except ValueError:  # there is no date, or it is none
                continue
            queryset = queryset.filter((f"{self.field_path}__{lookup}", instant))
        return queryset


def _try_again(run: RunRecord) -> str:
    return f"waits for attempt {try_again(run.pk).attempt}"


@admin.register(RunRecord)
class RunRecordAdmin(ReadOnlyAdmin[RunRecord]):
    list_display = [
        "scheduled_for", "of_what", "agent", state_label, delivery_states, "reason", "lacks", "attempt", "lag_ms",
        "duration_ms", "answer", "finished_at",
    ]  # fmt: skip
    list_select_related = ["job", "job__agent", "scheduled_message__session__agent"]
    list_filter = [
        "state", "attention", value_filter("reason", lambda: sorted(REASONS)),
        ("job__agent", AutocompleteSelectFilter), ("created_at", TimeRange),
        ("not_before", admin.EmptyFieldListFilter),
    ]  # fmt: skip
    search_fields = [
        "=run_id", "=job__id", "=scheduled_message__id", "=session__id", "=session__key", "=session_key", "job__name",
    ]  # fmt: skip
    search_help_text = (
        "Run id, automation or message id, session id or key, or a part of the automation's name"
    )
    ordering = ["-created_at", "-run_id"]
    exclude = ["error_detail"]
    actions = [row_action("try_again", "Try the selected failed runs again", _try_again)]
    panel_fields = {
        "rendered_prompt": "Rendered prompt",
        "prompt_variables": "Prompt variables",
        "snapshot": "What was run",
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[RunRecord]:
        sent = with_deliveries("message__turn_id", OuterRef("turn_id"))
        return super().get_queryset(request).annotate(shown_deliveries=sent)

    @admin.display(description="attention")
    def lacks(self, obj: RunRecord) -> str:
        return obj.attention or "-"

    @admin.display(description="automation or message")
    def of_what(self, obj: RunRecord) -> str:
        if obj.scheduled_message is not None:
            return link(obj.scheduled_message, f"message {obj.scheduled_message}")
        return link(obj.of_job)

    @admin.display(description="agent")
    def agent(self, obj: RunRecord) -> str:
        if obj.scheduled_message is not None:
            return str(obj.scheduled_message.session.agent)
        return str(obj.of_job.agent)

    @admin.display(description="answer or error")
    def answer(self, obj: RunRecord) -> str:
        return (obj.error or obj.response_summary)[:80] or "-"

    def panels(self, obj: RunRecord) -> Iterable[Panel]:
        yield Panel(title="What happened", text=sentence_of(obj, explanation_of(obj.job)), leads=True)
        if obj.error_detail:
            yield Panel(title="Error, for operators", text=obj.error_detail, leads=True)
        yield from super().panels(obj)


@admin.register(ScheduledMessage)
class ScheduledMessageAdmin(ReadOnlyAdmin[ScheduledMessage]):
    list_display = [
        "send_at", "id", linked("session"), "session__agent", "status", "being_sent",
        beginning("message_text", 80, "text"), "sent_at", "last_error",
    ]  # fmt: skip
    list_select_related = ["session", "session__agent"]
    list_filter = ["status", ("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=id", "=session__id", "=session__key"]
    search_help_text = "Id, or the session's id or key"
    ordering = ["-created_at", "-id"]
    actions = [
        row_action(
            "cancel", "Cancel the selected messages", lambda row: cancel_message(row.pk), "is cancelled"
        )
    ]
    panel_fields = {"message_text": "Text"}

    def get_queryset(self, request: HttpRequest) -> QuerySet[ScheduledMessage]:
        claimed = RunRecord.objects.filter(scheduled_message=OuterRef("pk")).exclude(state=RunState.QUEUED)
        return super().get_queryset(request).annotate(claimed=Exists(claimed))

    @admin.display(description="being sent", boolean=True)
    def being_sent(self, obj: ScheduledMessage) -> bool:
        return obj.status == "pending" and bool(getattr(obj, "claimed", False))

    def panels(self, obj: ScheduledMessage) -> Iterable[Panel]:
        yield from super().panels(obj)
        runs = RunRecord.objects.filter(scheduled_message=obj).select_related("turn")
        yield table(
            "Run",
            runs,
            {
                "due (UTC)": lambda run: link(run, run.scheduled_for),
                "state": lambda run: label(run.state),
                "reason": lambda run: run.reason,
                "turn": lambda run: link(run.turn),
                "lag ms": lambda run: run.lag_ms,
                "error": lambda run: run.error,
            },
        )
        if replaced := obj.replaced.order_by("send_at", "pk"):
            rows = [[link(row), row.send_at] for row in replaced]
            yield Panel(title="Replaced", headers=["message", "due (UTC)"], rows=rows)
