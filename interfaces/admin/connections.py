"""The admin page of the server's and users' connections to model providers. Secrets are write-only."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from agent_core.connections import PROVIDERS
from interfaces.admin.agents import CAPS_HELP, CappedForm, ObjectField
from interfaces.admin.base import VerbAdmin
from interfaces.admin.panels import Panel, spent_panel
from sessions_app.connections.check import call_once
from sessions_app.connections.edit import (
    LONGEST_SECRET,
    add_connection,
    delete_connection,
    names_using,
    update_connection,
)
from sessions_app.exceptions import SessionsError
from sessions_app.models import Connection
from sessions_app.spending.caps import budget_of

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
