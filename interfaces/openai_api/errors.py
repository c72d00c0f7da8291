"""Errors in the form that clients of the OpenAI API expect: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from interfaces.http.auth import TokenAuthentication
from interfaces.http.base import ApiView
from interfaces.http.errors.problems import problem_in
from sessions_app.exceptions import BadInput
from sessions_app.sessions.client_answers import ClientAnswer

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
LONGEST_SHOWN = 200  # characters of a text with an address
CODES = {"not_authenticated": "invalid_api_key", "throttled": "rate_limit_exceeded"}


class BadParam(BadInput):
    """A field of the request has a value that is not served; `param` names it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message, code="unsupported_value", param=param)


def error_body(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    """The error as its object."""
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": CODES.get(code, code)}}


@csrf_exempt
def unknown_address(request: HttpRequest) -> JsonResponse:
    """404 for an address under /v1/ that this API does not have."""
    text = f"There is nothing at this address: {request.method} {request.path}"[:LONGEST_SHOWN]
    return JsonResponse(error_body(404, "not_found", text), status=404)


def turn_error(answer: ClientAnswer, turn_id: int) -> dict[str, Any]:
    """The error of a turn that has not succeeded: what people see of it, without the provider's own words."""
    text = answer.error or f"The turn was {answer.state}."
    return error_body(500, answer.error_code or answer.state, f"{text} (turn {turn_id})")


class DoorView(ApiView):
    """A view of this API: authenticated by a token alone, and not part of our own schema."""

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
