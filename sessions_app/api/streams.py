"""A session's events as server-sent events."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from sessions_app import selectors
from sessions_app.api.base import ApiView
from sessions_app.api.conditions import last_event
from sessions_app.events import VERSION, Cursor, envelope
from sessions_app.models import Scope, Session
from sessions_app.stream import hub
from sessions_app.stream_parts import Bell, Item
from sessions_app.stream_reads import now

KEEP_ALIVE = 15.0  # seconds
RETRY = 1_000  # milliseconds until a browser connects again
RESUME = OpenApiParameter(
    "last_event_id", str, description="As the header Last-Event-ID: go on after this event."
)


class EventStreamRenderer(JSONRenderer):
    """Lets `Accept: text/event-stream` pass; refusals are problems all the same."""

    media_type = "text/event-stream"
    format = "event-stream"


class SessionEvents(ApiView):
    renderer_classes = [EventStreamRenderer, JSONRenderer]

    @extend_schema(
        parameters=[RESUME],
        responses={(200, "text/event-stream"): OpenApiResponse(OpenApiTypes.STR, "Server-sent events.")},
    )
    def get(self, _request: Request, session_id: uuid.UUID) -> HttpResponseBase:
        """What happens in the session from now on, or after Last-Event-ID. Ends when the session is deleted."""
        session = selectors.session(self.user, session_id)
        cursor = last_event(self.request) or now()
        agent_name = session.agent.name
        connection.close()  # nothing is held while the stream is open
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        body = _stream(session, agent_name, cursor)
        return StreamingHttpResponse(body, content_type="text/event-stream", headers=headers)


async def _stream(session: Session, agent_name: str, cursor: Cursor) -> AsyncGenerator[bytes, None]:
    bell = Bell()
    subscription = hub().subscribe(session.pk, cursor, bell.ring)
    try:
        yield f"retry: {RETRY}\nid: {cursor}\n\n".encode()  # a client that hears nothing else can resume, too
        while True:
            rung = await bell.wait(KEEP_ALIVE)
            closed = subscription.closed  # before the last look at what waits
            items = subscription.take()
            if items:
                yield b"".join(_block(item, session, agent_name) for item in items)
                if subscription.behind:
                    hub().look(session.pk)  # there is room for the next page of its past
            elif not rung:
                yield b": keep-alive\n\n"
            if closed:
                return
    finally:
        hub().unsubscribe(subscription)


def _block(item: Item, session: Session, agent_name: str) -> bytes:
    if item.event is not None:
        data = envelope(item.event, agent_name)
        head = f"id: {data['event_id']}\nevent: {item.type}\n"
    else:
        data = _passing(item, session, agent_name)
        head = f"event: {item.type}\n"
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _passing(item: Item, session: Session, agent_name: str) -> dict[str, Any]:
    """The envelope of what is only sent, never stored: it has no id and cannot be resumed after."""
    return {
        "v": VERSION,
        "event_id": None,
        "timestamp": datetime.now(UTC).isoformat(),
        "agent_name": agent_name,
        "session_id": str(session.pk),
        "scope": Scope.SESSION.value,
        "source_type": item.origin.source_type,
        "run_id": item.origin.run_id or None,
        "type": item.type,
        "content": item.content,
    }
