"""The admin page of sessions: open, rename, archive and delete them; all other fields are read-only."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Case, CharField, Exists, OuterRef, Q, QuerySet, Value, When
from django.http import HttpRequest
from django.utils.html import format_html
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.widgets import UnfoldAdminTextInputWidget

from automations.models import CronJob, ScheduledMessage
from automations.schedules.describe import describe_job
from interfaces.admin.base import VerbAdmin, VerbForm, clean_line, row_action
from interfaces.admin.deletion import TwoStepDelete
from interfaces.admin.panels import Panel, cell, label, link, list_url, table
from sessions_app.models import Message, Session, SessionType, Turn, TurnState
from sessions_app.queue.threads import target_ids
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
        "name", "agent", "owner", "type", "state", "activity", "last_seq", "created_at", "updated_at",
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

    @admin.display(description="session")
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
