"""Read-only admin pages of turns, their journals, messages and deliveries, with actions to cancel and send again."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin, messages
from django.db.models import OuterRef, QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from agent_core.exceptions import FINAL_CODES, PASSING_CODES
from interfaces.admin.base import ReadOnlyAdmin, row_action, value_filter
from interfaces.admin.panels import (
    Panel,
    as_json,
    beginning,
    cell,
    delivery_states,
    link,
    linked,
    list_url,
    state_label,
)
from sessions_app.channels import base as channels
from sessions_app.deliveries import outbox
from sessions_app.metrics import TURN_LIMITS
from sessions_app.models import Delivery, DeliveryState, Message, Turn, TurnStep
from sessions_app.queue.cancel import cancel_turn
from sessions_app.reads.selectors import with_deliveries

MOST_STEPS = 200  # shown on a turn's page


def _error_codes() -> list[str]:
    others = {"commit_failed", "internal_error", "invalid_plan"}
    return sorted(FINAL_CODES | PASSING_CODES | TURN_LIMITS | others)


def _cancel(turn: Turn) -> str:
    return "was cancelled" if cancel_turn(turn.pk).finished_at else "was asked to end"


@admin.register(Turn)
class TurnAdmin(ReadOnlyAdmin[Turn]):
    list_display = [
        "id", linked("session"), "session__agent", "kind", state_label, delivery_states, "attempt", "lock_wait_ms",
        "error_code", "queued_at", "finished_at",
    ]  # fmt: skip
    list_select_related = ["session", "session__agent"]
    list_filter = [
        "state", value_filter("error_code", _error_codes), "kind", "lane",
        ("session__agent", AutocompleteSelectFilter), "session__type",
    ]  # fmt: skip
    search_fields = ["=id", "=session__id", "=session__key", "=origin_run"]
    search_help_text = "Turn id, session id or key, run id"
    actions = [row_action("cancel", "Cancel the selected turns", _cancel)]
    panel_fields = {"content": "Input", "error_detail": "Error, for operators", "metadata": "Metadata"}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Turn]:
        sent = with_deliveries("message__turn_id", OuterRef("pk"))
        return super().get_queryset(request).annotate(shown_deliveries=sent)

    def panels(self, obj: Turn) -> Iterable[Panel]:
        yield from super().panels(obj)
        steps = TurnStep.objects.filter(turn=obj).order_by("n")[:MOST_STEPS]
        yield Panel(
            title="Journal",
            headers=["n", "kind", "data", "written (UTC)"],
            rows=[[step.n, step.kind, cell(as_json(step.data)), step.created_at] for step in steps],
            more=list_url(TurnStep, turn__id__exact=obj.pk),
        )
        # the index begins with the session
        written = Message.objects.filter(session_id=obj.session_id, turn=obj).order_by("seq")[:MOST_STEPS]
        yield Panel(
            title="Messages",
            headers=["seq", "role", "content", "calls and results"],
            rows=[
                [
                    link(row, row.seq),
                    row.role,
                    cell(row.content),
                    cell(as_json(row.parts)) if row.parts else "",
                ]
                for row in written
            ],
        )


@admin.register(TurnStep)
class TurnStepAdmin(ReadOnlyAdmin[TurnStep]):
    list_display = ["id", "turn", "n", "kind", "created_at"]
    list_select_related = ["turn"]
    list_filter = ["kind"]
    search_fields = ["=turn__id"]
    search_help_text = "Turn id"
    panel_fields = {"data": "Data"}

    def get_queryset(self, request: HttpRequest) -> QuerySet[TurnStep]:
        return super().get_queryset(request).defer("turn__content", "turn__error_detail", "turn__metadata")


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin[Message]):
    list_display = [
        "id", linked("session"), "seq", "role", beginning("content", 100, "content"), "turn_id", "created_at",
    ]  # fmt: skip
    list_select_related = ["session"]
    list_filter = ["role", ("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=session__id", "=session__key"]
    search_help_text = "Session id or key"
    panel_fields = {
        "content": "Content",
        "model_content": "What the model saw",
        "parts": "Calls and results",
        "metadata": "Metadata",
    }


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin[Delivery]):
    list_display = [
        "id", "session_key", linked("message"), "channel", "address", state_label, "why", "attempts",
        "next_attempt_at", "created_at", "ended_at",
    ]  # fmt: skip
    list_select_related = ["message"]
    list_filter = [
        "state", value_filter("channel", lambda: sorted(channels.known())),
        ("session__agent", AutocompleteSelectFilter),
    ]  # fmt: skip
    search_fields = ["=session__id", "=session__key", "=session_key", "=address", "=idempotency_key"]
    search_help_text = "Session id or key, address, idempotency key"
    actions = [
        row_action(
            "send_again",
            "Send failed deliveries again",
            lambda row: outbox.send_again(row.pk),
            "will be sent again",
        ),
        "close",
    ]
    exclude = ["claim", "hinted_at"]
    panel_fields = {"event": "Event", "meta": "Meta"}

    @admin.display(description="reason or last error")
    def why(self, obj: Delivery) -> str:
        return obj.reason or obj.last_error or "-"

    @admin.action(description="Discard failed deliveries", permissions=["operate"])
    def close(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        closed = Delivery.objects.filter(pk__in=queryset, state=DeliveryState.FAILED).close("closed_by_staff")
        text = f"Discarded {closed} failed deliveries. Others were not changed."
        self.message_user(request, text, messages.SUCCESS)

    def panels(self, obj: Delivery) -> Iterable[Panel]:
        if obj.message:
            yield Panel(title="Message", text=obj.message.content)
        yield from super().panels(obj)
