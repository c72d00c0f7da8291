"""Read-only admin pages of mailbox events, events, idempotency keys, rate limits and processes."""

from __future__ import annotations

from django.contrib import admin
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from interfaces.admin.base import ReadOnlyAdmin
from interfaces.admin.panels import linked
from sessions_app.models import Allowance, Event, IdempotencyKey, MailboxEvent, Process, Worker


@admin.register(MailboxEvent)
class MailboxEventAdmin(ReadOnlyAdmin[MailboxEvent]):
    list_display = [
        "__str__", "event_type", "priority", "target", "source_key", "state", "reason", linked("acknowledged_by"),
        "created_at",
    ]  # fmt: skip
    list_select_related = ["target", "acknowledged_by"]
    list_filter = [
        "priority",
        ("acknowledged_at", admin.EmptyFieldListFilter),
        ("dropped_at", admin.EmptyFieldListFilter),
        ("target__agent", AutocompleteSelectFilter),
    ]
    search_fields = ["=target__id", "=event_id", "=target__key", "=dedupe_key", "=source_key"]
    search_help_text = "Event id, id or key of the target, key of the source, dedupe key"
    panel_fields = {"detail": "Detail", "artifacts": "Artifacts"}

    @admin.display(description="state")
    def state(self, obj: MailboxEvent) -> str:
        if obj.acknowledged_at:
            return "acknowledged"
        return "dropped" if obj.dropped_at else "pending"


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin[Event]):
    list_display = ["id", "xid", "type", "scope", "agent", "session", "turn_id", "run_id", "created_at"]
    list_select_related = ["agent", "session"]
    list_filter = ["type", "scope"]  # no filter by agent, which has no index; search finds a session's events
    search_fields = ["=session__id", "=session__key"]
    search_help_text = "Session id or key"
    panel_fields = {"content": "Content"}


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin[Worker]):
    list_display = ["__str__", "id", "epoch", "started_at", "heartbeat_at"]
    search_fields = ["host", "=pid"]
    ordering = ["-heartbeat_at"]


@admin.register(Process)
class ProcessAdmin(ReadOnlyAdmin[Process]):
    list_display = ["__str__", "kind", "address", "version", "started_at", "seen_at"]
    list_filter = ["kind"]
    search_fields = ["host", "=pid"]
    ordering = ["-seen_at"]


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(ReadOnlyAdmin[IdempotencyKey]):
    list_display = ["id", "user", "address", "key", "created_at"]
    list_select_related = ["user"]
    search_fields = ["=key", "=user__username"]
    search_help_text = "Key or user name"


@admin.register(Allowance)
class AllowanceAdmin(ReadOnlyAdmin[Allowance]):
    list_display = ["key", "full_at"]
    search_fields = ["key__startswith"]
    search_help_text = "The beginning of the key: `user:<id>`, `hook:<id>` or `address:<network>`"
