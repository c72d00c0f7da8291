"""Sessions, their history and their mailbox."""

from __future__ import annotations

import uuid

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import selectors
from sessions_app.api.agents import DELETE_AUTOMATIONS
from sessions_app.api.base import KEY, ApiView, deleted, shown
from sessions_app.api.conditions import etag_of, expected
from sessions_app.api.shapes import (
    BlockedOut,
    DeletedOut,
    MailOut,
    NewSession,
    SessionChanges,
    SessionOut,
)
from sessions_app.delete import delete_session
from sessions_app.exceptions import BadInput
from sessions_app.lines import check_line
from sessions_app.models import Session, SessionType
from sessions_app.once import Answer
from sessions_app.open import move_session, open_session, rename_session

FILTERS = {"agent": "agent__name", "key": "key", "type": "type"}


class SessionList(ApiView):
    ordering = ("-created_at", "-id")
    refuses = {"post": (404, 409)}

    @extend_schema(
        parameters=[
            OpenApiParameter("agent", str),
            OpenApiParameter("key", str),
            OpenApiParameter("type", str, enum=SessionType.values),
        ],
        responses=SessionOut(many=True),
    )
    def get(self, _request: Request) -> Response:
        """Your sessions, the newest first."""
        given = {name: self.parameter(name) for name in FILTERS}
        if given["type"] is not None and given["type"] not in SessionType.values:
            raise BadInput(f"type must be one of {', '.join(SessionType.values)}", code="bad_parameter")
        wanted = {FILTERS[name]: value for name, value in given.items() if value is not None}
        return self.page(selectors.sessions(self.user).filter(**wanted), SessionOut)

    @extend_schema(parameters=[KEY], request=NewSession, responses={201: SessionOut})
    def post(self, _request: Request) -> Response:
        """Open a session of an agent of yours."""
        given = self.read(NewSession)
        check_line("title", given.get("title", ""))
        agent = selectors.agent(self.user, given.pop("agent"))
        return self.create(lambda: self._made(open_session(agent, **given)), etag_of)

    def _made(self, session: Session) -> Answer:
        body = SessionOut(selectors.session(self.user, session.pk)).data
        return Answer(body=body, location=f"/api/sessions/{session.pk}/")


class SessionDetail(ApiView):
    refuses = {"delete": (409,)}

    @extend_schema(responses=SessionOut)
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """One session."""
        return shown(SessionOut(selectors.session(self.user, session_id)).data)

    @extend_schema(request=SessionChanges, responses=SessionOut)
    def patch(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Change title and address. The revision counts commits of turns, so it stays."""
        with transaction.atomic():
            session = selectors.session(self.user, session_id, lock=True)  # its tag holds until the change
            given = self.read(SessionChanges, of=SessionOut)
            check_line("title", given.get("title", ""))
            expected(self.request, etag_of(SessionOut(session).data))
            if "title" in given:
                rename_session(session.pk, given["title"])
            if "address" in given:
                move_session(session.pk, given["address"])
        return self.get(self.request, session_id)

    @extend_schema(parameters=[DELETE_AUTOMATIONS], responses={200: DeletedOut, 409: BlockedOut})
    def delete(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Delete a session with all it holds, unless automations are bound to it."""
        session = selectors.session(self.user, session_id)
        expected(self.request, etag_of(SessionOut(session).data))
        return deleted(delete_session(session.pk, delete_automations=self.flag("delete_automations")))


class Mailbox(ApiView):
    ordering = ("-id",)

    @extend_schema(responses=MailOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """What other sessions' work told this one, the newest first."""
        return self.page(selectors.mailbox(self.user, session_id), MailOut)
