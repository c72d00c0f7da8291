"""Read-only admin pages of task states, executions, consents, document revisions and preferences."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin

from interfaces.admin.base import instant
from interfaces.admin.big_table import BigTable, ValueFilter
from interfaces.admin.panels import Panel, as_json, link, session_link, state_label, table_panel, verbatim
from interfaces.admin.unfold import AutocompleteSelectFilter
from sessions_app.models import (
    ConsentQuestion,
    DocumentRevision,
    ExecutionState,
    Preference,
    TaskState,
    TurnKind,
)


class SourceFilter(ValueFilter):
    title, parameter_name = "source", "source__exact"

    def values(self) -> Iterable[str]:
        return TurnKind.values


@admin.register(TaskState)
class TaskStateAdmin(BigTable[TaskState]):
    list_display = [session_link, "current_goal", "revision", "consolidated_revision", "updated_at"]
    list_display_links = ["current_goal"]
    list_select_related = ["session"]
    list_filter = [("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=session__id", "=session__key"]
    search_help_text = "Session id or key"
    exclude = ["open_loops", "important_facts"]

    def panels(self, obj: TaskState) -> Iterable[Panel]:
        yield verbatim("Open loops", as_json(obj.open_loops))
        yield verbatim("Important facts", as_json(obj.important_facts))


@admin.register(ExecutionState)
class ExecutionStateAdmin(BigTable[ExecutionState]):
    list_display = ["id", session_link, "status", "goal", "question", "source", "updated_at"]
    list_select_related = ["session"]
    list_filter = ["status", SourceFilter, ("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=id", "=session__id", "=session__key"]
    search_help_text = "Id, session id or key"
    exclude = ["steps", "observations"]

    def panels(self, obj: ExecutionState) -> Iterable[Panel]:
        yield verbatim("Plan", as_json(obj.steps))
        yield verbatim("Observations", as_json(obj.observations))
        asked = ConsentQuestion.objects.filter(session_id=obj.session_id, execution=obj.pk).order_by(
            "asked_seq"
        )
        yield table_panel(
            "Questions for consent",
            ["question", "state", "asked (UTC)", "answered (UTC)"],
            [[link(row), row.state, instant(row.asked_at), instant(row.answered_at)] for row in asked],
        )


@admin.register(ConsentQuestion)
class ConsentQuestionAdmin(BigTable[ConsentQuestion]):
    """Who allowed which calls, and when."""

    list_display = [
        "id", session_link, state_label, "shown_text", "asked_at", "answered_at", "answered_by_turn",
    ]  # fmt: skip
    list_select_related = ["session"]
    list_filter = ["state", ("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=id", "=execution", "=session__id", "=session__key"]
    search_help_text = "Id, execution, session id or key"
    fields = [
        "id", "session", "execution", "state", "asked_at", "asked_seq", "asked_by_turn", "answered_at",
        "answered_by_turn",
    ]  # fmt: skip

    @admin.display(description="question")
    def shown_text(self, obj: ConsentQuestion) -> str:
        return str(obj)

    @admin.display(description="asked by turn")
    def asked_by_turn(self, obj: ConsentQuestion) -> str:
        return str(obj.turn_id)  # the turn may have been deleted

    @admin.display(description="answered by turn")
    def answered_by_turn(self, obj: ConsentQuestion) -> str:
        return str(obj.answered_by_id or "-")

    def panels(self, obj: ConsentQuestion) -> Iterable[Panel]:
        yield verbatim("Question", obj.text)
        yield verbatim("Calls", as_json(obj.calls))


@admin.register(DocumentRevision)
class DocumentRevisionAdmin(BigTable[DocumentRevision]):
    """Older revisions of documents, to read and to copy from."""

    list_display = ["document_link", "agent", "revision", "replaced_at"]
    list_display_links = None
    list_select_related = ["document", "document__agent"]
    search_fields = ["=document__agent__name", "=document__name"]
    search_help_text = "Agent or document"
    exclude = ["content"]

    @admin.display(description="document")
    def document_link(self, obj: DocumentRevision) -> str:
        return link(obj, obj.document.name)

    @admin.display(description="agent")
    def agent(self, obj: DocumentRevision) -> str:
        return str(obj.document.agent)

    def panels(self, obj: DocumentRevision) -> Iterable[Panel]:
        yield verbatim("Content", obj.content)


@admin.register(Preference)
class PreferenceAdmin(BigTable[Preference]):
    list_display = ["agent", "user", "revision", "updated_at"]
    list_select_related = ["agent", "user"]
    list_filter = [("agent", AutocompleteSelectFilter)]
    search_fields = ["=agent__name", "=user__username"]
    search_help_text = "Agent or user"
    ordering = ["-updated_at"]
