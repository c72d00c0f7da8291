"""What a person takes along: everything as one archive, a conversation as Markdown."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponseBase

from automations.archives.export import export
from automations.archives.markdown import markdown_of
from interfaces.http.download import Download, count_download
from interfaces.web.pages import clock_of, person, person_page
from sessions_app.models import Session
from sessions_app.reads import selectors


@person_page("POST")
def export_all(request: HttpRequest) -> HttpResponseBase:
    """Everything of the person as one archive. TooSoon."""
    user = person(request)
    count_download(user)
    return Download(export(user), f"rondo-{datetime.now(UTC):%Y-%m-%d}.zip", "application/zip")


@person_page("GET")
def as_markdown(request: HttpRequest, session_id: uuid.UUID) -> HttpResponseBase:
    """What a conversation shows as Markdown. TooSoon."""
    user = person(request)
    count_download(user)
    shown = selectors.shown_id(user, session_id)
    session = Session.objects.select_related("agent").get(pk=shown, owner=user)
    clock = clock_of(request)
    pieces = markdown_of(session, clock.key if clock else session.agent.timezone)
    return Download((piece.encode() for piece in pieces), "conversation.md", "text/markdown; charset=utf-8")
