"""The admin page of hooks: read-only, without their tokens' hashes and salts; hooks can be enabled and disabled."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from interfaces.admin.base import ReadOnlyAdmin
from interfaces.admin.panels import link
from interfaces.admin.unfold import AutocompleteSelectFilter
from sessions_app.hooks.edit import update_hook
from sessions_app.models import Hook


@admin.register(Hook)
class HookAdmin(ReadOnlyAdmin[Hook]):
    list_display = [
        "id", "name", "agent_link", "session_link", "channel", "address", "signed", "as_person", "enabled",
        "last_used_at",
    ]  # fmt: skip
    list_select_related = ["agent", "session"]
    list_filter = ["enabled", "signed", "as_person", ("agent", AutocompleteSelectFilter)]
    search_fields = ["=id", "name", "=address", "=session__id", "=agent__name"]
    search_help_text = "Id or name, address, session id, agent"
    ordering = ["-created_at", "id"]
    actions = ["enable", "disable"]
    exclude = ["token_sha256", "token_salt"]

    @admin.display(description="agent", ordering="agent_id")
    def agent_link(self, obj: Hook) -> str:
        return link(obj.agent)

    @admin.display(description="session", ordering="session_id")
    def session_link(self, obj: Hook) -> str:
        return link(obj.session) if obj.session else "primary session"

    def has_switch_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sessions_app.change_hook")

    @admin.action(description="Enable the selected hooks", permissions=["switch"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Hook]) -> None:
        self._switch(request, queryset, enabled=True)

    @admin.action(description="Disable the selected hooks", permissions=["switch"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Hook]) -> None:
        self._switch(request, queryset, enabled=False)

    def _switch(self, request: HttpRequest, queryset: QuerySet[Hook], *, enabled: bool) -> None:
        def switch_one(hook_id: str) -> str:
            update_hook(hook_id, {"enabled": enabled})
            return "was enabled" if enabled else "was disabled"

        self.for_each(request, queryset, switch_one)
