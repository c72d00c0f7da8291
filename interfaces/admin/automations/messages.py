"""The admin pages of scheduled messages: read-only, with an action to cancel."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin, messages
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest

from automations.models import RunRecord, RunState, ScheduledMessage
from automations.scheduled_messages import cancel_message
from interfaces.admin.base import instant
from interfaces.admin.big_table import BigTable
from interfaces.admin.panels import Panel, label, link, table_panel, verbatim
from interfaces.admin.unfold import AutocompleteSelectFilter
from sessions_app.exceptions import SessionsError


@admin.register(ScheduledMessage)
class ScheduledMessageAdmin(BigTable[ScheduledMessage]):
    list_display = [
        "send_at", "id", "session_link", "agent", "status", "being_sent", "beginning", "sent_at", "last_error",
    ]  # fmt: skip
    list_select_related = ["session", "session__agent"]
    list_filter = ["status", ("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=id", "=session__id", "=session__key"]
    search_help_text = "Id, or the session's id or key"
    ordering = ["-created_at", "-id"]
    actions = ["cancel"]
    exclude = ["message_text"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[ScheduledMessage]:
        claimed = RunRecord.objects.filter(scheduled_message=OuterRef("pk")).exclude(state=RunState.QUEUED)
        return super().get_queryset(request).annotate(claimed=Exists(claimed))

    @admin.display(description="session", ordering="session_id")
    def session_link(self, obj: ScheduledMessage) -> str:
        return link(obj.session)

    @admin.display(description="agent")
    def agent(self, obj: ScheduledMessage) -> str:
        return str(obj.session.agent)

    @admin.display(description="being sent", boolean=True)
    def being_sent(self, obj: ScheduledMessage) -> bool:
        return obj.status == "pending" and bool(getattr(obj, "claimed", False))

    @admin.display(description="text")
    def beginning(self, obj: ScheduledMessage) -> str:
        return obj.message_text[:80]

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("automations.change_scheduledmessage")

    @admin.action(description="Cancel the selected messages", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[ScheduledMessage]) -> None:
        for message_id in queryset.order_by("pk").values_list("pk", flat=True):
            try:
                cancel_message(message_id)
            except SessionsError as refusal:
                self.message_user(request, f"Message {message_id}: {refusal}", messages.WARNING)
            else:
                self.message_user(request, f"Message {message_id} is cancelled.", messages.SUCCESS)

    def panels(self, obj: ScheduledMessage) -> Iterable[Panel]:
        yield verbatim("Text", obj.message_text)
        runs = RunRecord.objects.filter(scheduled_message=obj).select_related("turn")
        yield table_panel(
            "Run",
            ["due (UTC)", "state", "reason", "turn", "lag ms", "error"],
            [
                [
                    link(run, instant(run.scheduled_for)),
                    label(run.state),
                    run.reason,
                    link(run.turn) if run.turn else "",
                    run.lag_ms,
                    run.error,
                ]
                for run in runs
            ],
        )
        replaced = obj.replaced.order_by("send_at", "pk")
        if replaced:
            yield table_panel(
                "Replaced", ["message", "due (UTC)"], [[link(row), instant(row.send_at)] for row in replaced]
            )
