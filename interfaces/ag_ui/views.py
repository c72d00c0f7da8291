"""The address of AG-UI: it takes a RunAgentInput, and streams the events of its turn as they happen."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterable

from ag_ui import core
from ag_ui.encoder import EventEncoder
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from interfaces.ag_ui import run_events
from interfaces.ag_ui.run_begin import read_run, session_of, start_turn
from interfaces.http.auth import TALK, right_of
from interfaces.http.base import ApiView, EventStreamRenderer
from sessions_app.exceptions import NotFound, NoThreadFree
from sessions_app.models import TurnState
from sessions_app.models.turn import OPEN_STATES
from sessions_app.reads import selectors
from sessions_app.streams.event_log import Position
from sessions_app.streams.hub import beginning
from sessions_app.streams.reader import Run as RunInThread
from sessions_app.streams.reader import StreamReader

KEEP_ALIVE = 15.0  # seconds
ENCODER = EventEncoder()
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class AgentRuns(ApiView):
    scopes = {"post": TALK}
    renderer_classes = [EventStreamRenderer, JSONRenderer]
    http_method_names = ["post"]

    @extend_schema(exclude=True)
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """Queue the message or the answer, and stream what its turn does. Without either, send the history."""
        run = read_run(request.data)
        agent = selectors.agent(self.user, name, to_ask=True)
        session = session_of(self.user, agent, run.thread_id)
        cursor = beginning()  # before the turn, so that nothing of it is missed
        turn = start_turn(self.user, session, run)
        about = {"rondo": {"session": str(session.pk), "turn": turn and turn.pk}}
        started = core.RunStartedEvent(thread_id=run.thread_id, run_id=run.run_id, metadata=about)
        if turn is None:
            success = run_events.finished(started, core.RunFinishedSuccessOutcome())
            whole = [started, *run_events.history(self.user, session.pk), success]
            return HttpResponse(_encoded(whole), content_type=ENCODER.get_content_type(), headers=HEADERS)
        events = run_events.RunEvents(
            turn.pk, is_repeated=turn.state != TurnState.QUEUED, has_ended=turn.state not in OPEN_STATES
        )
        position = Position(session_id=turn.session_id, cursor=cursor)
        return RunResponse(self.user, session.pk, started, events, position, StreamReader(right_of(request)))


class RunResponse(StreamingHttpResponse):
    """Server-sent events of a run. A client that disconnects cancels nothing."""

    def __init__(
        self,
        user: User,
        session_id: uuid.UUID,
        started: core.RunStartedEvent,
        events: run_events.RunEvents,
        position: Position,
        reader: StreamReader,
    ) -> None:
        super().__init__(self._pieces(), content_type=ENCODER.get_content_type(), headers=HEADERS)
        self._user, self._session_id, self._started = user, session_id, started
        self._events, self._position, self._reader = events, position, reader
        self.run: RunInThread

    async def later(self, run: RunInThread) -> None:
        """Store `run`, which runs reads of the database away from the event loop."""
        self.run = run

    def close(self) -> None:
        """Free the stream. A second call is harmless."""
        super().close()
        self._reader.close()

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        yield _encoded([self._started])
        if not self._events.has_ended():
            async for items in self._reader.read(self._position, KEEP_ALIVE, self._session_id):
                sent = [event for item in items for event in self._events.hear(item)]
                yield _encoded(sent) or b": keep-alive\n\n"
                if self._events.has_ended():
                    break
        yield _encoded(await self._end())

    async def _end(self) -> list[core.BaseEvent]:
        if not self._events.has_ended():
            text = "the session was deleted, or you have lost access to it"
            return [core.RunErrorEvent(message=text, code="not_found")]
        try:
            events: list[core.BaseEvent] = await self.run(self._last_events)
        except (OperationalError, InterfaceError, NoThreadFree):
            text = "the turn has ended, but cannot be read now; send the same run again"
            events = [core.RunErrorEvent(message=text, code="unavailable")]
        return events

    def _last_events(self) -> list[core.BaseEvent]:
        turn_id, asked = self._events.turn_id, self._events.asked
        try:
            needed = self._events.needs_history
            shown = run_events.history(self._user, self._session_id, turn_id) if needed else []
            end = run_events.end_of_run(self._user, turn_id, self._started, None if shown else asked)
        except NotFound:  # it was deleted meanwhile
            shown, end = [], core.RunErrorEvent(message="the session was deleted", code="not_found")
        return [*shown, end]


def _encoded(events: Iterable[core.BaseEvent]) -> bytes:
    return "".join(ENCODER.encode(event) for event in events).encode()


urlpatterns = [path("<str:name>/", AgentRuns.as_view())]
