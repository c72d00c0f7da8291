"""Read-only admin pages of turns, their journals and messages. Turns can be cancelled."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin
from django.db.models import OuterRef, QuerySet
from django.http import HttpRequest

from agent_core.exceptions import FINAL_CODES, PASSING_CODES
from interfaces.admin.base import instant
from interfaces.admin.big_table import BigTable, ValueFilter
from interfaces.admin.panels import (
    Panel,
    as_json,
    cell,
    link,
    list_url,
    sent_as_line,
    session_link,
    state_label,
    table_panel,
    verbatim,
)
from interfaces.admin.unfold import AutocompleteSelectFilter
from sessions_app.metrics import TURN_LIMITS
from sessions_app.models import Message, Turn, TurnStep
from sessions_app.queue.cancel import cancel_turn
from sessions_app.reads.selectors import with_deliveries

MOST_STEPS = 200  # shown on a turn's page


class ErrorFilter(ValueFilter):
    title, parameter_name = "error code", "error_code__exact"

    def values(self) -> Iterable[str]:
        return sorted(
            FINAL_CODES | PASSING_CODES | TURN_LIMITS | {"commit_failed", "internal_error", "invalid_plan"}
        )


@admin.register(Turn)
class TurnAdmin(BigTable[Turn]):
    list_display = [
        "id", session_link, "agent", "kind", state_label, "delivered", "attempt", "lock_wait_ms", "error_code",
        "queued_at", "finished_at",
    ]  # fmt: skip
    list_select_related = ["session", "session__agent"]
    list_filter = [
        "state", ErrorFilter, "kind", "lane", ("session__agent", AutocompleteSelectFilter), "session__type",
    ]  # fmt: skip
    bounded_by, read_by_index = "id", ("session__id__exact",)
    search_fields = ["=id", "=session__id", "=session__key", "=origin_run"]
    search_help_text = "Turn id, session id or key, run id"
    actions = ["cancel"]
    exclude = ["content", "metadata", "error_detail"]

    @admin.display(description="agent")
    def agent(self, obj: Turn) -> str:
        return str(obj.session.agent)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Turn]:
        return (
            super()
            .get_queryset(request)
            .annotate(shown_deliveries=with_deliveries("message__turn_id", OuterRef("pk")))
        )

    @admin.display(description="delivery")
    def delivered(self, obj: Turn) -> str:
        return sent_as_line(obj)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sessions_app.change_turn")

    @admin.action(description="Cancel the selected turns", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Turn]) -> None:
        def cancel_one(turn_id: int) -> str:
            return "was cancelled" if cancel_turn(turn_id).finished_at else "was asked to end"

        self.for_each(request, queryset, cancel_one)

    def panels(self, obj: Turn) -> Iterable[Panel]:
        yield verbatim("Input", obj.content)
        if obj.error_detail:
            yield verbatim("Error, for operators", obj.error_detail)
        steps = TurnStep.objects.filter(turn=obj).order_by("n")[:MOST_STEPS]
        yield table_panel(
            "Journal",
            ["n", "kind", "data", "written (UTC)"],
            [[step.n, step.kind, cell(as_json(step.data)), instant(step.created_at)] for step in steps],
            more=list_url(TurnStep, turn__id__exact=obj.pk),
        )
        # the index begins with the session
        messages = Message.objects.filter(session_id=obj.session_id, turn=obj).order_by("seq")[:MOST_STEPS]
        yield table_panel(
            "Messages",
            ["seq", "role", "content", "calls and results"],
            [
                [
                    link(row, str(row.seq)),
                    row.role,
                    cell(row.content),
                    cell(as_json(row.parts)) if row.parts else "",
                ]
                for row in messages
            ],
        )
        yield verbatim("Metadata", as_json(obj.metadata))


@admin.register(TurnStep)
class TurnStepAdmin(BigTable[TurnStep]):
    list_display = ["id", "turn", "n", "kind", "created_at"]
    list_select_related = ["turn"]
    list_filter = ["kind"]
    search_fields = ["=turn__id"]
    search_help_text = "Turn id"
    exclude = ["data"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[TurnStep]:
        return super().get_queryset(request).defer("turn__content", "turn__error_detail", "turn__metadata")

    def panels(self, obj: TurnStep) -> Iterable[Panel]:
        yield verbatim("Data", as_json(obj.data))


@admin.register(Message)
class MessageAdmin(BigTable[Message]):
    list_display = ["id", session_link, "seq", "role", "shown_content", "turn_id", "created_at"]
    list_select_related = ["session"]
    list_filter = ["role", ("session__agent", AutocompleteSelectFilter)]
    search_fields = ["=session__id", "=session__key"]
    search_help_text = "Session id or key"
    exclude = ["content", "model_content", "parts", "metadata"]

    @admin.display(description="content")
    def shown_content(self, obj: Message) -> str:
        return obj.content[:100]

    def panels(self, obj: Message) -> Iterable[Panel]:
        yield verbatim("Content", obj.content)
        if obj.model_content is not None:
            yield verbatim("What the model saw", obj.model_content)
        yield verbatim("Calls and results", as_json(obj.parts))
        yield verbatim("Metadata", as_json(obj.metadata))
