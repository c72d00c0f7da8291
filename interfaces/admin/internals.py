"""Read-only admin pages of what turns and processes write: mailbox, events, plans, consents, memory, rate limits."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from interfaces.admin.base import ReadOnlyAdmin, value_filter
from interfaces.admin.panels import Panel, link, linked, state_label
from sessions_app.models import (
    Allowance,
    ConsentQuestion,
    DocumentRevision,
    Event,
    ExecutionState,
    IdempotencyKey,
    MailboxEvent,
    Preference,
    Process,
    TaskState,
    TurnKind,
    Worker,
)


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


@admin.register(TaskState)
class TaskStateAdmin(ReadOnlyAdmin[TaskState]):
    list_display = [linked("session"), "current_goal", "revision", "consolidated_revision", "updated_at"]
    list_display_links = ["current_goal"]
    list_select_related = ["session"]
    list_filter = [("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=session__id", "=session__key"]
    search_help_text = "Session id or key"
    panel_fields = {"open_loops": "Open loops", "important_facts": "Important facts"}


@admin.register(ExecutionState)
class ExecutionStateAdmin(ReadOnlyAdmin[ExecutionState]):
    list_display = ["id", linked("session"), "status", "goal", "question", "source", "updated_at"]
    list_select_related = ["session"]
    list_filter = [
        "status",
        value_filter("source", lambda: TurnKind.values),
        ("session__agent", AutocompleteSelectFilter),
    ]
    search_fields = ["=id", "=session__id", "=session__key"]
    search_help_text = "Id, session id or key"
    panel_fields = {"steps": "Plan", "observations": "Observations"}

    def panels(self, obj: ExecutionState) -> Iterable[Panel]:
        yield from super().panels(obj)
        asked = ConsentQuestion.objects.filter(session_id=obj.session_id, execution=obj.pk)
        yield Panel(
            title="Questions for consent",
            headers=["question", "state", "asked (UTC)", "answered (UTC)"],
            rows=[
                [link(row), row.state, row.asked_at, row.answered_at] for row in asked.order_by("asked_seq")
            ],
        )


@admin.register(ConsentQuestion)
class ConsentQuestionAdmin(ReadOnlyAdmin[ConsentQuestion]):
    """Who allowed which calls, and when."""

    list_display = [
        "id", linked("session"), state_label, "shown_text", "asked_at", "expires_at", "answered_at",
        "answered_by_turn",
    ]  # fmt: skip
    list_select_related = ["session"]
    list_filter = ["state", ("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=id", "=execution", "=session__id", "=session__key"]
    search_help_text = "Id, execution, session id or key"
    fields = [
        "id", "session", "execution", "state", "asked_at", "asked_seq", "asked_by_turn", "run", "asked_of",
        "expires_at",
        "answered_at", "answered_by_turn",
    ]  # fmt: skip
    panel_fields = {"text": "Question", "calls": "Calls"}

    @admin.display(description="question")
    def shown_text(self, obj: ConsentQuestion) -> str:
        return str(obj)

    @admin.display(description="asked by turn")
    def asked_by_turn(self, obj: ConsentQuestion) -> str:
        return str(obj.turn_id)  # the turn may have been deleted

    @admin.display(description="answered by turn")
    def answered_by_turn(self, obj: ConsentQuestion) -> str:
        return str(obj.answered_by_id or "-")


@admin.register(DocumentRevision)
class DocumentRevisionAdmin(ReadOnlyAdmin[DocumentRevision]):
    """Older revisions of documents, to read and to copy from."""

    list_display = ["document_link", "document__agent", "revision", "replaced_at"]
    list_display_links = None
    list_select_related = ["document", "document__agent"]
    search_fields = ["=document__agent__name", "=document__name"]
    search_help_text = "Agent or document"
    panel_fields = {"content": "Content"}

    @admin.display(description="document")
    def document_link(self, obj: DocumentRevision) -> str:
        return link(obj, obj.document.name)


@admin.register(Preference)
class PreferenceAdmin(ReadOnlyAdmin[Preference]):
    list_display = ["agent", "user", "revision", "updated_at"]
    list_select_related = ["agent", "user"]
    list_filter = [("agent", AutocompleteSelectFilter)]
    search_fields = ["=agent__name", "=user__username"]
    search_help_text = "Agent or user"
    ordering = ["-updated_at"]
