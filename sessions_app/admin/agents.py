"""Agents and their documents: a person's to edit, one revision per save."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from sessions_app import mcp_settings
from sessions_app.admin import above
from sessions_app.admin.base import VerbAdmin, VerbForm, instant
from sessions_app.admin.deletion import TwoStepDelete
from sessions_app.admin.look import Select
from sessions_app.admin.panels import Panel, link, list_of, table
from sessions_app.agents import new_agent, put_document, update_agent, write_document
from sessions_app.delete import Blocker, Deletion, delete_agent
from sessions_app.documents import shown
from sessions_app.models import Agent, Document, Session
from sessions_app.selectors import DOCUMENTS

LAST = 20  # sessions shown on an agent's page


class AgentForm(VerbForm[Agent]):
    """Settings of an agent. Its objects are shown whole, without secrets; the verb merges them."""

    field_of = {
        "agent_exists": "name",
        "unknown_timezone": "timezone",
        **{
            f"bad_{name}": name
            for name in ("name", "model", "engine", "routine_limit", "heartbeat", "policy", "mcp_servers")
        },
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["mcp_servers"] = mcp_settings.shown(self.instance)

    def clean_mcp_servers(self) -> Any:
        given = _object(self.cleaned_data["mcp_servers"] or {})
        removed = dict.fromkeys(self.instance.mcp_servers.keys() - given.keys())
        return given | removed

    def clean_heartbeat(self) -> Any:
        return _object(self.cleaned_data["heartbeat"])

    def clean_policy(self) -> Any:
        given = _object(self.cleaned_data["policy"] or {})
        removed = dict.fromkeys(self.instance.policy.keys() - given.keys())
        return given | removed  # null is how the verb is told to remove a key


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise forms.ValidationError("This is not a JSON object.")
    return value


class DocumentForm(VerbForm[Document]):
    """A text and the revision that was read."""

    field_of = {"document_too_long": "content", "bad_document": "content"}
    name = forms.ChoiceField(choices=[(name, name) for name in DOCUMENTS], widget=Select)
    seen_basis = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        adding = self.instance._state.adding
        if not adding and (now := shown(self.instance)) is not None:
            self.initial.update({"content": now.content, "seen_basis": now.basis})


@admin.register(Agent)
class AgentAdmin(TwoStepDelete[Agent], VerbAdmin[Agent]):
    form = AgentForm
    list_display = [
        "name",
        "owner",
        "engine",
        "model",
        "timezone",
        "unified_session",
        "revision",
        "updated_at",
    ]
    list_select_related = ["owner"]
    list_filter = ["engine", "unified_session"]
    search_fields = ["name", "owner__username"]
    date_hierarchy = "created_at"
    ordering = ["name", "pk"]
    autocomplete_fields = ["owner"]
    settings = [
        "model",
        "timezone",
        "engine",
        "unified_session",
        "routine_limit",
        "heartbeat",
        "policy",
        "mcp_servers",
    ]
    fixed = ["owner", "name"]  # the API's address of the agent
    facts = ["revision", "created_at", "updated_at"]

    def get_fieldsets(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        names = [*self.fixed, *self.settings]
        return [
            (None, {"fields": names if obj is None else self._timed([*names, *self.facts, "seen_revision"])})
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        return [] if obj is None else self._timed([*self.fixed, *self.facts])

    def create(self, request: HttpRequest, form: Any) -> Agent:
        given = form.cleaned_data
        settings = {name: given[name] for name in self.settings}
        return new_agent(given["owner"], given["name"], settings)

    def change(self, request: HttpRequest, obj: Agent, form: Any) -> None:
        if form.changes:
            update_agent(obj.pk, form.changes, revision=form.cleaned_data["seen_revision"])

    def panels(self, obj: Agent) -> Iterable[Panel]:
        documents = Document.objects.filter(agent=obj).order_by("name").defer("content")
        yield table(
            "Documents",
            ["name", "revision", "updated (UTC)"],
            [[link(row), row.revision, instant(row.updated_at)] for row in documents],
        )
        sessions = Session.objects.filter(agent=obj).order_by("-updated_at")[:LAST]
        yield table(
            f"Last {LAST} sessions",
            ["session", "key", "type", "state", "updated (UTC)"],
            [[link(row), row.key, row.type, row.state, instant(row.updated_at)] for row in sessions],
            more=list_of(Session, agent__id__exact=obj.pk),
        )

    def holds(self, obj: Agent) -> str:
        return f"{Session.objects.filter(agent=obj).count()} sessions belong to it."

    def blockers(self, obj: Agent) -> Sequence[Blocker]:
        return above.owned_by([obj.pk])

    def remove(self, obj: Agent, *, delete_automations: bool) -> Deletion:
        return delete_agent(obj.pk, delete_automations=delete_automations)


@admin.register(Document)
class DocumentAdmin(VerbAdmin[Document]):
    list_display = ["name", "agent", "owner", "revision", "updated_at"]
    list_select_related = ["agent", "agent__owner"]
    list_filter = ["name"]
    search_fields = ["name", "agent__name", "agent__owner__username"]
    ordering = ["agent_id", "name"]
    autocomplete_fields = ["agent"]
    form = DocumentForm

    @admin.display(description="owner")
    def owner(self, obj: Document) -> str:
        return str(obj.agent.owner)

    def has_delete_permission(self, request: HttpRequest, obj: Document | None = None) -> bool:
        return False  # a document is emptied, as in the API

    def get_fieldsets(self, request: HttpRequest, obj: Document | None = None) -> Any:
        added = [] if obj is None else ["revision", "updated_at", "seen_revision", "seen_basis"]
        return [(None, {"fields": self._timed(["agent", "name", "content", *added])})]

    def get_readonly_fields(self, request: HttpRequest, obj: Document | None = None) -> Any:
        return [] if obj is None else self._timed(["agent", "name", "revision", "updated_at"])

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
