"""The admin page of API tokens: read-only, without their hashes; tokens can be revoked."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from interfaces.admin.base import ReadOnlyAdmin
from interfaces.admin.panels import link
from interfaces.admin.users import is_above
from sessions_app.exceptions import SessionsError
from sessions_app.models import ApiToken
from sessions_app.tokens.issue import revoke_tokens


class NotYours(SessionsError):
    """Only superusers revoke the tokens of staff and superusers."""

    code = "permission_denied"


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin[ApiToken]):
    list_display = [
        "name", "prefix", "user", "shown_scopes", "limit", "created_at", "expires_at", "last_used_at",
    ]  # fmt: skip
    list_select_related = ["user", "agent", "session"]
    search_fields = ["=id", "name", "=user__username", "=session__id", "=agent__name"]
    search_help_text = "Id or name, user, session id, agent"
    ordering = ["-created_at", "id"]
    actions = ["revoke"]
    exclude = ["token_sha256"]

    @admin.display(description="scopes")
    def shown_scopes(self, obj: ApiToken) -> str:
        return ", ".join(obj.scopes)

    @admin.display(description="limited to")
    def limit(self, obj: ApiToken) -> str:
        limited = obj.agent or obj.session
        return link(limited) if limited else "-"

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return admin.ModelAdmin.has_view_permission(self, request, obj)  # not all staff, as with accounts

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sessions_app.delete_apitoken")

    @admin.action(description="Revoke the selected tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        def revoke_one(token_id: str) -> str:
            token = ApiToken.objects.select_related("user").get(pk=token_id)
            if is_above(request, token.user) and token.user_id != request.user.pk:
                raise NotYours
            revoke_tokens(ApiToken.objects.filter(pk=token_id))
            return f"({token.prefix}…) of {token.user} was revoked"

        self.for_each(request, queryset, revoke_one)
