"""The sidebar of the admin, by task, and its icons. Unfold calls these by their names in the settings."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse

GROUPS = {  # by title: name of the link, model, icon
    "People": (
        ("Users", "auth.user", "person"),
        ("Groups", "auth.group", "group"),
        ("Tokens", "sessions_app.apitoken", "key"),
        ("Sessions", "sessions_app.session", "forum"),
        ("Preferences", "sessions_app.preference", "tune"),
    ),
    "Agents": (
        ("Agents", "sessions_app.agent", "smart_toy"),
        ("Documents", "sessions_app.document", "description"),
        ("Hooks", "sessions_app.hook", "webhook"),
        ("Connections", "sessions_app.connection", "key"),
        ("Telegram bots", "sessions_app.telegrambot", "chat"),
    ),
    "Appointments": (
        ("Automations", "automations.cronjob", "event_repeat"),
        ("Runs", "automations.runrecord", "history"),
        ("Scheduled messages", "automations.scheduledmessage", "schedule_send"),
    ),
    "Turns": (
        ("Turns", "sessions_app.turn", "sync_alt"),
        ("Messages", "sessions_app.message", "chat"),
        ("Plans", "sessions_app.executionstate", "account_tree"),
        ("Questions for consent", "sessions_app.consentquestion", "help"),
    ),
    "Deliveries": (
        ("Deliveries", "sessions_app.delivery", "send"),
        ("Mailboxes", "sessions_app.mailboxevent", "inbox"),
    ),
    "Internals": (
        ("Processes", "sessions_app.process", "dns"),
        ("Workers", "sessions_app.worker", "memory"),
        ("Journal steps", "sessions_app.turnstep", "list"),
        ("Events", "sessions_app.event", "bolt"),
        ("Task states", "sessions_app.taskstate", "psychology"),
        ("Document revisions", "sessions_app.documentrevision", "restore_page"),
        ("Idempotency keys", "sessions_app.idempotencykey", "fingerprint"),
        ("Rate limits", "sessions_app.allowance", "speed"),
    ),
}


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """The groups of links, without those to lists that the person may not view."""
    home = {"title": "Dashboard", "icon": "monitoring", "link": reverse("admin:index")}
    groups: list[dict[str, Any]] = [{"items": [home]}]
    for title, entries in GROUPS.items():
        items = [
            {"title": name, "icon": symbol, "link": _list_of(model)}
            for name, model, symbol in entries
            if admin.site.get_model_admin(apps.get_model(model)).has_view_permission(request)
        ]
        if items:
            groups.append({"title": title, "separator": True, "items": items})
    return groups


def _list_of(model: str) -> str:
    return reverse(f"admin:{model.replace('.', '_')}_changelist")


def icon(_request: HttpRequest) -> str:
    """The address of Rondo's icon."""
    return static("rondo/icon.svg")


def script(_request: HttpRequest) -> str:
    """The address of the admin's own script."""
    return static("rondo/admin.js")


def stylesheet(_request: HttpRequest) -> str:
    """The address of the admin's own styles."""
    return static("rondo/admin.css")
