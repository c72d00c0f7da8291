"""Admin pages of agents and documents. Each save is one revision."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest

from interfaces.admin.automations.session_pages import jobs_of
from interfaces.admin.base import VerbAdmin, VerbForm, instant
from interfaces.admin.deletion import TwoStepDelete
from interfaces.admin.panels import Panel, as_json, cell, link, list_url, table_panel
from interfaces.admin.unfold import Select
from interfaces.http.strict_json import read_json
from sessions_app.agents import mcp_servers as mcp_settings
from sessions_app.agents.documents import put_document, view_of, write_document
from sessions_app.agents.edit import new_agent, update_agent
from sessions_app.models import Agent, Document, Session
from sessions_app.models.agent import DOCUMENTS
from sessions_app.sessions.delete import Deletion, delete_agent
from sessions_app.sessions.dependents import Blocker

LAST = 20  # sessions shown on an agent's page
SETTINGS = (
    "model", "fallback_model", "model_settings", "timezone", "engine", "unified_session", "routine_limit",
    "heartbeat", "policy", "mcp_servers", "allow_tools", "events_url",
)  # fmt: skip


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


class AgentForm(VerbForm[Agent]):
    """Settings of an agent. Objects are shown in full, without secrets; `update_agent` merges them."""

    class Meta:
        field_classes = dict.fromkeys(
            ("heartbeat", "policy", "mcp_servers", "model_settings"), StrictJSONField
        )

    field_of = {
        "agent_exists": "name",
        "unknown_timezone": "timezone",
        **{f"bad_{name}": name for name in ("name", *SETTINGS)},
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["mcp_servers"] = mcp_settings.visible_servers(self.instance)

    def clean_mcp_servers(self) -> Any:
        given = _object(self.cleaned_data["mcp_servers"] or {})
        removed = dict.fromkeys(self.instance.mcp_servers.keys() - given.keys())
        return given | removed

    def clean_heartbeat(self) -> Any:
        return _object(self.cleaned_data["heartbeat"])

    def clean_policy(self) -> Any:
        given = _object(self.cleaned_data["policy"] or {})
        removed = dict.fromkeys(self.instance.policy.keys() - given.keys())
        return given | removed  # null removes a key

    def clean_model_settings(self) -> Any:
        given = _object(self.cleaned_data["model_settings"] or {})
        removed = dict.fromkeys(self.instance.model_settings.keys() - given.keys())
        return given | removed  # null removes a key

    def clean_allow_tools(self) -> Any:
        return _names(self.cleaned_data["allow_tools"] or [])


def _names(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise forms.ValidationError("This must be a JSON list of names.")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise forms.ValidationError("This must be a JSON object.")
    return value


class DocumentForm(VerbForm[Document]):
    """A document and the revision that the person saw."""

    field_of = {"document_too_long": "content", "bad_document": "content"}
    name = forms.ChoiceField(choices=[(name, name) for name in DOCUMENTS], widget=Select)
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
    facts = ["revision", "created_at", "updated_at"]

    def get_fieldsets(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        names = [*self.fixed, *SETTINGS]
        if obj is not None and not self.has_change_permission(request, obj):
            names = ["shown_servers" if name == "mcp_servers" else name for name in names]
        return [
            (None, {"fields": names if obj is None else self._timed([*names, *self.facts, "seen_revision"])})
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        return [] if obj is None else self._timed([*self.fixed, *self.facts])

    @admin.display(description="MCP servers")
    def shown_servers(self, obj: Agent) -> str:
        """For people who may only view: they get no form, which would hide the headers."""
        return cell(as_json(mcp_settings.visible_servers(obj)))

    def create(self, request: HttpRequest, form: Any) -> Agent:
        given = form.cleaned_data
        settings = {name: given[name] for name in SETTINGS}
        return new_agent(given["owner"], given["name"], settings)

    def change(self, request: HttpRequest, obj: Agent, form: Any) -> None:
        if form.changes:
            update_agent(obj.pk, form.changes, revision=form.cleaned_data["seen_revision"])

    def panels(self, obj: Agent) -> Iterable[Panel]:
        documents = Document.objects.filter(agent=obj).order_by("name").defer("content")
        yield table_panel(
            "Documents",
            ["name", "revision", "updated (UTC)"],
            [[link(row), row.revision, instant(row.updated_at)] for row in documents],
        )
        sessions = Session.objects.filter(agent=obj).order_by("-updated_at")[:LAST]
        yield table_panel(
            f"Last {LAST} sessions",
            ["session", "key", "type", "state", "updated (UTC)"],
            [[link(row), row.key, row.type, row.state, instant(row.updated_at)] for row in sessions],
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

    def panels(self, obj: Document) -> Iterable[Panel]:
        older = obj.revisions.order_by("-revision").defer("content")
        yield table_panel(
            "Older revisions",
            ["revision", "replaced (UTC)"],
            [[link(row, str(row.revision)), instant(row.replaced_at)] for row in older],
        )

    def has_delete_permission(self, request: HttpRequest, obj: Document | None = None) -> bool:
        return False  # documents are emptied, as in the API

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
