"""The version of the API under /api/: named in every answer, and checked where a client asks for one."""

from __future__ import annotations

from typing import Any

from django.http.response import HttpResponseBase

from interfaces.doors import API, API_VERSION, VERSION_HEADER
from interfaces.http.errors.problems import problem

LONGEST_SHOWN = 20  # characters of an unknown version in an error


def api_version(get_response: Any) -> Any:
    """Django middleware: names the version in answers, and refuses one that this server does not have."""

    def answer(request: Any) -> HttpResponseBase:
        if not request.path.startswith(API):
            response: HttpResponseBase = get_response(request)
            return response
        asked = request.headers.get(VERSION_HEADER, API_VERSION)
        response = get_response(request) if asked == API_VERSION else _unknown(asked)
        response.headers[VERSION_HEADER] = API_VERSION
        return response

    return answer


def _unknown(asked: str) -> HttpResponseBase:
    text = f"unknown version {asked[:LONGEST_SHOWN]!r} of the API; this server has {API_VERSION}"
    return problem(400, "unknown_version", text, errors={VERSION_HEADER: [text]})
