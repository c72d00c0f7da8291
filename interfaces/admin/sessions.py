"""Admin pages of sessions, which people open, rename, archive and delete, and of what is in them, which is read-only:
turns, their journals, messages and deliveries, with actions to cancel and to send again.
"""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Case, CharField, Exists, OuterRef, Q, QuerySet, Value, When
from django.http import HttpRequest
from django.utils.html import format_html
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.widgets import UnfoldAdminTextInputWidget

from automations.models import CronJob, ScheduledMessage
from automations.schedules.describe import describe_job
from interfaces.admin.base import ReadOnlyAdmin, VerbAdmin, VerbForm, clean_line, row_action, value_filter
from interfaces.admin.deletion import TwoStepDelete
from interfaces.admin.panels import (
    Panel,
    as_json,
    beginning,
    cell,
    delivery_states,
    label,
    link,
    linked,
    list_url,
    state_label,
    table,
)
from sessions_app.channels import base as channels
from sessions_app.deliveries import outbox
from sessions_app.models import (
    Delivery,
    DeliveryState,
    Message,
    Session,
    SessionType,
    Turn,
    TurnState,
    TurnStep,
)
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.kinds import ERROR_CODES
from sessions_app.queue.threads import target_ids
from sessions_app.reads.selectors import with_deliveries
from sessions_app.sessions.delete import Deletion, delete_session
from sessions_app.sessions.dependents import Blocker, blockers_of
from sessions_app.sessions.open import archive_session, open_session, unarchive_session

LAST = 20  # turns and messages shown on a session's page
MOST = 50  # automations and scheduled messages shown there


class SessionForm(VerbForm[Session]):
    """A new sub session."""

    field_of = {"session_exists": "key", "reserved_key": "key"}
    key = forms.CharField(
        required=False,
        max_length=200,
        widget=UnfoldAdminTextInputWidget,
        help_text="<code>&lt;channel&gt;:&lt;id&gt;</code>. Empty: a generated key.",
    )
    channel = forms.CharField(initial="web", max_length=32, widget=UnfoldAdminTextInputWidget)

    def clean_title(self) -> str:
        return clean_line("title", self.cleaned_data["title"])


def _appointments(session: Session) -> Iterable[Panel]:
    """The session's automations, with the routines whose home it is, and its scheduled messages."""
    jobs = CronJob.objects.filter(Q(session=session) | Q(home=session)).select_related("clock", "agent")
    yield table(
        "Automations",
        jobs.order_by("created_at")[:MOST],
        {
            "name": link,
            "id": lambda job: job.pk,
            "schedule": lambda job: describe_job(job, job.agent.timezone),
            "enabled": lambda job: "yes" if job.enabled else "no",
            "next run (UTC)": lambda job: job.clock.next_run_at,
        },
        more=list_url(CronJob, session__id__exact=session.pk),
    )
    scheduled = ScheduledMessage.objects.filter(session=session).order_by("-created_at", "-pk")
    yield Panel(
        title="Scheduled messages",
        headers=["id", "due (UTC)", "status", "text"],
        rows=[[link(row), row.send_at, row.status, row.message_text[:80]] for row in scheduled[:MOST]],
        more=list_url(ScheduledMessage, session__id__exact=session.pk),
    )


@admin.register(Session)
class SessionAdmin(TwoStepDelete[Session], VerbAdmin[Session]):
    form = SessionForm
    list_display = [
        "__str__", "agent", "owner", "type", "state", "activity", "last_seq", "created_at", "updated_at",
    ]  # fmt: skip
    list_select_related = ["agent", "owner"]
    list_filter = ["state", "type", "chat_type", ("agent", AutocompleteSelectFilter)]
    search_fields = ["=id", "=key", "title", "key", "agent__name", "owner__username"]
    search_help_text = "Id or key, or a part of the title, the key, the agent's or the owner's name"
    ordering = ["-created_at", "-id"]  # no index has `updated_at`, which each turn changes
    sortable_by = ()
    autocomplete_fields = ["agent"]
    actions = [
        "delete_selected",
        row_action("archive", "Archive the selected conversations", archive_session, "is archived"),
        row_action("unarchive", "Unarchive the selected conversations", unarchive_session, "is open"),
    ]
    fixed = ["agent", "key", "channel", "chat_type", "chat_id"]
    editable = ["title"]
    form_only = []
    facts = [
        "id", "owner", "type", "state", "shows", "activity", "channel_meta", "last_route", "variables", "revision",
        "last_seq", "window_from_seq", "created_at", "updated_at",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        turns = Turn.objects.filter(session=OuterRef("pk"))
        activity = Case(
            When(Exists(turns.filter(state=TurnState.RUNNING)), then=Value("running")),
            When(Exists(turns.filter(state=TurnState.QUEUED)), then=Value("queued")),
            default=Value("idle"),
            output_field=CharField(),
        )
        return super().get_queryset(request).annotate(_activity=activity)

    @admin.display(description="displayed session")
    def shows(self, obj: Session) -> str:
        other = Session.objects.filter(pk=target_ids([obj.pk])[obj.pk]).exclude(pk=obj.pk).first()
        return format_html("{}, in unified mode", link(other)) if other else "its own history"

    @admin.display(description="turns")
    def activity(self, obj: Session) -> str:
        return str(getattr(obj, "_activity", "-"))

    def create(self, request: HttpRequest, form: Any) -> Session:
        given = dict(form.cleaned_data)
        return open_session(
            given["agent"],
            key=given["key"],
            channel=given["channel"],
            chat_type=given["chat_type"],
            address=given["chat_id"],
            title=given["title"],
        )

    def change(self, request: HttpRequest, obj: Session, form: Any) -> None:
        obj.save(update_fields=["title"])  # the only field that people edit

    def panels(self, obj: Session) -> Iterable[Panel]:
        yield from _appointments(obj)
        turns = Turn.objects.filter(session=obj).order_by("-id").only("kind", "state", "queued_at", "content")
        yield Panel(
            title=f"Last {LAST} turns",
            headers=["turn", "kind", "state", "queued (UTC)", "input"],
            rows=[
                [link(turn), turn.kind, label(turn.state), turn.queued_at, cell(turn.content[:200])]
                for turn in turns[:LAST]
            ],
            more=list_url(Turn, session__id__exact=obj.pk),
        )
        written = Message.objects.filter(session=obj).order_by("-seq")
        yield Panel(
            title=f"Last {LAST} messages",
            headers=["seq", "role", "content", "created (UTC)"],
            rows=[
                [link(row, row.seq), row.role, cell(row.content), row.created_at] for row in written[:LAST]
            ],
            more=list_url(Message, session__id__exact=obj.pk),
        )

    def also_deleted(self, obj: Session) -> str:
        turns = Turn.objects.filter(session=obj).count()
        return f"{obj.last_seq} messages and {turns} turns will be deleted too."

    def refusal(self, obj: Session) -> str:
        is_primary = obj.type == SessionType.PRIMARY
        return "A primary session is deleted only with its agent." if is_primary else ""

    def blockers(self, obj: Session) -> Sequence[Blocker]:
        return blockers_of(obj.pk)

    def remove(self, obj: Session, *, with_dependents: bool) -> Deletion:
        return delete_session(obj.pk, with_dependents=with_dependents)


MOST_STEPS = 200  # shown on a turn's page


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
        "state", value_filter("error_code", lambda: sorted(ERROR_CODES)), "kind", "lane",
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
