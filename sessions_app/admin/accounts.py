"""Users, groups and tokens, in the same look. A user goes only when nothing of theirs is left."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import HttpRequest
from rest_framework.authtoken.admin import TokenAdmin as RestTokenAdmin
from rest_framework.authtoken.models import TokenProxy

from sessions_app.admin import above
from sessions_app.admin.deletion import TwoStepDelete
from sessions_app.admin.look import AdminPasswordChangeForm, ModelAdmin, UserChangeForm, UserCreationForm
from sessions_app.delete import Blocker, Deletion
from sessions_app.exceptions import SessionsError
from sessions_app.models import Agent

SHOWN = 6  # characters of a token: enough to tell them apart, too few to use

for model in (User, Group, TokenProxy):
    admin.site.unregister(model)


class StillOwns(SessionsError):
    """The user still has agents."""

    code = "still_owns"


@admin.register(User)
class UserAdmin(TwoStepDelete[User], DjangoUserAdmin[User]):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    def has_module_permission(self, request: HttpRequest) -> bool:
        return DjangoUserAdmin.has_module_permission(self, request)

    def has_view_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return DjangoUserAdmin.has_view_permission(self, request, obj)  # accounts are not sessions' data

    def refusal(self, obj: User) -> str:
        names = ", ".join(Agent.objects.filter(owner=obj).order_by("name").values_list("name", flat=True))
        if not names:
            return ""
        return f"Delete the user's agents first: {names}. To lock the user out, take away “Active” instead."

    def blockers(self, obj: User) -> Sequence[Blocker]:
        return above.owned_by(list(Agent.objects.filter(owner=obj).values_list("pk", flat=True)))

    def remove(self, obj: User, *, delete_automations: bool) -> Deletion:
        with transaction.atomic():
            # the lock keeps out an agent made just now: its foreign key wants the row too
            user = User.objects.select_for_update().filter(pk=obj.pk).first()
            if user is not None and Agent.objects.filter(owner=user).exists():
                raise StillOwns
            if user is not None:
                user.delete()
        return Deletion(deleted=True)


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):  # type: ignore[type-arg]
    pass


@admin.register(TokenProxy)
class TokenAdmin(RestTokenAdmin, ModelAdmin):  # type: ignore[type-arg]
    autocomplete_fields = ["user"]
    list_display = ["beginning", "user", "created"]
    list_select_related = ["user"]

    @admin.display(description="key", ordering="key")
    def beginning(self, obj: TokenProxy) -> str:
        return f"{obj.key[:SHOWN]}…"
