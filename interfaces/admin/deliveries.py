"""The admin page of deliveries. Read-only; failed deliveries can be sent again or discarded."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from interfaces.admin.big_table import BigTable, ValueFilter
from interfaces.admin.panels import Panel, as_json, link, state_label, verbatim
from interfaces.admin.unfold import AutocompleteSelectFilter
from sessions_app.channels import base as channels
from sessions_app.deliveries import outbox
from sessions_app.models import Delivery, DeliveryState


class ChannelFilter(ValueFilter):
    title, parameter_name = "channel", "channel__exact"

    def values(self) -> Iterable[str]:
        return sorted(channels.known())


@admin.register(Delivery)
class DeliveryAdmin(BigTable[Delivery]):
    list_display = [
        "id", "session_key", "message_link", "channel", "address", state_label, "why", "attempts", "next_attempt_at",
        "created_at", "ended_at",
    ]  # fmt: skip
    list_select_related = ["message"]
    list_filter = ["state", ChannelFilter, ("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=session__id", "=session__key", "=session_key", "=address", "=idempotency_key"]
    search_help_text = "Session id or key, address, idempotency key"
    actions = ["send_again", "close"]
    exclude = ["meta", "event", "claim", "hinted_at"]

    @admin.display(description="message")
    def message_link(self, obj: Delivery) -> str:
        return link(obj.message) if obj.message else "-"

    @admin.display(description="reason or last error")
    def why(self, obj: Delivery) -> str:
        return obj.reason or obj.last_error or "-"

    def has_send_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sessions_app.change_delivery")

    @admin.action(description="Send failed deliveries again", permissions=["send"])
    def send_again(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        def send_one(delivery_id: int) -> str:
            outbox.send_again(delivery_id)
            return "will be sent again"

        self.for_each(request, queryset, send_one)

    @admin.action(description="Discard failed deliveries", permissions=["send"])
    def close(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        closed = Delivery.objects.filter(pk__in=queryset, state=DeliveryState.FAILED).close("closed_by_staff")
        self.message_user(
            request, f"Discarded {closed} failed deliveries. Others were not changed.", messages.SUCCESS
        )

    def panels(self, obj: Delivery) -> Iterable[Panel]:
        if obj.message:
            yield verbatim("Message", obj.message.content)
        if obj.event:
            yield verbatim("Event", as_json(obj.event))
        yield verbatim("Meta", as_json(obj.meta))
