"""The admin page of Telegram bots: read-only, without tokens; bots can be switched on and off, and deleted."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from interfaces.admin.base import ReadOnlyAdmin
from interfaces.admin.panels import Panel, link, table_panel
from interfaces.admin.unfold import AutocompleteSelectFilter
from sessions_app.models import TelegramBot
from sessions_app.telegram.bots import chats_of, update_bot


@admin.register(TelegramBot)
class TelegramBotAdmin(ReadOnlyAdmin[TelegramBot]):
    list_display = ["username", "agent_link", "telegram_id", "enabled", "last_error", "state_since"]
    list_select_related = ["agent"]
    list_filter = ["enabled", ("agent", AutocompleteSelectFilter)]
    search_fields = ["username", "=telegram_id", "=agent__name"]
    search_help_text = "User name, Telegram's id, agent"
    ordering = ["username", "pk"]
    actions = ["switch_on", "switch_off"]
    exclude = ["token_ciphertext", "code_sha256", "code_expires_at"]

    @admin.display(description="agent", ordering="agent_id")
    def agent_link(self, obj: TelegramBot) -> str:
        return link(obj.agent)

    def panels(self, obj: TelegramBot) -> Iterable[Panel]:
        rows = [[each.chat_id, each.name, each.connected_at, each.blocked_at] for each in chats_of(obj)]
        yield table_panel("Connected chats", ["chat", "name", "connected", "blocked"], rows)

    def has_switch_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sessions_app.change_telegrambot")

    @admin.action(description="Switch the selected bots on", permissions=["switch"])
    def switch_on(self, request: HttpRequest, queryset: QuerySet[TelegramBot]) -> None:
        self._switch(request, queryset, enabled=True)

    @admin.action(description="Switch the selected bots off", permissions=["switch"])
    def switch_off(self, request: HttpRequest, queryset: QuerySet[TelegramBot]) -> None:
        self._switch(request, queryset, enabled=False)

    def _switch(self, request: HttpRequest, queryset: QuerySet[TelegramBot], *, enabled: bool) -> None:
        def switch_one(agent_id: int) -> str:
            update_bot(agent_id, enabled=enabled)
            return "was switched on" if enabled else "was switched off"

        self.for_each(request, queryset, switch_one)
