"""Mailbox events, stored events, idempotency keys and workers: what the machinery says of itself. All read-only."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin

from sessions_app.admin.base import BigTable, ReadOnlyAdmin
from sessions_app.admin.look import AutocompleteSelectFilter
from sessions_app.admin.panels import Panel, as_json, verbatim
from sessions_app.models import Event, IdempotencyKey, MailboxEvent, Worker


@admin.register(MailboxEvent)
class MailboxEventAdmin(BigTable[MailboxEvent]):
    list_display = [
        "summary", "event_type", "priority", "target", "source_key", "state", "reason", "created_at",
    ]  # fmt: skip
    list_select_related = ["target"]
    list_filter = [
        "priority",
        ("acknowledged_at", admin.EmptyFieldListFilter),
        ("dropped_at", admin.EmptyFieldListFilter),
        ("target__agent", AutocompleteSelectFilter),
    ]
    search_fields = ["=event_id", "=target__key", "=dedupe_key", "=source_key"]
    search_help_text = "Event id, key of the target or of the source, dedupe key"
    exclude = ["detail", "artifacts"]

    @admin.display(description="state")
    def state(self, obj: MailboxEvent) -> str:
        if obj.acknowledged_at:
            return "acknowledged"
        return "dropped" if obj.dropped_at else "pending"

    def panels(self, obj: MailboxEvent) -> Iterable[Panel]:
        yield verbatim("Detail", obj.detail)
        yield verbatim("Artifacts", as_json(obj.artifacts))


@admin.register(Event)
class EventAdmin(BigTable[Event]):
    list_display = ["id", "xid", "type", "scope", "agent", "session", "turn_id", "run_id", "created_at"]
    list_select_related = ["agent", "session"]
    list_filter = ["type", "scope"]  # the table has no index by agent; search finds a session's
    search_fields = ["=session__id", "=session__key"]
    search_help_text = "Session id or key"
    exclude = ["content"]

    def panels(self, obj: Event) -> Iterable[Panel]:
        yield verbatim("Content", as_json(obj.content))


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin[Worker]):
    list_display = ["__str__", "id", "epoch", "started_at", "heartbeat_at"]
    search_fields = ["host", "=pid"]
    ordering = ["-heartbeat_at"]


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(BigTable[IdempotencyKey]):
    list_display = ["id", "user", "address", "key", "created_at"]
    list_select_related = ["user"]
    search_fields = ["=key", "=user__username"]
    search_help_text = "Key or user name"
