"""What describes the API to people and programs: the OpenAPI schema, its pages, and the page of all errors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from threading import Lock
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.cache import get_conditional_response
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.request import Request

from agent_core.text.formats import status_phrase
from interfaces.http.errors.codes import CODES
from interfaces.http.query import ChecksQuery, Parameter

ERRORS_INTRODUCTION = """# Errors

The `type` of an [error](api.md#errors) leads to its code on this page. `detail` and `errors` of the answer say which
value was wrong. A server shows this page under `/api/docs/errors/`.
"""
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
_texts: dict[str, bytes] = {}  # of the schema, by media type
_making = Lock()  # requests at the same time wait for one


class SchemaView(ChecksQuery, SpectacularAPIView):
    """The OpenAPI schema. It takes half a second of processor time and never changes, so each process makes it once."""

    schema = None  # it does not describe itself

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """The schema in the media type that is asked for; 304 for a client that has it."""
        renderer = request.accepted_renderer
        with _making:
            if renderer.media_type not in _texts:
                made: Any = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
                text: Any = renderer.render(made.data, renderer.media_type, {})
                _texts[renderer.media_type] = text if isinstance(text, bytes) else text.encode()
            text = _texts[renderer.media_type]
        tag = f'"{hashlib.sha256(renderer.media_type.encode() + text).hexdigest()[:32]}"'
        name = f'inline; filename="Rondo.{renderer.format}"'
        given = {"ETag": tag, "Content-Disposition": name}
        response = HttpResponse(text, content_type=renderer.media_type, headers=given)
        return get_conditional_response(request, etag=tag, response=response)


class DocsView(ChecksQuery, SpectacularSwaggerSplitView):
    """The schema as pages (Swagger UI). `?script` answers their script, which is a file of its own for the CSP."""

    takes = {"get": (Parameter(name="script"),)}


class ErrorsPage(ChecksQuery):
    """The page of all errors, to which the `type` of each leads. It is public, as answers without a token name it."""

    authentication_classes = []
    permission_classes = []
    schema = None
    http_method_names = ["get", "head"]

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:  # noqa: ARG002 - DRF's signature
        """Answer HTML, whatever type is asked for."""
        renderer = self.get_renderers()[0]
        return renderer, renderer.media_type

    def get(self, request: Request) -> HttpResponse:
        """The codes with their meanings."""
        shown = [
            (title, [(code, _LINK.sub(r"\1", meaning).replace("`", "")) for code, meaning in entries])
            for title, entries in _errors_by_status()
        ]
        return render(request._request, "web/errors.html", {"chapters": shown})  # noqa: SLF001 - Django's request


def errors_as_markdown() -> str:
    """Return the page of all errors as Markdown: the text of docs/errors.md."""
    parts = [ERRORS_INTRODUCTION]
    for title, entries in _errors_by_status():
        parts.append(f"## {title}\n")
        parts += [f"### {code}\n\n{meaning}\n" for code, meaning in entries]
    return "\n".join(parts)


def _errors_by_status() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for status_code, codes in CODES.items():
        yield f"{status_code} {status_phrase(status_code)}", sorted(codes.items())
