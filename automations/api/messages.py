"""Scheduled messages of a session: made, shown, cancelled."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from automations import selectors
from automations.api.message_shapes import NewScheduledMessage, ScheduledMessageOut
from automations.scheduled_messages import Scheduled, cancel_message, schedule_from
from sessions_app.api import conditions
from sessions_app.api.base import KEY, ApiView, shown
from sessions_app.once import Answer
from sessions_app.selectors import session


class MessageList(ApiView):
    ordering = ("created_at", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=ScheduledMessageOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """The session's scheduled messages, the oldest first; in a thread of a unified agent also the primary one's."""
        return self.page(selectors.scheduled_messages_of(self.user, session_id), ScheduledMessageOut)

    @extend_schema(parameters=[KEY], request=NewScheduledMessage, responses={201: ScheduledMessageOut})
    def post(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Schedule a message in a private chat; in a thread of a unified agent it goes to the primary session."""
        session(self.user, session_id)
        given = self.read(NewScheduledMessage)
        return self.create(lambda: self._made(schedule_from(session_id, **given)), conditions.etag_of)

    def _made(self, made: Scheduled) -> Answer:
        row = selectors.scheduled_message(self.user, made.message.pk)
        body = ScheduledMessageOut(row).data
        return Answer(body=body, location=f"/api/scheduled-messages/{row.pk}/")


class MessageDetail(ApiView):
    refuses = {"delete": (409,)}

    @extend_schema(responses=ScheduledMessageOut)
    def get(self, _request: Request, message_id: str) -> Response:
        """One scheduled message."""
        return shown(ScheduledMessageOut(selectors.scheduled_message(self.user, message_id)).data)

    @extend_schema(responses={200: ScheduledMessageOut})
    def delete(self, _request: Request, message_id: str) -> Response:
        """Cancel a message that waits; again is fine. What is being sent, was sent or has failed stays as it is."""
        selectors.scheduled_message(self.user, message_id)
        cancel_message(message_id)
        return Response(ScheduledMessageOut(selectors.scheduled_message(self.user, message_id)).data)
