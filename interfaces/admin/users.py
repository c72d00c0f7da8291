"""Admin pages of users, groups and API tokens, of the caps of users, and of what is spent of all caps.

A user can be deleted only when no agent of theirs is left.

Only superusers may give rights, or change what would give somebody rights: groups, and the accounts, passwords and
tokens of staff and superusers.
"""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import ReadOnlyPasswordHashWidget
from django.contrib.auth.hashers import is_password_usable
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from agent_core.spending import MICRO, dollars_text
from interfaces.admin.agents import CappedForm
from interfaces.admin.base import PageAdmin, ReadOnlyAdmin, VerbAdmin
from interfaces.admin.deletion import TwoStepDelete, jobs_of
from interfaces.admin.panels import Panel, link, spent_panel, used_panel
from sessions_app.agents.zones import zone_of
from sessions_app.exceptions import SessionsError
from sessions_app.models import Agent, ApiToken, Reservation, Spending, Turn, UserLimits
from sessions_app.reads.usage import total_of
from sessions_app.sessions.delete import Blocker, Deletion
from sessions_app.spending.accounts import set_user_caps
from sessions_app.spending.caps import budget_of, caps_text
from sessions_app.tokens.issue import revoke_tokens

PAGES = {  # of the subjects of caps, by scope
    "agent": "sessions_app_agent",
    "automation": "automations_cronjob",
    "connection": "sessions_app_connection",
    "user": "auth_user",
}


class UserLimitsForm(CappedForm[UserLimits]):
    """The caps of a user, as one object."""

    field_of = {"bad_limits": "limits"}


def panels_of_user(user_id: int) -> Iterable[Panel]:
    """A user's time zone and caps, what is spent of them, and what all agents of the user used."""
    yield Panel(title="Settings", headers=["time zone"], rows=[[zone_of(user_id) or "not known"]])
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
        return set_user_caps(form.cleaned_data["user"].pk, form.cleaned_data["limits"])

    def change(self, request: HttpRequest, obj: UserLimits, form: Any) -> None:
        set_user_caps(obj.pk, form.cleaned_data["limits"])

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


TIMES = ("last_login", "date_joined")
RIGHTS = ("is_staff", "is_superuser", "groups", "user_permissions")

for model in (User, Group):
    admin.site.unregister(model)


def is_superuser(request: HttpRequest) -> bool:
    """Whether the person who makes the request is an active superuser. Only those may give rights to accounts."""
    return bool(request.user.is_active and request.user.is_superuser)


def is_above(request: HttpRequest, user: User | None) -> bool:
    """Whether the account has rights that the person lacks, and could gain by controlling it."""
    return user is not None and (user.is_staff or user.is_superuser) and not is_superuser(request)


class StillOwns(SessionsError):
    """The user still has agents."""

    code = "still_owns"


class PasswordState(ReadOnlyPasswordHashWidget):
    """Says whether there is a password, and nothing of its hash."""

    # Pages of Unfold ask for this and for `summary`, which Django 6.1 has no more; they would show the whole hash.
    read_only = True

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        exists = bool(value) and is_password_usable(value)
        context = super().get_context(name, value, attrs)
        return context | {"summary": [{"label": "A password is set." if exists else "No password is set."}]}


class AccountForm(UserChangeForm):  # type: ignore[misc]  # it has no annotations
    """Unfold's form of a user."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.fields["password"].widget = PasswordState()


@admin.register(User)
class UserAdmin(TwoStepDelete[User], DjangoUserAdmin[User]):
    is_open_to_staff = False
    form = AccountForm
    add_form = UserCreationForm
    add_fieldsets = DjangoUserAdmin.add_fieldsets  # Unfold's is empty
    change_password_form = AdminPasswordChangeForm

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and not is_above(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not is_above(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        fixed = () if is_superuser(request) else RIGHTS
        return [*super().get_readonly_fields(request, obj), *TIMES, *fixed]

    def panels(self, obj: User) -> Iterable[Panel]:
        return panels_of_user(obj.pk)

    def refusal(self, obj: User) -> str:
        names = ", ".join(Agent.objects.filter(owner=obj).order_by("name").values_list("name", flat=True))
        if not names:
            return ""
        return f"Delete the user's agents first: {names}. To lock the user out, take away “Active” instead."

    def blockers(self, obj: User) -> Sequence[Blocker]:
        return jobs_of(list(Agent.objects.filter(owner=obj).values_list("pk", flat=True)))

    def remove(self, obj: User, *, with_dependents: bool) -> Deletion:
        with transaction.atomic():
            # the lock keeps out a new agent, whose foreign key needs the row
            user = User.objects.select_for_update().filter(pk=obj.pk).first()
            if user is not None and Agent.objects.filter(owner=user).exists():
                raise StillOwns
            if user is not None:
                user.delete()
        return Deletion(deleted=True)


@admin.register(Group)
class GroupAdmin(PageAdmin[Group], DjangoGroupAdmin):
    """Only superusers change groups: a change affects the rights of the members."""

    is_open_to_staff = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return is_superuser(request)


class NotYours(SessionsError):
    """Only superusers revoke the tokens of staff and superusers."""

    code = "permission_denied"


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin[ApiToken]):
    is_open_to_staff = False
    list_display = [
        "name", "prefix", "user", "shown_scopes", "limit", "created_at", "expires_at", "last_used_at",
    ]  # fmt: skip
    list_select_related = ["user", "agent", "session"]
    search_fields = ["=id", "=user__username", "=session__id", "=agent__name", "name"]
    search_help_text = "Id or name, user, session id, agent"
    ordering = ["-created_at", "id"]
    actions = ["revoke"]
    exclude = ["token_sha256"]

    @admin.display(description="scopes")
    def shown_scopes(self, obj: ApiToken) -> str:
        return ", ".join(obj.scopes)

    @admin.display(description="limited to")
    def limit(self, obj: ApiToken) -> str:
        return link(obj.agent or obj.session)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sessions_app.delete_apitoken")

    @admin.action(description="Revoke the selected tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        def revoke_one(token: ApiToken) -> str:
            if is_above(request, token.user) and token.user_id != request.user.pk:
                raise NotYours
            revoke_tokens(ApiToken.objects.filter(pk=token.pk))
            return f"({token.prefix}…) of {token.user} was revoked"

        self.for_each(request, queryset, revoke_one)
