"""The addresses under `/v1/` and their views: agents as models, and chat completions."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.urls import path, re_path, reverse
from django.views.decorators.csrf import csrf_exempt
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from interfaces.http.auth import READ, TALK, TokenAuthentication, right_of
from interfaces.http.base import ApiView, EventStreamRenderer
from interfaces.http.errors.problems import problem_in
from interfaces.openai_api.answers import (
    DONE,
    Completion,
    Reply,
    StreamedAnswer,
    WholeAnswer,
    error_body,
    news_text,
)
from interfaces.openai_api.requests import PROTOCOL, CompletionRequest, answer_task, read_request
from sessions_app.models import Agent
from sessions_app.reads import selectors
from sessions_app.sessions import client_answers, client_chats
from sessions_app.streams.hub import beginning
from sessions_app.streams.reader import StreamReader

MOST_MODELS = 1_000


LONGEST_SHOWN = 200  # characters of a text with an address


class OpenAIView(ApiView):
    """A view of the OpenAI-compatible API. It accepts tokens only, and is left out of the OpenAPI schema of `/api/`."""

    authentication_classes = [TokenAuthentication]
    schema = None

    def handle_exception(self, exc: Exception) -> Any:
        """The error that every view of ours answers, in the form of this API. Bugs are raised."""
        answer: Any = super().handle_exception(exc)
        given, status = json.loads(answer.content), answer.status_code
        body = error_body(status, given["code"], given["detail"], given.get("param"))
        shown = problem_in(body, status, like=answer)
        if status in {409, 422}:
            shown["X-Should-Retry"] = "false"  # the official clients would repeat a 409
        return shown


class ModelList(OpenAIView):
    scopes = {"get": READ}
    within_limits = {"get"}

    def get(self, _request: Request) -> JsonResponse:
        """The user's agents."""
        rows = selectors.agents(self.user, to_ask=True).order_by("name")[:MOST_MODELS]
        return JsonResponse({"object": "list", "data": [_model(each) for each in rows]})


class ModelDetail(OpenAIView):
    scopes = {"get": READ}

    def get(self, _request: Request, name: str) -> JsonResponse:
        """One agent."""
        return JsonResponse(_model(selectors.agent(self.user, name, to_ask=True)))


def _model(agent: Agent) -> dict[str, Any]:
    return {
        "id": agent.name,
        "object": "model",
        "created": int(agent.created_at.timestamp()),
        "owned_by": "rondo",
    }


class ChatCompletions(OpenAIView):
    scopes = {"post": TALK}
    within_limits = {"post"}
    renderer_classes = [JSONRenderer, EventStreamRenderer]

    def post(self, request: Request) -> HttpResponseBase:
        """Answer the last message of a chat."""
        given = read_request(request)
        agent = selectors.agent(self.user, given.model, to_ask=True)
        title = client_chats.chat_title(self.user, agent, PROTOCOL, given.history.key)
        if (text := answer_task(given.shown, title)) is not None:
            return _answer_at_once(given, text)
        if not given.streams:
            return WholeAnswer(self._accept(request, agent, given))
        reader = StreamReader(right_of(request))  # before the message is stored: too many streams are refused
        try:
            return StreamedAnswer(self._accept(request, agent, given), reader)
        except BaseException:
            reader.close()
            raise

    def _accept(self, request: Request, agent: Agent, given: CompletionRequest) -> Reply:
        since = beginning()  # before the message is stored: all events of its turn come later
        accepted = client_chats.accept(self.user, agent, given.history)
        return Reply(
            accepted=accepted,
            completion=Completion(id=f"chatcmpl-{accepted.turn.pk}", model=given.model),
            right=right_of(request),
            since=since,
            page=request.build_absolute_uri(reverse("conversation", args=[accepted.row.chat_id])),
            news=news_text(client_answers.news_of(accepted.row), agent.zone),
            with_usage=given.with_usage,
        )


def _answer_at_once(given: CompletionRequest, text: str) -> HttpResponseBase:
    """An answer without a turn."""
    completion = Completion(id="chatcmpl-0", model=given.model)
    if not given.streams:
        return JsonResponse(completion.whole(text, {}))
    chunks = [completion.chunk({"role": "assistant", "content": text}), completion.chunk({}, "stop")]
    chunks += [completion.usage({})] if given.with_usage else []
    return StreamingHttpResponse([*chunks, DONE], content_type="text/event-stream")


@csrf_exempt
def unknown_address(request: HttpRequest) -> JsonResponse:
    """404 for an address under /v1/ that this API does not have."""
    text = f"There is nothing at this address: {request.method} {request.path}"[:LONGEST_SHOWN]
    return JsonResponse(error_body(404, "not_found", text), status=404)


urlpatterns = [
    path("chat/completions", ChatCompletions.as_view()),
    path("models", ModelList.as_view()),
    path("models/<str:name>", ModelDetail.as_view()),
    re_path("", unknown_address),
]
