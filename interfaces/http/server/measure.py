"""Metrics of this process's HTTP requests. Each web process has its own, so Prometheus scrapes each."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpRequest
from prometheus_client import Counter, Histogram

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
NO_ROUTE = "none"  # an address that leads nowhere, or a request that no thread took: clients choose no labels

REQUESTS = Counter(
    "rondo_http_requests", "Answered HTTP requests of this process.", ["method", "route", "status"]
)
DURATION = Histogram(
    "rondo_http_request_duration_seconds",
    "Seconds until the head of an answer was ready. Streams and waits by Prefer go on after it.",
    ["method", "route"],
    buckets=BUCKETS,
)


def count_request(request: HttpRequest, status: int) -> None:
    """Count an answer; `request.came_at` is when its request came."""
    match = getattr(request, "resolver_match", None)
    route = f"/{match.route}" if match is not None and match.route is not None else NO_ROUTE
    method = request.method if request.method in METHODS else "other"
    came_at: Any = getattr(request, "came_at", None)
    REQUESTS.labels(method, route, f"{status // 100}xx").inc()
    if came_at is not None:
        DURATION.labels(method, route).observe(time.monotonic() - came_at)
