"""Deliveries on their way out, sent, withheld and given up. Read-only; a dead letter can be sent again."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from sessions_app import deliver
from sessions_app.admin.base import BigTable
from sessions_app.admin.look import AutocompleteSelectFilter
from sessions_app.admin.panels import Panel, as_json, link, verbatim
from sessions_app.exceptions import SessionsError
from sessions_app.models import Delivery, DeliveryState


@admin.register(Delivery)
class DeliveryAdmin(BigTable[Delivery]):
    list_display = [
        "id", "session_key", "message_link", "channel", "address", "state", "why", "attempts", "next_attempt_at",
        "created_at", "ended_at",
    ]  # fmt: skip
    list_select_related = ["message"]
    list_filter = ["state", "channel", ("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=session__id", "=session_key", "=address", "=idempotency_key"]
    search_help_text = "Session id or key, address, key of the delivery"
    actions = ["send_again", "close"]
    exclude = ["meta", "claim", "hinted_at"]

    @admin.display(description="message")
    def message_link(self, obj: Delivery) -> str:
        return link(obj.message) if obj.message else "-"

    @admin.display(description="reason or last error")
    def why(self, obj: Delivery) -> str:
        return obj.reason or obj.last_error or "-"

    def has_send_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sessions_app.change_delivery")

    @admin.action(description="Send the selected dead letters again", permissions=["send"])
    def send_again(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        for delivery_id in queryset.order_by("id").values_list("id", flat=True):
            try:
                deliver.send_again(delivery_id)
            except SessionsError as refusal:
                self.message_user(request, f"Delivery {delivery_id}: {refusal}.", messages.WARNING)
            else:
                self.message_user(request, f"Delivery {delivery_id} is on its way again.", messages.SUCCESS)

    @admin.action(
        description="Close the selected dead letters: nobody sends them any more", permissions=["send"]
    )
    def close(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        closed = Delivery.objects.filter(pk__in=queryset, state=DeliveryState.FAILED).close("closed_by_staff")
        self.message_user(request, f"{closed} closed; what is no dead letter stays.", messages.SUCCESS)

    def panels(self, obj: Delivery) -> Iterable[Panel]:
        if obj.message:
            yield verbatim("What is delivered", obj.message.content)
        yield verbatim("Meta", as_json(obj.meta))
