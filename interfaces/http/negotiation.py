"""The format of an answer: JSON, or a stream of events."""

from __future__ import annotations

from typing import Any

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer

ANY = "*/*"


class Negotiation(DefaultContentNegotiation):
    """DRF's negotiation, which takes as long as a query. Most requests leave it no choice."""

    def select_renderer(self, request: Any, renderers: Any, format_suffix: str | None = None) -> Any:
        """The renderer and its media type. NotAcceptable."""
        only = renderers[0] if len(renderers) == 1 else None
        if only is not None and request.headers.get("Accept", ANY) in {ANY, only.media_type}:
            return only, only.media_type
        return super().select_renderer(request, renderers, format_suffix)


class EventStreamRenderer(JSONRenderer):
    """Accepts `Accept: text/event-stream`; errors are still JSON problems."""

    media_type = "text/event-stream"
    format = "event-stream"
