"""Health endpoints: /healthz (this process) and /readyz (all that a turn needs)."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse

from config.operations.checks import READINESS_CHECKS, run_checks
from config.operations.findings import Finding
from interfaces.http.errors.problems import unlogged
from interfaces.http.watchers import is_watcher
from sessions_app.postgres.connection import time_limit

DATABASE_SECONDS = 0.8  # /readyz answers within 2 s, the broker's share included (rule 10.0)


def healthz(_request: HttpRequest) -> HttpResponse:
    """200 whenever the process answers."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """200 if a message sent now would be answered, else 503. Watchers also get the result of each check."""
    found = _readiness.check(getattr(request, "came_at", time.monotonic()))
    missing = [f"{name}: {finding.words}" for name, finding in found.items() if not finding.ok]
    parts = {name: _shown(finding) for name, finding in found.items()}
    answer: dict[str, Any] = {"ready": not missing}
    if is_watcher(request):
        answer |= {"missing": missing, "checks": parts}
    return unlogged(JsonResponse(answer, status=503 if missing else 200))


class _Readiness:
    """Runs the checks once at a time. All requests that arrived before a run ended share its result."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ended_at = float("-inf")
        self._found: dict[str, Finding] = {}

    def check(self, came_at: float) -> dict[str, Finding]:
        """The last result if it is newer than `came_at`, else a new one."""
        with self._guard:
            if self._ended_at < came_at:
                with time_limit(DATABASE_SECONDS):
                    self._found = run_checks(READINESS_CHECKS)
                self._ended_at = time.monotonic()
            return self._found


_readiness = _Readiness()


def _shown(finding: Finding) -> dict[str, Any]:
    """`{ok, state, detail}`; state is `ok`, `missing` or `unknown`."""
    state = "ok" if finding.ok and finding.seen else "unknown" if finding.ok else "missing"
    return {"ok": finding.ok, "state": state, "detail": finding.words}
