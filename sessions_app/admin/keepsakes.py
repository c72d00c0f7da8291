"""What turns leave behind beside messages: what sessions hold on to. Read-only."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin

from sessions_app.admin.base import BigTable
from sessions_app.admin.look import AutocompleteSelectFilter
from sessions_app.admin.panels import Panel, as_json, link, verbatim
from sessions_app.models import ExecutionState, Preference, TaskState


@admin.register(TaskState)
class TaskStateAdmin(BigTable[TaskState]):
    list_display = ["session_link", "current_goal", "revision", "consolidated_revision", "updated_at"]
    list_select_related = ["session"]
    list_filter = [("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=session__id", "=session__key"]
    search_help_text = "Session id or key"
    ordering = ["-updated_at"]
    exclude = ["open_loops", "important_facts"]

    @admin.display(description="session", ordering="session_id")
    def session_link(self, obj: TaskState) -> str:
        return link(obj.session)

    def panels(self, obj: TaskState) -> Iterable[Panel]:
        yield verbatim("Open loops", as_json(obj.open_loops))
        yield verbatim("Important facts", as_json(obj.important_facts))


@admin.register(ExecutionState)
class ExecutionStateAdmin(BigTable[ExecutionState]):
    list_display = ["id", "session_link", "status", "goal", "question", "source", "updated_at"]
    list_select_related = ["session"]
    list_filter = ["status", "source", ("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=id", "=session__id", "=session__key"]
    search_help_text = "Id, session id or key"
    exclude = ["steps", "observations"]

    @admin.display(description="session", ordering="session_id")
    def session_link(self, obj: ExecutionState) -> str:
        return link(obj.session)

    def panels(self, obj: ExecutionState) -> Iterable[Panel]:
        yield verbatim("Plan", as_json(obj.steps))
        yield verbatim("Observations", as_json(obj.observations))


@admin.register(Preference)
class PreferenceAdmin(BigTable[Preference]):
    list_display = ["agent", "user", "revision", "updated_at"]
    list_select_related = ["agent", "user"]
    list_filter = [("agent", AutocompleteSelectFilter)]
    search_fields = ["=agent__name", "=user__username"]
    search_help_text = "Agent or user"
    ordering = ["-updated_at"]
