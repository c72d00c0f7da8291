"""The address and its endpoint: checks a request as the API does, then the SDK answers it on the event loop.

Each POST is complete in itself, so any web process answers it and no session is kept. The SDK is imported with the
first request: a server that nobody uses costs no memory.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from django.urls import path
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from interfaces.http.auth import READ, TokenAuthentication
from interfaces.http.base import ApiView
from interfaces.http.errors.problems import problem_in
from interfaces.http.strict_json import TooManyValues, read_json

WAITING_TOOLS = frozenset({"ask", "get_answer", "answer_question"})
SHOWS_QUESTIONS = "elicits-"  # begins the session ids of asking.py, which imports the SDK
PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603  # codes of JSON-RPC


def refused(status: int, code: int, text: str, like: HttpResponse | None = None) -> HttpResponse:
    """A JSON-RPC error that belongs to no request id. `like`: the API's own answer."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}}
    return problem_in(body, status, like)


class BearerAuthentication(TokenAuthentication):
    """The API's token, asked for as `Bearer`."""

    def authenticate_header(self, request: Any) -> str:  # noqa: ARG002 - the signature is DRF's
        """The `WWW-Authenticate` of a 401."""
        return 'Bearer realm="rondo"'


class McpView(ApiView):
    """One JSON-RPC message for each POST. There is nothing to GET: the server sends no messages of its own."""

    scopes = {"post": READ}
    within_limits = {"post"}
    authentication_classes = [BearerAuthentication]  # never a browser's cookie
    http_method_names = ["post"]
    schema = None

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:  # noqa: ARG002 - DRF's signature
        """The SDK negotiates."""
        renderer = self.get_renderers()[0]
        return renderer, renderer.media_type

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the Origin, then as the API."""
        check_origin(request)
        super().initial(request, *args, **kwargs)

    def post(self, request: Request) -> HttpResponseBase:
        """Answer a message."""
        try:
            given = read_json(request.body.decode())
        except TooManyValues as error:
            return refused(413, INVALID_REQUEST, f"The body is too large: {error}.")
        except ValueError as error:  # also UnicodeDecodeError
            text = "it is not encoded in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            return refused(400, PARSE_ERROR, f"The body is not JSON: {text}.")
        # loaded with the first request, and in a thread: it takes seconds and 36 MB
        from interfaces.mcp_server.exchange import SdkResponse

        return SdkResponse(request, given, streams=is_streamed(request, given))

    def handle_exception(self, exc: Exception) -> Any:
        """The API's refusal, as a JSON-RPC error with the same status and headers."""
        answer: Any = super().handle_exception(exc)
        code = INTERNAL_ERROR if answer.status_code >= 500 else INVALID_REQUEST
        return refused(answer.status_code, code, json.loads(answer.content)["detail"], like=answer)


def check_origin(request: Request) -> None:
    """PermissionDenied for a page of another site, as MCP requires against DNS rebinding. Programs send no Origin."""
    origin = request.headers.get("Origin")
    allowed = {*settings.CSRF_TRUSTED_ORIGINS, *settings.RONDO_CORS_ORIGINS}
    if origin is None or allowed & {origin, "*"}:
        return
    given = urlsplit(origin)
    if given.scheme not in {"http", "https"} or given.netloc != request.get_host():
        raise PermissionDenied("This Origin may not use the MCP server.")


def is_streamed(request: Request, given: Any) -> bool:
    """Whether the answer may be a stream: for a tool that waits, if the client wants progress or shows questions."""
    params = given.get("params") if isinstance(given, dict) else None
    if not isinstance(params, dict) or given.get("method") != "tools/call":
        return False
    meta = params.get("_meta")
    wants_progress = isinstance(meta, dict) and meta.get("progressToken") is not None
    shows_questions = request.headers.get("Mcp-Session-Id", "").startswith(SHOWS_QUESTIONS)
    takes = "text/event-stream" in request.headers.get("Accept", "")
    return takes and params.get("name") in WAITING_TOOLS and (wants_progress or shows_questions)


urlpatterns = [path("", McpView.as_view(), name="mcp")]
