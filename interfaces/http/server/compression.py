"""Compress pages and static files. Event streams and the API's JSON are sent as they are."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

TYPES = ("text/html", "text/css", "text/javascript", "image/svg+xml")


class CompressPages(GZipMiddleware):
    """Django's middleware for these types only: it would hold back the events of a stream.

    It pads its output by a random length against attacks that measure it (BREACH).
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """The compressed response, if the client takes it."""
        is_ours = response.headers.get("Content-Type", "").startswith(TYPES)
        return super().process_response(request, response) if is_ours else response
