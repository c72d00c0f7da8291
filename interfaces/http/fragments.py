"""Whether a request asks for a part of a page. Errors are answered by it before the apps are loaded."""

from __future__ import annotations

from django.http import HttpRequest


def is_fragment(request: HttpRequest) -> bool:
    """Whether a part of a page is asked for, by a script on that page."""
    return request.headers.get("HX-Request") == "true"
