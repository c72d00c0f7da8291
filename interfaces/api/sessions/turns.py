"""Messages of a session and its turns."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_serializer
from rest_framework import serializers, status
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from agent_core.types import Role, ToolOutcome
from interfaces.api.shared import DELIVERIES, InSession, SentOut
from interfaces.http import headers
from interfaces.http.auth import READ, TALK, right_of
from interfaces.http.base import KEY, ApiView
from interfaces.http.fields import Input, Items, NonBlankText, OneOf, Output, Text, TextOrNull
from interfaces.http.query import SESSION, Parameter, agent_parameter, search_parameter, time_parameters
from sessions_app.exceptions import NotFound, SessionsError, TooManyStreams
from sessions_app.memory.files import (
    KINDS,
    LARGEST_FILES,
    LARGEST_IMAGE,
    MEGABYTE,
    MOST_FILES,
    in_base64,
    read_files,
    with_note,
)
from sessions_app.models import OnBusy, Turn, TurnInput, TurnKind, TurnState
from sessions_app.models.message import LONGEST_FILE_NAME
from sessions_app.models.turn import OPEN_STATES
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.kinds import ERROR_CODES
from sessions_app.queue.receive import LONGEST_MESSAGE, MessageInput, receive
from sessions_app.reads import selectors
from sessions_app.sessions import history
from sessions_app.streams.reader import Run, until_ended
from sessions_app.streams.rights import Right, lapsed
from sessions_app.tokens.reach import limit_of

PREFER = OpenApiParameter(
    "Prefer",
    str,
    OpenApiParameter.HEADER,
    description="`wait=N`: wait up to N ≤ 60 seconds for the turn to end, and answer 200 with it.",
)
STATE = Parameter(name="state", choices=tuple(TurnState.values))
THREAD = "The id of the thread, for messages of a thread of a unified agent itself; its `seq` counts there. Else null."


@extend_schema_serializer(component_name="NewFile")
class FileIn(Input):
    example = {"name": "notes.txt", "content": "SGVsbG8h"}
    name = Text(max_length=LONGEST_FILE_NAME)
    content = Text(help_text="The file in base64.")


@extend_schema_serializer(component_name="NewMessage")
class MessageIn(Input):
    example = {"content": "Hello!", "on_busy": "inject"}
    content = NonBlankText(help_text=f"1 to {LONGEST_MESSAGE} characters. It may be empty beside files.")
    on_busy = OneOf(
        choices=OnBusy.choices, required=False, help_text="inject when not given; enqueue with files"
    )
    files = Items(
        child=FileIn(),
        required=False,
        max_length=MOST_FILES,
        help_text=f"{KINDS} images of at most {LARGEST_IMAGE // MEGABYTE} MB, PDFs, and texts in UTF-8;"
        f" at most {LARGEST_FILES // MEGABYTE} MB together.",
    )


class CallOut(Output):
    id = serializers.CharField()
    name = serializers.CharField()
    arguments = serializers.DictField()


class ResultOut(Output):
    id = serializers.CharField(help_text="The id of the call.")
    name = serializers.CharField()
    outcome = serializers.ChoiceField(choices=[outcome.value for outcome in ToolOutcome])
    output = serializers.CharField()


class PartsOut(Output):
    calls = CallOut(many=True)
    results = ResultOut(many=True)

    def to_representation(self, instance: Any) -> Any:
        return super().to_representation({"calls": [], "results": []} | instance)


class MessageOut(Output):
    id = serializers.IntegerField()
    session = serializers.UUIDField(source="session_id")
    seq = serializers.IntegerField()
    thread = serializers.UUIDField(allow_null=True, help_text=THREAD)
    role = serializers.ChoiceField(choices=[role.value for role in Role])
    content = serializers.CharField()
    parts = PartsOut(help_text="Calls in an assistant's message, results in a tool message.")
    metadata = serializers.DictField()
    turn = serializers.IntegerField(source="turn_id", allow_null=True)
    deliveries = SentOut(many=True, source="shown_deliveries", help_text=DELIVERIES)
    created_at = serializers.DateTimeField()


class TurnOut(InSession):
    id = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=TurnKind.choices)
    state = serializers.ChoiceField(choices=TurnState.choices)
    content = serializers.CharField()
    reply = serializers.CharField(allow_null=True)
    error = TextOrNull(help_text="A short sentence.")
    error_code = TextOrNull()
    provider_message = TextOrNull(help_text="What the model's provider said of the error.")
    deliveries = SentOut(many=True, source="shown_deliveries", help_text=DELIVERIES)
    usage = serializers.DictField()
    model = TextOrNull(help_text="The model that replied last: the agent's, or its fallback.")
    ended_by = TextOrNull(
        help_text="How the model ended the answer: `stop`, `length`, `filter` or `refusal`; null without an answer."
    )
    attempt = serializers.IntegerField()
    lock_wait_ms = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField(source="queued_at", help_text="The same as `queued_at`.")
    queued_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


ANSWERED = {202: TurnOut, 200: OpenApiResponse(TurnOut, "The turn has ended, with `Prefer: wait`.")}


class SessionMessages(ApiView):
    scopes = {"get": READ, "post": TALK}
    ordering = ("place",)
    takes = {"get": (search_parameter("the content"),)}
    refuses = {"post": (409,)}

    @extend_schema(responses=MessageOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """List the session's messages, the oldest first. A thread of a unified agent shows those of the primary session
        and its own (`thread`).
        """
        rows = history.session_messages(self.user, session_id, self.term)
        return self.page(rows, MessageOut)

    @extend_schema(parameters=[PREFER, KEY], request=MessageIn, responses=ANSWERED)
    def post(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Send a message. It becomes a turn: in a thread of a unified agent, a turn of the primary session."""
        if limit_of(self.user):  # `receive` knows the owner, and not the token
            selectors.shown_id(self.user, session_id)
        with _missing_first(self.user, session_id):
            given = self.read(MessageIn)
            named = [(each["name"], in_base64(each["content"])) for each in given.get("files", ())]
            files = read_files(self.user.pk, named)
            message = MessageInput(
                content=with_note(given["content"], files),
                files=files,
                about=TurnInput(limited=bool(limit_of(self.user))),
                on_busy=OnBusy(given.get("on_busy", OnBusy.INJECT)),
                idempotency_key=headers.turn_key(self.request),
            )
            turn = receive(session_id, message, self.user.pk)
        return turn_response(self, turn)


@contextmanager
def _missing_first(user: User, session_id: uuid.UUID) -> Iterator[None]:
    """Raise NotFound instead of another refusal in the block if the session is not the user's."""
    try:
        yield
    except (SessionsError, APIException):
        selectors.shown_id(user, session_id)
        raise


class TurnList(ApiView):
    scopes = {"get": READ}
    ordering = ("-id",)
    takes = {"get": (STATE,)}

    @extend_schema(responses=TurnOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """List the session's turns, the newest first. A thread of a unified agent shows those of the primary session
        and its own that are still open.
        """
        return self.page(history.turns_of(self.user, session_id, self.parameter("state")), TurnOut)


class TurnsOfUser(ApiView):
    scopes = {"get": READ}
    within_limits = {"get"}
    ordering = ("-place",)
    takes = {
        "get": (
            *(agent_parameter("session__agent__name"), SESSION, STATE),
            Parameter(name="error_code", longest=64),
            *time_parameters("created_at", "queued_at"),
            search_parameter("the content"),
        )
    }

    @extend_schema(responses=TurnOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your turns in all sessions, the newest first."""
        self.check_value("error_code", ERROR_CODES, lambda only: history.turns_of_user(self.user, only))
        rows = history.turns_of_user(self.user, self.wanted(), self.term)
        return self.page(rows, TurnOut)


class TurnDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=TurnOut)
    def get(self, _request: Request, turn_id: int) -> Response:
        """Get a turn."""
        return Response(TurnOut(selectors.turn(self.user, turn_id)).data)


class TurnCancel(ApiView):
    scopes = {"post": TALK}
    refuses = {"post": (409,)}

    @extend_schema(request=None, responses={202: TurnOut})
    def post(self, _request: Request, turn_id: int) -> Response:
        """Cancel a turn. If it waits, it ends at once; if it runs, it is asked to end."""
        turn = selectors.turn(self.user, turn_id)
        cancel_turn(turn.pk)
        return AcceptedTurn(self.user, turn)


def turn_response(view: ApiView, turn: Turn) -> Response:
    """202 with the turn; with `Prefer: wait`, 200 if it ends in time."""
    if seconds := headers.seconds_to_wait(view.request):
        return AwaitedTurn(view.user, right_of(view.request), turn, seconds)
    return AcceptedTurn(view.user, turn)


class AcceptedTurn(Response):
    """202 with the turn and its Location."""

    def __init__(self, user: User, turn: Turn) -> None:
        body = TurnOut(selectors.as_shown(user, turn)).data
        super().__init__(
            body, status=status.HTTP_202_ACCEPTED, headers={"Location": f"/api/turns/{turn.pk}/"}
        )


class AwaitedTurn(AcceptedTurn):
    """A 202 that becomes 200 if the turn ends in time. Otherwise it shows the turn as it is by then."""

    def __init__(self, user: User, right: Right, turn: Turn, seconds: int) -> None:
        super().__init__(user, turn)
        self._user, self._right, self._turn, self._seconds = user, right, turn, seconds

    async def later(self, run: Run) -> None:
        """Wait. It stays as it is when too many requests wait, access was revoked, or the database is down."""
        with suppress(TooManyStreams, OperationalError, InterfaceError):
            ended = await until_ended(self._turn, self._right, self._seconds, run)
            if ended or not await run(partial(lapsed, [(self._right, self._turn.session_id)])):
                await run(self._show)

    def _show(self) -> None:
        with suppress(NotFound):  # the session was deleted meanwhile
            turn = selectors.turn(self._user, self._turn.pk)
            self.data = TurnOut(turn).data
            if turn.state not in OPEN_STATES:
                self.status_code = status.HTTP_200_OK
            self.content = self.rendered_content
            self["Content-Length"] = str(len(self.content))
        self["Preference-Applied"] = f"wait={self._seconds}"
