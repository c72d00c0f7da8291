"""The caps of users, and the accounts of all caps: what is spent and what is reserved."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from interfaces.admin.agents import CAPS_HELP, ObjectField
from interfaces.admin.base import ReadOnlyAdmin, VerbAdmin, VerbForm
from interfaces.admin.panels import Panel, link, spent_panel, used_panel
from sessions_app.models import Reservation, Spending, Turn, UserLimits
from sessions_app.reads.usage import total_of
from sessions_app.spending.accounts import set_user_caps
from sessions_app.spending.caps import budget_of, caps_text, replacing


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
    list_display = [
        "key", "spent_tokens", "spent_micro_usd", "reserved_tokens", "reserved_micro_usd", "told", "ends_at",
    ]  # fmt: skip
    search_fields = ["key__startswith"]
    search_help_text = "The beginning of the key, such as `agent:7:day:`"
    ordering = ["key"]


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyAdmin[Reservation]):
    list_display = ["id", "turn_id", "tokens", "micro_usd", "created_at"]
    search_fields = ["=turn_id"]
    panel_fields = {"caps": "Caps"}
