"""GET /: where a browser goes on from the address that `up` prints first."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Links to what people open."""
    return render(request, "home.html")
