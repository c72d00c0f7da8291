"""The caps of users, and the accounts of all caps: what is spent and what is reserved."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from agent_core.spending import MICRO, dollars_text
from interfaces.admin.agents import CAPS_HELP, ObjectField
from interfaces.admin.base import ReadOnlyAdmin, VerbAdmin, VerbForm
from interfaces.admin.panels import Panel, link, spent_panel, used_panel
from sessions_app.models import Reservation, Spending, Turn, UserLimits
from sessions_app.reads.usage import total_of
from sessions_app.spending.accounts import set_user_caps
from sessions_app.spending.caps import budget_of, caps_text, replacing

PAGES = {  # of the subjects of caps, by scope
    "agent": "sessions_app_agent",
    "automation": "automations_cronjob",
    "connection": "sessions_app_connection",
    "user": "auth_user",
}


class UserLimitsForm(VerbForm[UserLimits]):
    """The caps of a user, as one object."""

    field_of = {"bad_limits": "limits"}

    class Meta:
        field_classes = {"limits": ObjectField}
        help_texts = {"limits": CAPS_HELP}


def panels_of_user(user_id: int) -> Iterable[Panel]:
    """A user's caps, what is spent of them, and what all agents of the user used."""
    if (stored := UserLimits.objects.filter(pk=user_id).first()) is not None:
        yield Panel(title="Caps", headers=["all"], rows=[[link(stored, caps_text(stored.limits) or "none")]])
        yield from spent_panel(budget_of("user", user_id, stored.limits))
    yield used_panel(total_of(Turn.objects.filter(owner_id=user_id)).words)


@admin.register(UserLimits)
class UserLimitsAdmin(VerbAdmin[UserLimits]):
    form = UserLimitsForm
    list_display = ["user", "limits"]
    list_select_related = ["user"]
    search_fields = ["user__username"]
    ordering = ["user_id"]
    autocomplete_fields = ["user"]
    fixed = ["user"]
    editable = ["limits"]
    form_only = ()

    def create(self, request: HttpRequest, form: Any) -> UserLimits:
        return set_user_caps(form.cleaned_data["user"].pk, form.cleaned_data["limits"] or {})

    def change(self, request: HttpRequest, obj: UserLimits, form: Any) -> None:
        set_user_caps(obj.pk, replacing(obj.limits, form.cleaned_data["limits"] or {}))

    def panels(self, obj: UserLimits) -> Iterable[Panel]:
        return panels_of_user(obj.pk)


@admin.register(Spending)
class SpendingAdmin(ReadOnlyAdmin[Spending]):
    list_display = ["period", "whose", "spent", "reserved", "told", "ends_at"]
    search_fields = ["key__startswith"]
    search_help_text = "The beginning of the key, such as `agent:7:day:`"
    ordering = ["key"]

    @admin.display(description="period")
    def period(self, obj: Spending) -> str:
        return " ".join(obj.key.split(":")[2:]) or obj.key

    @admin.display(description="cap of")
    def whose(self, obj: Spending) -> str:
        scope, _, rest = obj.key.partition(":")
        subject = rest.partition(":")[0]
        if scope not in PAGES or not subject:
            return obj.key
        page = reverse(f"admin:{PAGES[scope]}_change", args=[subject])
        return format_html('<a href="{}">{} {}</a>', page, scope, subject)

    @admin.display(description="spent")
    def spent(self, obj: Spending) -> str:
        return _amounts(obj.spent_tokens, obj.spent_micro_usd)

    @admin.display(description="reserved")
    def reserved(self, obj: Spending) -> str:
        return _amounts(obj.reserved_tokens, obj.reserved_micro_usd)


def _amounts(tokens: int, micro_usd: int) -> str:
    return f"${dollars_text(Decimal(micro_usd) / MICRO)}, {tokens:,} tokens"


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyAdmin[Reservation]):
    list_display = ["id", "turn_id", "tokens", "micro_usd", "created_at"]
    search_fields = ["=turn_id"]
    panel_fields = {"caps": "Caps"}
