"""Sessions, their history and their mailbox."""

from __future__ import annotations

import uuid

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.api.agents.agents import DELETE_AUTOMATIONS
from interfaces.api.sessions.mailbox_serializers import MailOut
from interfaces.api.sessions.serializers import (
    SESSION_STATES,
    BlockedOut,
    DeletedOut,
    NewSession,
    SessionChanges,
    SessionOut,
)
from interfaces.http import filters
from interfaces.http.base import KEY, ApiView, deleted, tagged_response
from interfaces.http.headers import etag_of, expected
from interfaces.http.query import Parameter
from interfaces.http.scopes import MANAGE, READ, TALK
from sessions_app.idempotency import StoredAnswer
from sessions_app.models import Session, SessionType
from sessions_app.reads import selectors
from sessions_app.sessions.archive import archive_session, unarchive_session
from sessions_app.sessions.delete import delete_session
from sessions_app.sessions.open import LONGEST_KEY, change_chat, open_session, rename_session
from sessions_app.single_line import check_line

FILTERS = {
    "agent": "agent__name",
    "key": "key",
    "type": "type",
    "state": "shown_state",
    "since": "created_at__gte",
    "until": "created_at__lt",
}


class SessionList(ApiView):
    scopes = {"get": READ, "post": TALK}
    within_limits = {"get", "post"}
    ordering = ("-place",)
    refuses = {"post": (404, 409)}
    takes = {
        "get": (
            filters.AGENT,
            Parameter(name="key", longest=LONGEST_KEY),
            Parameter(name="type", choices=tuple(SessionType.values)),
            Parameter(name="state", choices=tuple(SESSION_STATES)),
            *filters.times("created_at"),
            filters.search_in("the title"),
        )
    }

    @extend_schema(responses=SessionOut(many=True))
    def get(self, _request: Request) -> Response:
        """Your sessions, the newest first."""
        rows = selectors.sessions(self.user, self.wanted(FILTERS), self.term)
        return self.page(rows, SessionOut)

    @extend_schema(parameters=[KEY], request=NewSession, responses={201: SessionOut})
    def post(self, _request: Request) -> Response:
        """Open a session of one of your agents."""
        given = self.read(NewSession)
        check_line("title", given.get("title", ""))
        agent = selectors.agent(self.user, given.pop("agent"))
        return self.create(lambda: self._made(open_session(agent, **given)), etag_of)

    def _made(self, session: Session) -> StoredAnswer:
        body = SessionOut(selectors.session(self.user, session.pk)).data
        return StoredAnswer(body=body, location=f"/api/sessions/{session.pk}/")


class SessionDetail(ApiView):
    scopes = {"get": READ, "patch": MANAGE, "delete": MANAGE}
    refuses = {"patch": (409,), "delete": (409,)}
    takes = {"delete": (DELETE_AUTOMATIONS,)}

    @extend_schema(responses=SessionOut)
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """One session."""
        return tagged_response(SessionOut(selectors.session(self.user, session_id)).data)

    @extend_schema(request=SessionChanges, responses=SessionOut)
    def patch(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Change title, address, `channel_meta` or `chat_type`; archive it or open it again.

        The revision counts commits of turns, so it stays.
        """
        with transaction.atomic():
            session = selectors.session(
                self.user, session_id, lock=True
            )  # its ETag stays the same until the change
            given = self.read(SessionChanges, of=SessionOut)
            check_line("title", given.get("title", ""))
            expected(self.request, etag_of(SessionOut(session).data))
            if "title" in given:
                rename_session(session.pk, given.pop("title"))
            if "archived" in given:
                change = archive_session if given.pop("archived") else unarchive_session
                change(session)
            if given:
                change_chat(session.pk, **given)
        return self.get(self.request, session_id)

    @extend_schema(responses={200: DeletedOut, 409: BlockedOut})
    def delete(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Delete a session with its history. 409 when automations are bound to it."""
        session = selectors.session(self.user, session_id)
        expected(self.request, etag_of(SessionOut(session).data))
        return deleted(delete_session(session.pk, with_dependents=self.is_true("delete_automations")))


class Mailbox(ApiView):
    scopes = {"get": READ}
    ordering = ("-id",)

    @extend_schema(responses=MailOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """The updates that the session got from other sessions, the newest first."""
        return self.page(selectors.mailbox(self.user, session_id), MailOut)
