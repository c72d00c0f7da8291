"""The events of a session or of an agent as server-sent events."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from agent_core.text.formats import utc_text
from interfaces.http.auth import READ, TICKET, TicketAuthentication, TokenAuthentication, right_of
from interfaces.http.base import ApiView, EventStreamRenderer
from interfaces.http.headers import last_event
from interfaces.http.query import Parameter
from sessions_app.events import VERSION, envelope
from sessions_app.models import EventType, Scope
from sessions_app.reads import selectors
from sessions_app.streams.event_log import Position
from sessions_app.streams.hub import beginning
from sessions_app.streams.items import Item, Topic
from sessions_app.streams.reader import StreamReader
from sessions_app.streams.rights import Right

KEEP_ALIVE = 30.0  # seconds
RETRY = 1_000  # milliseconds until a browser connects again
RESUME = [
    OpenApiParameter("Last-Event-ID", str, OpenApiParameter.HEADER, description="Continue after this event."),
]
LONGEST_ID = 64  # characters of a cursor or ticket
TICKET_PARAMETER = Parameter(
    name=TICKET,
    description="A stream ticket, for browsers: see `/api/stream-tickets/`.",
    longest=LONGEST_ID,
)
LAST_EVENT = Parameter(
    name="last_event_id",
    description="`Last-Event-ID`, for clients that cannot set headers.",
    longest=LONGEST_ID,
)
UNSTORED = ("delta", "thought", "snapshot")  # events that are sent but not stored, and have no id
EVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The cursor, for Last-Event-ID."},
        "event": {"type": "string", "enum": [*EventType.values, *UNSTORED]},
        "data": {
            "type": "string",
            "description": "JSON: `{v, event_id, timestamp, agent_name, session_id, scope, source_type, run_id, type,"
            " content}`.",
        },
    },
    "required": ["event", "data"],
}
STREAM = {(200, "text/event-stream"): OpenApiResponse(EVENT, "Server-sent events.")}


class EventsView(ApiView):
    scopes = {"get": READ}
    renderer_classes = [EventStreamRenderer, JSONRenderer]
    http_method_names = ["get"]  # not HEAD: the stream would never end
    takes = {"get": (LAST_EVENT, TICKET_PARAMETER)}
    authentication_classes = [TokenAuthentication, TicketAuthentication, SessionAuthentication]

    def stream(
        self, opened: Topic, agent_id: int, agent_name: str, shows: uuid.UUID | None = None
    ) -> HttpResponseBase:
        """The events from now on, or after Last-Event-ID. BadInput."""
        cursor = beginning(last_event(self.request))
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        position = Position(session_id=shows, agent_id=agent_id, cursor=cursor)
        body = Stream(opened, position, agent_name, right_of(self.request))
        return StreamingHttpResponse(body, content_type="text/event-stream", headers=headers)


class SessionEvents(EventsView):
    @extend_schema(parameters=RESUME, responses=STREAM)
    def get(self, _request: Request, session_id: uuid.UUID) -> HttpResponseBase:
        """Stream the session's events from now on, or after Last-Event-ID. The stream ends when the session is deleted.

        A thread of a unified agent has the events of the primary session; `session_id` names it. When unified mode is
        switched, a `status` with `shows` says so, and the stream ends: read the history again, and connect again.

        A `status` of scope `agent` may come from another session of the agent; `session_id` says which. It reports
        background work without any text: `background` is `turn_start` or `turn_end`, or
        `has_unread_background_updates` is set.

        Events are kept for a day, or as configured. A client that resumes from an older event first gets a `status`
        with `events_missed`, and should read the history again; then it gets the events that are kept.
        """
        session = selectors.session(self.user, session_id)
        return self.stream(session.pk, session.agent_id, session.agent_name, session.target_id)


class AgentEvents(EventsView):
    @extend_schema(parameters=RESUME, responses=STREAM)
    def get(self, _request: Request, name: str) -> HttpResponseBase:
        """Stream the agent's events from now on, or after Last-Event-ID. The stream ends when the agent is deleted.

        Each is a `status` of scope `agent` without any text. `background` is `turn_start` or `turn_end` of a turn that
        no person waits for, with its `kind` and its `state`. `has_unread_background_updates` means that the mailbox of
        the session has unread updates. Messages are sent only on the streams of their own session.
        """
        agent = selectors.agent(self.user, name)
        return self.stream(agent.pk, agent.pk, agent.name)


class Stream:
    """The body of a stream, of a session or of an agent. It must be closed. TooManyStreams."""

    def __init__(self, opened: Topic, position: Position, agent_name: str, right: Right) -> None:
        self._opened, self._position, self._agent_name = opened, position, agent_name
        self._only = {opened, position.session_id} if right.only is not None else None
        self._reader = StreamReader(right)

    def close(self) -> None:
        """End the stream. A second call is harmless."""
        self._reader.close()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        reading = self._reader.read(self._position, KEEP_ALIVE, self._opened)
        await anext(reading)
        # with this id a client can resume even if no event follows
        yield f"retry: {RETRY}\nid: {self._position.cursor}\n\n".encode()
        async for items in reading:
            sent = (_block(item, self._agent_name) for item in items if not self._is_elsewhere(item))
            yield b"".join(sent) or b": keep-alive\n\n"

    def _is_elsewhere(self, item: Item) -> bool:
        """Whether the item is about another session than the one that the token is limited to."""
        is_of_agent = item.event is not None and item.event.scope == Scope.AGENT
        return self._only is not None and is_of_agent and item.about not in self._only


def _block(item: Item, agent_name: str) -> bytes:
    if item.event is not None:
        data = envelope(item.event, agent_name)
        head = f"id: {data['event_id']}\nevent: {item.type}\n"
    else:
        data = _unstored(item, agent_name)
        head = f"event: {item.type}\n"
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _unstored(item: Item, agent_name: str) -> dict[str, Any]:
    """The envelope of an event that is not stored: it has no id, so a client cannot resume after it."""
    of_agent = isinstance(item.about, int)
    return {
        "v": VERSION,
        "event_id": None,
        "timestamp": utc_text(datetime.now(UTC)),
        "agent_name": agent_name,
        "session_id": None if of_agent else str(item.about),
        "scope": (Scope.AGENT if of_agent else Scope.SESSION).value,
        "source_type": item.source_type,
        "run_id": item.run_id or None,
        "type": item.type,
        "content": item.content,
    }
