"""Endpoints of scheduled messages."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from automations import selectors
from automations.models import MessageStatus
from automations.scheduled_messages import cancel_message, schedule_in_thread
from interfaces.api.shared import InSession, Texts
from interfaces.http.auth import READ, SCHEDULE
from interfaces.http.base import KEY, ApiView
from interfaces.http.fields import Flag, Input, NonBlankText, TextOrNull
from interfaces.http.headers import etag_of
from sessions_app.reads.selectors import shown_id


class NewScheduledMessage(Input):
    example = {"send_at": "2099-01-01T09:00:00+01:00", "message_text": "Happy New Year!"}
    send_at = NonBlankText(help_text="ISO time. Without an offset: in the agent's zone.")
    message_text = NonBlankText(help_text="Sent unchanged, without a model.")
    replace_existing = Flag(
        required=False, help_text="Cancel the session's pending messages. Default: false."
    )


class ScheduledMessageOut(InSession):
    id = serializers.CharField()
    session_id = serializers.UUIDField(help_text="The same as `session`.")
    send_at = serializers.DateTimeField()
    message_text = serializers.CharField()
    status = serializers.ChoiceField(choices=MessageStatus.choices)
    replace_existing = serializers.BooleanField()
    cancelled_ids = Texts(help_text="Messages that this one replaced.")
    sent_at = serializers.DateTimeField(allow_null=True)
    sent_message_id = serializers.IntegerField(
        allow_null=True, help_text="The `id` of its entry in the session's history."
    )
    last_error = TextOrNull()


class ScheduledMessageList(ApiView):
    scopes = {"get": READ, "post": SCHEDULE}
    ordering = ("created_at", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=ScheduledMessageOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """List scheduled messages, the oldest first. A thread of a unified agent also has the primary session's."""
        return self.page(selectors.scheduled_messages_of(self.user, session_id), ScheduledMessageOut)

    @extend_schema(parameters=[KEY], request=NewScheduledMessage, responses={201: ScheduledMessageOut})
    def post(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Schedule a message in a private chat. A thread of a unified agent passes it to its primary session."""
        shown_id(self.user, session_id)
        given = self.read(NewScheduledMessage)
        return self.create(
            lambda: self._shown(schedule_in_thread(session_id, **given).message.pk),
            "/api/scheduled-messages/{id}/",
            etag_of,
        )

    def _shown(self, message_id: str) -> dict[str, Any]:
        return ScheduledMessageOut(selectors.scheduled_message(self.user, message_id)).data


class ScheduledMessageDetail(ApiView):
    scopes = {"get": READ, "delete": SCHEDULE}
    refuses = {"delete": (409,)}

    @extend_schema(responses=ScheduledMessageOut)
    def get(self, _request: Request, message_id: str) -> Response:
        """Get a scheduled message."""
        return Response(ScheduledMessageOut(selectors.scheduled_message(self.user, message_id)).data)

    @extend_schema(responses={200: ScheduledMessageOut})
    def delete(self, _request: Request, message_id: str) -> Response:
        """Cancel a pending message; repeating it is allowed. 409 when it is being sent, was sent or has failed."""
        selectors.scheduled_message(self.user, message_id)
        cancel_message(message_id)
        return Response(ScheduledMessageOut(selectors.scheduled_message(self.user, message_id)).data)
