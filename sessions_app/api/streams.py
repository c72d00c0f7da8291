"""The events of a session, or of an agent alone, as server-sent events."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from sessions_app import selectors
from sessions_app.api.base import ApiView
from sessions_app.api.conditions import last_event
from sessions_app.events import VERSION, Cursor, envelope
from sessions_app.models import EventType, Scope
from sessions_app.stream import hub
from sessions_app.stream_parts import Bell, Item
from sessions_app.stream_reads import Shown, starting_point

KEEP_ALIVE = 15.0  # seconds
RETRY = 1_000  # milliseconds until a browser connects again
RESUME = [
    OpenApiParameter(
        "Last-Event-ID", str, OpenApiParameter.HEADER, description="Go on after this event of the stream."
    ),
    OpenApiParameter("last_event_id", str, description="The same, for who cannot send the header."),
]
PASSING = ("delta", "snapshot")  # sent, never stored: such an event has no id
EVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The cursor, for Last-Event-ID."},
        "event": {"type": "string", "enum": [*EventType.values, *PASSING]},
        "data": {
            "type": "string",
            "description": "JSON: `{v, event_id, timestamp, agent_name, session_id, scope, source_type, run_id, type,"
            " content}`.",
        },
    },
    "required": ["event", "data"],
}
STREAM = {(200, "text/event-stream"): OpenApiResponse(EVENT, "Server-sent events.")}


class EventStreamRenderer(JSONRenderer):
    """Lets `Accept: text/event-stream` pass; refusals are problems all the same."""

    media_type = "text/event-stream"
    format = "event-stream"


class EventsView(ApiView):
    renderer_classes = [EventStreamRenderer, JSONRenderer]
    http_method_names = ["get"]  # not HEAD: it would stream on with nobody to hear it

    def stream(self, opened: Shown, agent_name: str, shows: Shown | None = None) -> HttpResponseBase:
        """What happens from now on, or after Last-Event-ID. BadInput."""
        cursor = starting_point(last_event(self.request))
        connection.close()  # nothing is held while the stream is open
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        body = _stream(opened, shows or opened, agent_name, cursor)
        return StreamingHttpResponse(body, content_type="text/event-stream", headers=headers)


class SessionEvents(EventsView):
    @extend_schema(parameters=RESUME, responses=STREAM)
    def get(self, _request: Request, session_id: uuid.UUID) -> HttpResponseBase:
        """What happens in the session from now on, or after Last-Event-ID. Ends when the session is deleted.

        A thread of a unified agent tells of the primary session; `session_id` names it. A `status` with `shows`
        comes when that is toggled: what was shown before is another history.

        A `status` of scope `agent` may come from another session of the agent: `session_id` says from which. It tells
        of work in the background, in no words: `background` is `turn_start` or `turn_end`, or there is
        `has_unread_background_updates`.

        Events are kept for a day or as configured. Who comes from farther back is first sent a `status` with
        `events_missed`: the history is to be read again. Then come the events that are kept.
        """
        session = selectors.entered(self.user, session_id)
        return self.stream(session.pk, session.agent_name, session.behind)


class AgentEvents(EventsView):
    @extend_schema(parameters=RESUME, responses=STREAM)
    def get(self, _request: Request, name: str) -> HttpResponseBase:
        """What every window of the agent is told, from now on or after Last-Event-ID. Ends when it is deleted.

        Each is a `status` of scope `agent` without any text. `background` is `turn_start` or `turn_end` of a turn that
        no person waits for, with its `kind` and how it ended (`state`); `has_unread_background_updates` means that
        something waits in the mailbox of the session. What was said is told to the windows of its session only.
        """
        agent = selectors.agent(self.user, name)
        return self.stream(agent.pk, agent.name)


async def _stream(
    opened: Shown, shows: Shown, agent_name: str, cursor: Cursor
) -> AsyncGenerator[bytes, None]:
    bell = Bell()
    subscription = hub().subscribe(opened, cursor, bell.ring, shows)
    try:
        yield f"retry: {RETRY}\nid: {cursor}\n\n".encode()  # a client that hears nothing else can resume, too
        while True:
            rung = await bell.wait(KEEP_ALIVE)
            closed = subscription.closed  # before the last look at what waits
            items = subscription.take()
            if items:
                yield b"".join(_block(item, agent_name) for item in items)
                if subscription.behind:
                    hub().look(subscription.shows)  # there is room for the next page of its past
            elif not rung:
                yield b": keep-alive\n\n"
            if closed:
                return
    finally:
        hub().unsubscribe(subscription)


def _block(item: Item, agent_name: str) -> bytes:
    if item.event is not None:
        data = envelope(item.event, agent_name)
        head = f"id: {data['event_id']}\nevent: {item.type}\n"
    else:
        data = _passing(item, agent_name)
        head = f"event: {item.type}\n"
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _passing(item: Item, agent_name: str) -> dict[str, Any]:
    """The envelope of what is only sent, never stored: it has no id and cannot be resumed after."""
    of_agent = isinstance(item.about, int)
    return {
        "v": VERSION,
        "event_id": None,
        "timestamp": datetime.now(UTC).isoformat(),
        "agent_name": agent_name,
        "session_id": None if of_agent else str(item.about),
        "scope": (Scope.AGENT if of_agent else Scope.SESSION).value,
        "source_type": item.origin.source_type,
        "run_id": item.origin.run_id or None,
        "type": item.type,
        "content": item.content,
    }
