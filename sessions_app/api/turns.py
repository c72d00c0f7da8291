"""Messages and the turns they become."""

from __future__ import annotations

import uuid
from functools import update_wrapper
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.http import HttpRequest
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import selectors
from sessions_app.api import conditions
from sessions_app.api.base import KEY, ApiView, shown
from sessions_app.api.shapes import MessageOut, NewMessage, TurnOut
from sessions_app.cancel import cancel_turn
from sessions_app.models import OnBusy
from sessions_app.receive import Input, receive
from sessions_app.waiting import until_ended

PREFER = OpenApiParameter(
    "Prefer",
    str,
    OpenApiParameter.HEADER,
    description="`wait=N`: answer 200 with the finished turn, N ≤ 60 seconds.",
)


class MessageList(ApiView):
    ordering = ("seq",)
    refuses = {"post": (409,)}

    @extend_schema(responses=MessageOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """The history, the oldest first."""
        return self.page(selectors.messages(self.user, session_id), MessageOut)

    @extend_schema(
        parameters=[PREFER, KEY],
        request=NewMessage,
        responses={202: TurnOut, 200: OpenApiResponse(TurnOut, "With `Prefer: wait`: the turn has ended.")},
    )
    def post(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Send a message; it becomes a turn, in a thread of a unified agent one of the primary session."""
        selectors.session(self.user, session_id)
        given = self.read(NewMessage)
        message = Input(
            content=given["content"],
            on_busy=OnBusy(given.get("on_busy", OnBusy.INJECT)),
            idempotency_key=conditions.turn_key(conditions.idempotency_key(self.request)),
        )
        return accepted(self.user, receive(session_id, message).pk)


class TurnList(ApiView):
    ordering = ("-id",)

    @extend_schema(responses=TurnOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """The session's turns, the newest first."""
        return self.page(selectors.turns_of(self.user, session_id), TurnOut)


class TurnDetail(ApiView):
    @extend_schema(responses=TurnOut)
    def get(self, _request: Request, turn_id: int) -> Response:
        """One turn."""
        return shown(TurnOut(selectors.turn(self.user, turn_id)).data)


class TurnCancel(ApiView):
    refuses = {"post": (409,)}

    @extend_schema(request=None, responses={202: TurnOut})
    def post(self, _request: Request, turn_id: int) -> Response:
        """Cancel a turn: one that waits ends at once, one that runs is asked to end itself."""
        turn = selectors.turn(self.user, turn_id)
        cancel_turn(turn.pk)
        return accepted(self.user, turn.pk)


def accepted(user: User, turn_id: int) -> Response:
    """202 with the turn and its address."""
    body = TurnOut(selectors.turn(user, turn_id)).data
    return Response(body, status=status.HTTP_202_ACCEPTED, headers={"Location": f"/api/turns/{turn_id}/"})


_messages = MessageList.as_view()


async def messages(request: HttpRequest, session_id: uuid.UUID) -> Any:
    """MessageList; a client that prefers to wait does so here, where no thread waits with it."""
    response = await sync_to_async(_messages)(request, session_id=session_id)
    if request.method != "POST" or response.status_code != status.HTTP_202_ACCEPTED:
        return response
    seconds = conditions.seconds_to_wait(request)
    # the turn's session, which is another one in a thread of a unified agent
    session_id = uuid.UUID(response.data["session"])
    if seconds and await until_ended(session_id, response.data["id"], seconds):
        await sync_to_async(_finish)(
            response, cast("User", request.user)
        )  # DRF has put the token's user there
        response["Preference-Applied"] = f"wait={seconds}"
    return response


def _finish(response: Response, user: User) -> None:
    turn = selectors.turns(user).filter(pk=response.data["id"]).first()
    if turn is not None:  # else the session was deleted meanwhile
        response.data, response.status_code = TurnOut(turn).data, status.HTTP_200_OK


update_wrapper(messages, _messages)  # DRF's marks: the schema finds the view, CSRF is left to DRF
