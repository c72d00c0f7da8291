"""The admin pages of hooks and Telegram bots: read-only, without secrets, with actions to switch them on and off."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from interfaces.admin.base import ReadOnlyAdmin, row_action
from interfaces.admin.panels import Panel, link, linked
from sessions_app.hooks.edit import update_hook
from sessions_app.models import Hook, TelegramBot
from sessions_app.telegram.bots import chats_of, update_bot


def _enable(hook: Hook) -> str:
    update_hook(hook.pk, {"enabled": True})
    return "was enabled"


def _disable(hook: Hook) -> str:
    update_hook(hook.pk, {"enabled": False})
    return "was disabled"


@admin.register(Hook)
class HookAdmin(ReadOnlyAdmin[Hook]):
    list_display = [
        "id", "name", linked("agent"), "session_link", "channel", "address", "signed", "as_person", "enabled",
        "last_used_at",
    ]  # fmt: skip
    list_select_related = ["agent", "session"]
    list_filter = ["enabled", "signed", "as_person", ("agent", AutocompleteSelectFilter)]
    search_fields = ["=id", "=address", "=session__id", "=agent__name", "name"]
    search_help_text = "Id or name, address, session id, agent"
    ordering = ["-created_at", "id"]
    actions = [
        row_action("enable", "Enable the selected hooks", _enable),
        row_action("disable", "Disable the selected hooks", _disable),
    ]
    exclude = ["token_sha256", "token_salt"]

    @admin.display(description="session", ordering="session_id")
    def session_link(self, obj: Hook) -> str:
        return link(obj.session) if obj.session else "primary session"


def _switch_on(bot: TelegramBot) -> str:
    update_bot(bot.agent_id, enabled=True)
    return "was switched on"


def _switch_off(bot: TelegramBot) -> str:
    update_bot(bot.agent_id, enabled=False)
    return "was switched off"


@admin.register(TelegramBot)
class TelegramBotAdmin(ReadOnlyAdmin[TelegramBot]):
    list_display = ["username", linked("agent"), "telegram_id", "enabled", "last_error", "state_since"]
    list_select_related = ["agent"]
    list_filter = ["enabled", ("agent", AutocompleteSelectFilter)]
    search_fields = ["=telegram_id", "=agent__name", "username"]
    search_help_text = "User name, Telegram's id, agent"
    ordering = ["username", "pk"]
    actions = [
        row_action("switch_on", "Switch the selected bots on", _switch_on),
        row_action("switch_off", "Switch the selected bots off", _switch_off),
    ]
    exclude = ["token_ciphertext", "code_sha256", "code_expires_at"]

    def panels(self, obj: TelegramBot) -> Iterable[Panel]:
        yield Panel(
            title="Connected chats",
            headers=["chat", "name", "connected", "blocked"],
            rows=[[each.chat_id, each.name, each.connected_at, each.blocked_at] for each in chats_of(obj)],
        )
