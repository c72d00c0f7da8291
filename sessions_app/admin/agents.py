"""Agents and their documents: a person's to edit, one revision per save."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from agent_core.exceptions import PolicyError
from agent_core.policy import TurnPolicy
from sessions_app.admin import above
from sessions_app.admin.base import VerbAdmin, VerbForm, instant
from sessions_app.admin.deletion import TwoStepDelete
from sessions_app.admin.panels import Panel, link, list_of, table
from sessions_app.delete import Blocker
from sessions_app.exceptions import RevisionConflict
from sessions_app.models import Agent, Document, Session
from sessions_app.open import create_agent

LAST = 20  # sessions shown on an agent's page


class AgentForm(VerbForm[Agent]):
    """Settings of an agent; the policy is read as a turn will read it."""

    field_of = {"agent_exists": "name"}

    def clean_policy(self) -> Any:
        policy = self.cleaned_data["policy"] or {}
        try:
            TurnPolicy().merged(policy)
        except (PolicyError, TypeError, AttributeError, ValueError) as error:
            raise forms.ValidationError(f"Not a policy: {error}") from error
        return policy

    def clean_heartbeat(self) -> Any:
        heartbeat = self.cleaned_data["heartbeat"]
        if not isinstance(heartbeat, dict) or "\\u0000" in json.dumps(heartbeat):
            raise forms.ValidationError("The heartbeat is an object without NUL characters.")
        return heartbeat


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
    settings = ["model", "timezone", "engine", "unified_session", "routine_limit", "heartbeat", "policy"]
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
        return create_agent(given["owner"], given["name"], **{name: given[name] for name in self.settings})

    def change(self, request: HttpRequest, obj: Agent, form: Any) -> None:
        if form.changes:
            _revise(Agent.objects.filter(pk=obj.pk), form)

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

    def refusal(self, obj: Agent) -> str:
        return "An agent is not deleted here: its primary session goes only with it, under its lock."

    def blockers(self, obj: Agent) -> Sequence[Blocker]:
        return above.owned_by([obj.pk])


class DocumentForm(VerbForm[Document]):
    """A text and the revision that was read."""


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

    def get_fieldsets(self, request: HttpRequest, obj: Document | None = None) -> Any:
        added = [] if obj is None else ["revision", "updated_at", "seen_revision"]
        return [(None, {"fields": self._timed(["agent", "name", "content", *added])})]

    def get_readonly_fields(self, request: HttpRequest, obj: Document | None = None) -> Any:
        return [] if obj is None else self._timed(["agent", "name", "revision", "updated_at"])

    def create(self, request: HttpRequest, form: Any) -> Document:
        given = form.cleaned_data
        return Document.objects.create(agent=given["agent"], name=given["name"], content=given["content"])

    def change(self, request: HttpRequest, obj: Document, form: Any) -> None:
        if form.changes:
            _revise(Document.objects.filter(pk=obj.pk), form)


def _revise(row: QuerySet[Any], form: VerbForm[Any]) -> None:
    """Write the changed fields over the revision that the person saw, and no other."""
    seen = form.cleaned_data["seen_revision"]
    written = row.filter(revision=seen).update(**form.changes, revision=F("revision") + 1, updated_at=Now())
    if not written:
        raise RevisionConflict
