"""Admin pages of agents and documents, of which each save is one revision, and of hooks and Telegram bots.

Hooks and bots are read-only, without secrets, with actions to switch them on and off. Connections to model providers,
the server's and those of users, can be changed; their secrets are write-only.
"""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from agent_core.connections import PROVIDERS
from interfaces.admin.base import M, ReadOnlyAdmin, VerbAdmin, VerbForm, row_action
from interfaces.admin.deletion import TwoStepDelete, jobs_of
from interfaces.admin.panels import Panel, as_json, cell, link, linked, list_url, spent_panel, used_panel
from interfaces.http.strict_json import read_json
from sessions_app.agents import mcp_servers as mcp_settings
from sessions_app.agents.documents import put_document, view_of, write_document
from sessions_app.agents.edit import new_agent, update_agent
from sessions_app.connections.check import call_once
from sessions_app.connections.edit import (
    LONGEST_SECRET,
    add_connection,
    delete_connection,
    names_using,
    update_connection,
)
from sessions_app.exceptions import SessionsError
from sessions_app.hooks.edit import update_hook
from sessions_app.models import Agent, Connection, Document, Hook, Session, TelegramBot, Turn
from sessions_app.models.agent import DOCUMENTS
from sessions_app.reads.usage import total_of
from sessions_app.sessions.delete import Deletion, delete_agent
from sessions_app.sessions.dependents import Blocker
from sessions_app.spending.caps import budget_of, replacing
from sessions_app.telegram.bots import chats_of, update_bot

LAST = 20  # sessions shown on an agent's page
SETTINGS = (
    "model", "fallback_model", "model_settings", "timezone", "engine", "unified_session", "routine_limit",
    "heartbeat", "policy", "limits", "mcp_servers", "allow_tools", "events_url",
)  # fmt: skip
MERGED = {"policy", "limits", "mcp_servers", "model_settings"}  # objects of which only the given keys change


class StrictJSONField(forms.JSONField):
    """JSON with the same strict parser and bounds as in the API."""

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and value.strip():
            try:
                read_json(value)
            except ValueError as error:
                raise forms.ValidationError(f"This is not valid JSON: {error}.") from None
        return super().to_python(value)

    def bound_data(self, data: Any, initial: Any) -> Any:
        try:
            read_json(data or "null")
        except ValueError:
            return InvalidJSONInput(data)
        return super().bound_data(data, initial)


CAPS_HELP = (
    'Such as <code>{"run": {"tokens": 20000}, "day": {"usd": "1.00", "tokens": 200000}}</code>: caps of a run, a day '
    "or a month, in US dollars or tokens. Empty: none."
)


class ObjectField(StrictJSONField):
    """A JSON object, or None for an empty text."""

    def to_python(self, value: Any) -> Any:
        found = super().to_python(value)
        if found is not None and not isinstance(found, dict):
            raise forms.ValidationError("This must be a JSON object.")
        return found


class CappedForm(VerbForm[M]):
    """A form of a row with caps, which are shown in full: what is not among the given ones is removed."""

    class Meta:
        field_classes = {"limits": ObjectField}
        help_texts = {"limits": CAPS_HELP}

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        stored: Any = self.instance
        if "limits" in self.cleaned_data:
            given = self.cleaned_data["limits"] or {}
            self.cleaned_data["limits"] = replacing(stored.limits, given)
        return cleaned


class AgentForm(CappedForm[Agent]):
    """Settings of an agent. Objects are shown in full, without secrets; `update_agent` merges them."""

    class Meta(CappedForm.Meta):
        field_classes = dict.fromkeys(("heartbeat", *MERGED), ObjectField)

    field_of = {
        "agent_exists": "name",
        "unknown_timezone": "timezone",
        **{f"bad_{name}": name for name in ("name", *SETTINGS)},
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["mcp_servers"] = mcp_settings.visible_servers(self.instance)

    def clean_allow_tools(self) -> Any:
        given = self.cleaned_data["allow_tools"] or []
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise forms.ValidationError("This must be a JSON list of names.")
        return given

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        for name in MERGED & self.cleaned_data.keys():
            given = self.cleaned_data[name] or {}
            removed = getattr(self.instance, name).keys() - given.keys()
            self.cleaned_data[name] = given | dict.fromkeys(removed)  # null removes a key
        return cleaned


class DocumentForm(VerbForm[Document]):
    """A document and the revision that the person saw."""

    field_of = {"document_too_long": "content", "bad_document": "content"}
    name = forms.ChoiceField(choices=[(name, name) for name in DOCUMENTS], widget=UnfoldAdminSelectWidget)
    seen_basis = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        adding = self.instance._state.adding
        if not adding and (now := view_of(self.instance)) is not None:
            self.initial.update({"content": now.content, "seen_basis": now.basis})


@admin.register(Agent)
class AgentAdmin(TwoStepDelete[Agent], VerbAdmin[Agent]):
    form = AgentForm
    list_display = [
        "name", "owner", "engine", "model", "timezone", "unified_session", "revision", "updated_at",
    ]  # fmt: skip
    list_select_related = ["owner"]
    list_filter = ["engine", "unified_session"]
    search_fields = ["name", "owner__username"]
    date_hierarchy = "created_at"
    ordering = ["name", "pk"]
    autocomplete_fields = ["owner"]
    fixed = ["owner", "name"]  # they are the agent's URL in the API
    editable = SETTINGS
    facts = ["revision", "created_at", "updated_at"]

    def get_fields(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        names = super().get_fields(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return names
        return ["shown_servers" if name == "mcp_servers" else name for name in names]

    @admin.display(description="MCP servers")
    def shown_servers(self, obj: Agent) -> str:
        """The servers without the values of their headers, for people without the form, which hides them."""
        return cell(as_json(mcp_settings.visible_servers(obj)))

    def create(self, request: HttpRequest, form: Any) -> Agent:
        given = form.cleaned_data
        return new_agent(given["owner"], given["name"], {name: given[name] for name in SETTINGS})

    def change(self, request: HttpRequest, obj: Agent, form: Any) -> None:
        if form.changes:
            update_agent(obj.pk, form.changes, revision=form.cleaned_data["seen_revision"])

    def panels(self, obj: Agent) -> Iterable[Panel]:
        yield from spent_panel(budget_of("agent", obj.pk, obj.limits, zone=obj.timezone))
        yield used_panel(total_of(Turn.objects.filter(owner_id=obj.owner_id, session__agent=obj)).words)
        documents = Document.objects.filter(agent=obj).order_by("name").defer("content")
        yield Panel(
            title="Documents",
            headers=["name", "revision", "updated (UTC)"],
            rows=[[link(row), row.revision, row.updated_at] for row in documents],
        )
        sessions = Session.objects.filter(agent=obj).order_by("-updated_at")[:LAST]
        yield Panel(
            title=f"Last {LAST} sessions",
            headers=["session", "key", "type", "state", "updated (UTC)"],
            rows=[[link(row), row.key, row.type, row.state, row.updated_at] for row in sessions],
            more=list_url(Session, agent__id__exact=obj.pk),
        )

    def also_deleted(self, obj: Agent) -> str:
        return f"{Session.objects.filter(agent=obj).count()} sessions will be deleted too."

    def blockers(self, obj: Agent) -> Sequence[Blocker]:
        return jobs_of([obj.pk])

    def remove(self, obj: Agent, *, with_dependents: bool) -> Deletion:
        return delete_agent(obj.pk, with_dependents=with_dependents)


@admin.register(Document)
class DocumentAdmin(VerbAdmin[Document]):
    list_display = ["name", "agent", "agent__owner", "revision", "updated_at"]
    list_select_related = ["agent", "agent__owner"]
    list_filter = ["name"]
    search_fields = ["name", "agent__name", "agent__owner__username"]
    ordering = ["agent_id", "name"]
    autocomplete_fields = ["agent"]
    form = DocumentForm
    fixed = ["agent", "name"]
    editable = ["content"]
    form_only = ["seen_revision", "seen_basis"]
    facts = ["revision", "updated_at"]

    def panels(self, obj: Document) -> Iterable[Panel]:
        older = obj.revisions.order_by("-revision").defer("content")
        yield Panel(
            title="Older revisions",
            headers=["revision", "replaced (UTC)"],
            rows=[[link(row, row.revision), row.replaced_at] for row in older],
        )

    def has_delete_permission(self, request: HttpRequest, obj: Document | None = None) -> bool:
        return False  # documents are emptied, as in the API

    def create(self, request: HttpRequest, form: Any) -> Document:
        given = form.cleaned_data
        return put_document(given["agent"].pk, given["name"], given["content"], revision=0)

    def change(self, request: HttpRequest, obj: Document, form: Any) -> None:
        if form.changes:
            given = form.cleaned_data
            write_document(
                obj.agent_id,
                obj.name,
                given["content"],
                revision=given["seen_revision"],
                basis=given["seen_basis"] or None,
            )


def _switch_hook(hook: Hook, *, on: bool) -> None:
    update_hook(hook.pk, {"enabled": on})


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
        row_action(
            name,
            f"{name.capitalize()} the selected hooks",
            partial(_switch_hook, on=is_on),
            f"was {name}d",
        )
        for name, is_on in (("enable", True), ("disable", False))
    ]
    exclude = ["token_sha256", "token_salt"]

    @admin.display(description="session", ordering="session_id")
    def session_link(self, obj: Hook) -> str:
        return link(obj.session) if obj.session else "primary session"


def _switch_bot(bot: TelegramBot, *, on: bool) -> None:
    update_bot(bot.pk, enabled=on)


@admin.register(TelegramBot)
class TelegramBotAdmin(ReadOnlyAdmin[TelegramBot]):
    list_display = ["username", linked("agent"), "telegram_id", "enabled", "last_error", "state_since"]
    list_select_related = ["agent"]
    list_filter = ["enabled", ("agent", AutocompleteSelectFilter)]
    search_fields = ["=telegram_id", "=agent__name", "username"]
    search_help_text = "User name, Telegram's id, agent"
    ordering = ["username", "pk"]
    actions = [
        row_action(
            f"switch_{way}",
            f"Switch the selected bots {way}",
            partial(_switch_bot, on=way == "on"),
            f"was switched {way}",
        )
        for way in ("on", "off")
    ]
    exclude = ["token_ciphertext", "code_sha256", "code_expires_at"]

    def panels(self, obj: TelegramBot) -> Iterable[Panel]:
        yield Panel(
            title="Connected chats",
            headers=["chat", "name", "connected", "blocked"],
            rows=[[each.chat_id, each.name, each.connected_at, each.blocked_at] for each in chats_of(obj)],
        )


MOST_TESTS = 3  # of one request; each may take 30 s
KEPT = "Empty keeps the stored one."
PRICES_HELP = (
    'US dollars for a million tokens by model, such as <code>{"gpt-5": {"input": "1.25", "output": "10"}}</code>; '
    "<code>*</code> is for all others. Empty: list prices."
)


class ConnectionForm(CappedForm[Connection]):
    """Settings of a connection. The secret's field is always shown empty."""

    class Meta(CappedForm.Meta):
        field_classes = dict.fromkeys(("limits", "prices"), ObjectField)
        help_texts = {"limits": CAPS_HELP, "prices": PRICES_HELP}

    field_of = {
        "connection_exists": "name",
        "bad_models": "allowed_models",
        "bad_limits": "limits",
        **{f"bad_{name}": name for name in ("name", "provider", "base_url", "secret", "prices")},
    }
    provider = forms.ChoiceField(choices=[(name, name) for name in PROVIDERS], widget=UnfoldAdminSelectWidget)
    secret = forms.CharField(
        required=False,
        max_length=LONGEST_SECRET,
        widget=forms.PasswordInput,
        help_text=f"The API key. {KEPT}",
    )
    allowed_models = forms.CharField(
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text="Names separated by spaces; empty: all models.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["allowed_models"] = " ".join(self.instance.allowed_models)

    def clean_allowed_models(self) -> list[str]:
        return str(self.cleaned_data["allowed_models"]).split()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as `update_connection` takes them."""
        given = self.cleaned_data
        secret = {"secret": given["secret"]} if given["secret"] else {}
        return secret | {
            "provider": given["provider"],
            "base_url": given["base_url"],
            "models": given["allowed_models"],
            "limits": {"requests_per_minute": given["requests_per_minute"], **given["limits"]},
            "prices": given["prices"] or {},
        }


@admin.register(Connection)
class ConnectionAdmin(VerbAdmin[Connection]):
    form = ConnectionForm
    list_display = ["name", "owner", "provider", "base_url", "last_error", "state_since", "revision"]
    list_select_related = ["owner"]
    list_filter = ["provider"]
    search_fields = ["name", "owner__username"]
    search_help_text = "Name, owner"
    ordering = ["name", "pk"]
    autocomplete_fields = ["owner"]
    actions = ["test"]
    fixed = ["owner", "name"]  # agents name it
    editable = ["provider", "base_url", "allowed_models", "requests_per_minute", "limits", "prices"]
    form_only = ["secret", "seen_revision"]
    facts = ["has_secret", "last_error", "state_since", "revision", "created_at", "updated_at"]

    @admin.display(description="has a secret", boolean=True)
    def has_secret(self, obj: Connection) -> bool:
        return bool(obj.secret_ciphertext)

    def create(self, request: HttpRequest, form: Any) -> Connection:
        return add_connection(form.cleaned_data["owner"], form.cleaned_data["name"], form.settings)

    def change(self, request: HttpRequest, obj: Connection, form: Any) -> None:
        if form.changes:
            update_connection(obj.pk, form.settings, revision=form.cleaned_data["seen_revision"])

    def panels(self, obj: Connection) -> Iterable[Panel]:
        names = [[name] for name in names_using(obj)]
        yield Panel(title="Agents that use it, or whose automations do", headers=["agent"], rows=names)
        yield from spent_panel(budget_of("connection", obj.pk, obj.limits))

    def delete_model(self, request: HttpRequest, obj: Connection) -> None:
        delete_connection(obj.pk)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Connection]) -> None:
        for pk in queryset.values_list("pk", flat=True):
            delete_connection(pk)

    def has_delete_permission(self, request: HttpRequest, obj: Connection | None = None) -> bool:
        in_use = obj is not None and bool(names_using(obj))
        return super().has_delete_permission(request, obj) and not in_use

    @admin.action(description="Call a model of the selected connections once", permissions=["operate"])
    def test(self, request: HttpRequest, queryset: QuerySet[Connection]) -> None:
        for row in queryset.order_by("pk")[:MOST_TESTS]:
            try:
                tested = call_once(row)
            except SessionsError as refusal:
                self.message_user(request, f"{row}: {refusal}.", messages.WARNING)
                continue
            level = messages.WARNING if tested.error else messages.SUCCESS
            self.message_user(request, f"{row}: {tested.error or f'{tested.model} replied.'}", level)
