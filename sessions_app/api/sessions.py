"""Sessions, their history and their mailbox."""

from __future__ import annotations

import uuid

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import selectors
from sessions_app.api.agents import DELETE_AUTOMATIONS
from sessions_app.api.base import KEY, ApiView, deleted, tagged_response
from sessions_app.api.headers import etag_of, expected
from sessions_app.api.query import Parameter
from sessions_app.api.serializers import (
    BlockedOut,
    DeletedOut,
    MailOut,
    NewSession,
    SessionChanges,
    SessionOut,
)
from sessions_app.idempotency import StoredAnswer
from sessions_app.models import Session, SessionType
from sessions_app.sessions.delete import delete_session
from sessions_app.sessions.open import change_chat, open_session, rename_session
from sessions_app.single_line import check_line

FILTERS = {"agent": "agent__name", "key": "key", "type": "type"}


class SessionList(ApiView):
    ordering = ("-created_at", "-id")
    refuses = {"post": (404, 409)}
    takes = {
        "get": (
            Parameter(name="agent"),
            Parameter(name="key"),
            Parameter(name="type", choices=tuple(SessionType.values)),
        )
    }

    @extend_schema(responses=SessionOut(many=True))
    def get(self, _request: Request) -> Response:
        """Your sessions, the newest first."""
        given = {name: self.parameter(name) for name in FILTERS}
        wanted = {FILTERS[name]: value for name, value in given.items() if value is not None}
        return self.page(selectors.sessions(self.user, **wanted), SessionOut)

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
    refuses = {"delete": (409,)}
    takes = {"delete": (DELETE_AUTOMATIONS,)}

    @extend_schema(responses=SessionOut)
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """One session."""
        return tagged_response(SessionOut(selectors.session(self.user, session_id)).data)

    @extend_schema(request=SessionChanges, responses=SessionOut)
    def patch(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Change title, address, `channel_meta` or `chat_type`. The revision counts commits of turns, so it stays."""
        with transaction.atomic():
            session = selectors.session(
                self.user, session_id, lock=True
            )  # its ETag stays the same until the change
            given = self.read(SessionChanges, of=SessionOut)
            check_line("title", given.get("title", ""))
            expected(self.request, etag_of(SessionOut(session).data))
            if "title" in given:
                rename_session(session.pk, given.pop("title"))
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
    ordering = ("-id",)

    @extend_schema(responses=MailOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """The updates that the session got from other sessions, the newest first."""
        return self.page(selectors.mailbox(self.user, session_id), MailOut)
