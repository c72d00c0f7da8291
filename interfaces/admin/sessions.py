"""The admin page of sessions: open, rename, archive and delete them; all other fields are read-only."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Case, CharField, Exists, OuterRef, QuerySet, Value, When
from django.http import HttpRequest
from django.utils.html import format_html

from interfaces.admin.automations.session_pages import automations_panel, messages_panel
from interfaces.admin.base import VerbAdmin, VerbForm, clean_line, instant
from interfaces.admin.big_table import Uncounted
from interfaces.admin.deletion import TwoStepDelete
from interfaces.admin.panels import Panel, cell, label, link, list_url, table_panel
from interfaces.admin.unfold import AutocompleteSelectFilter, TextInput
from sessions_app.models import Message, Session, SessionType, Turn, TurnState
from sessions_app.queue.threads import target_ids
from sessions_app.sessions.delete import Deletion, delete_session
from sessions_app.sessions.dependents import Blocker, blockers_of
from sessions_app.sessions.open import archive_session, open_session, unarchive_session

LAST = 20  # turns and messages shown on a session's page


class SessionForm(VerbForm[Session]):
    """A new sub session."""

    field_of = {"session_exists": "key", "reserved_key": "key"}
    key = forms.CharField(
        required=False,
        max_length=200,
        widget=TextInput,
        help_text="<code>&lt;channel&gt;:&lt;id&gt;</code>. Empty: a generated key.",
    )
    channel = forms.CharField(initial="web", max_length=32, widget=TextInput)

    def clean_title(self) -> str:
        return clean_line("title", self.cleaned_data["title"])


@admin.register(Session)
class SessionAdmin(TwoStepDelete[Session], Uncounted[Session], VerbAdmin[Session]):
    form = SessionForm
    list_display = [
        "name", "agent", "owner", "type", "state", "activity", "last_seq", "created_at", "updated_at",
    ]  # fmt: skip
    list_select_related = ["agent", "owner"]
    list_filter = ["state", "type", "chat_type", ("agent", AutocompleteSelectFilter)]
    search_fields = ["=id", "=key", "title", "key", "agent__name", "owner__username"]
    search_help_text = "Id or key, or a part of the title, the key, the agent's or the owner's name"
    ordering = ["-created_at", "-id"]  # no index has `updated_at`, which each turn changes
    autocomplete_fields = ["agent"]
    actions = ["delete_selected", "archive", "unarchive"]
    add_fields = ["agent", "key", "channel", "chat_type", "chat_id", "title"]
    shown = [
        "id", "agent", "owner", "key", "type", "state", "shows", "activity", "channel", "chat_type", "chat_id",
        "channel_meta", "last_route", "variables", "revision", "last_seq", "window_from_seq", "created_at",
        "updated_at",
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

    def get_fieldsets(self, request: HttpRequest, obj: Session | None = None) -> Any:
        self_fields = self.add_fields if obj is None else ["title", *self.shown]
        return [(None, {"fields": self._timed(self_fields)})]

    def get_readonly_fields(self, request: HttpRequest, obj: Session | None = None) -> Any:
        return [] if obj is None else self._timed(self.shown)

    @admin.display(description="session", ordering="title")
    def name(self, obj: Session) -> str:
        return str(obj)

    @admin.display(description="displayed session")
    def shows(self, obj: Session) -> str:
        other = Session.objects.filter(pk=target_ids([obj.pk])[obj.pk]).exclude(pk=obj.pk).first()
        return format_html("{}, in unified mode", link(other)) if other else "its own history"

    @admin.display(description="turns")
    def activity(self, obj: Session) -> str:
        return str(getattr(obj, "_activity", "-"))

    def create(self, request: HttpRequest, form: Any) -> Session:
        given = form.cleaned_data
        names = {
            name: "address" if name == "chat_id" else name for name in self.add_fields if name != "agent"
        }
        return open_session(given["agent"], **{parameter: given[name] for name, parameter in names.items()})

    def change(self, request: HttpRequest, obj: Session, form: Any) -> None:
        obj.save(update_fields=["title"])  # the only field that people edit

    @admin.action(description="Archive the selected conversations", permissions=["change"])
    def archive(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        def archive_one(pk: Any) -> str:
            archive_session(Session.objects.get(pk=pk))
            return "is archived"

        self.for_each(request, queryset, archive_one)

    @admin.action(description="Unarchive the selected conversations", permissions=["change"])
    def unarchive(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        def unarchive_one(pk: Any) -> str:
            unarchive_session(Session.objects.get(pk=pk))
            return "is open"

        self.for_each(request, queryset, unarchive_one)

    def panels(self, obj: Session) -> Iterable[Panel]:
        yield automations_panel(obj)
        yield messages_panel(obj)
        turns = Turn.objects.filter(session=obj).order_by("-id").only("kind", "state", "queued_at", "content")
        yield table_panel(
            f"Last {LAST} turns",
            ["turn", "kind", "state", "queued (UTC)", "input"],
            [
                [link(turn), turn.kind, label(turn.state), instant(turn.queued_at), cell(turn.content[:200])]
                for turn in turns[:LAST]
            ],
            more=list_url(Turn, session__id__exact=obj.pk),
        )
        messages = Message.objects.filter(session=obj).order_by("-seq")[:LAST]
        yield table_panel(
            f"Last {LAST} messages",
            ["seq", "role", "content", "created (UTC)"],
            [
                [link(row, str(row.seq)), row.role, cell(row.content), instant(row.created_at)]
                for row in messages
            ],
            more=list_url(Message, session__id__exact=obj.pk),
        )

    def also_deleted(self, obj: Session) -> str:
        turns = Turn.objects.filter(session=obj).count()
        return f"{obj.last_seq} messages and {turns} turns will be deleted too."

    def refusal(self, obj: Session) -> str:
        if obj.type == SessionType.PRIMARY:
            return "A primary session is deleted only with its agent."
        return ""

    def blockers(self, obj: Session) -> Sequence[Blocker]:
        return blockers_of(obj.pk)

    def remove(self, obj: Session, *, with_dependents: bool) -> Deletion:
        return delete_session(obj.pk, with_dependents=with_dependents)
