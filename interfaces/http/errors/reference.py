"""The page of all errors, to which the `type` of each leads: docs/errors.md, and the same under /api/docs/errors/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from rest_framework.request import Request

from agent_core.text.formats import status_phrase
from interfaces.http.errors.codes import CODES
from interfaces.http.query import ChecksQuery

INTRODUCTION = """# Errors

The `type` of an [error](api.md#errors) leads to its code on this page. `detail` and `errors` of the answer say which
value was wrong. A server shows this page under `/api/docs/errors/`.
"""
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def chapters() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Titles of the statuses, each with its codes in alphabetical order and their meanings."""
    for status, codes in CODES.items():
        yield f"{status} {status_phrase(status)}", sorted(codes.items())


def markdown() -> str:
    """The text of docs/errors.md."""
    parts = [INTRODUCTION]
    for title, entries in chapters():
        parts.append(f"## {title}\n")
        parts += [f"### {code}\n\n{meaning}\n" for code, meaning in entries]
    return "\n".join(parts)


class ErrorsPage(ChecksQuery):
    """The page on this server. It is public: answers to requests without a token name it, too."""

    authentication_classes = []
    permission_classes = []
    schema = None
    http_method_names = ["get", "head"]

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:  # noqa: ARG002 - DRF's signature
        """It is HTML, whatever is asked for."""
        renderer = self.get_renderers()[0]
        return renderer, renderer.media_type

    def get(self, request: Request) -> HttpResponse:
        """The codes with their meanings."""
        shown = [
            (title, [(code, _LINK.sub(r"\1", meaning).replace("`", "")) for code, meaning in entries])
            for title, entries in chapters()
        ]
        return render(request._request, "web/errors.html", {"chapters": shown})  # noqa: SLF001 - Django's request
