"""The OpenAPI schema. It takes half a second of processor time and never changes, so each process makes it once."""

from __future__ import annotations

import hashlib
from threading import Lock
from typing import Any

from django.http import HttpResponse
from drf_spectacular.views import SpectacularAPIView
from rest_framework import status
from rest_framework.request import Request

from interfaces.http import headers
from interfaces.http.query import ChecksQuery

_texts: dict[str, bytes] = {}  # by media type
_making = Lock()  # requests at the same time wait for one


class SchemaView(ChecksQuery, SpectacularAPIView):
    """The OpenAPI schema."""

    schema = None  # it does not describe itself

    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """The schema in the media type that is asked for; 304 for a client that has it."""
        renderer = request.accepted_renderer
        with _making:
            if renderer.media_type not in _texts:
                made: Any = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
                text: Any = renderer.render(made.data, renderer.media_type, {})
                _texts[renderer.media_type] = text if isinstance(text, bytes) else text.encode()
            text = _texts[renderer.media_type]
        tag = f'"{hashlib.sha256(renderer.media_type.encode() + text).hexdigest()[:32]}"'
        if headers.is_known(request, tag):
            return HttpResponse(status=status.HTTP_304_NOT_MODIFIED, headers={"ETag": tag})
        name = f'inline; filename="Rondo.{renderer.format}"'
        given = {"ETag": tag, "Content-Disposition": name}
        return HttpResponse(text, content_type=renderer.media_type, headers=given)
