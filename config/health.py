"""What watches the server: /healthz (this process), /readyz (what a turn needs)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse

from config.checks import READY, looked_at
from config.errors import unlogged
from sessions_app.doctor import Finding


def healthz(_request: HttpRequest) -> HttpResponse:
    """The process answers; nothing else is asked."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(_request: HttpRequest) -> HttpResponse:
    """200 when a message sent now would be answered, else 503; the parts by name."""
    found = looked_at(READY)
    missing = [f"{name}: {finding.words}" for name, finding in found.items() if not finding.ok]
    parts = {name: _shown(finding) for name, finding in found.items()}
    answer = {"ready": not missing, "missing": missing, "checks": parts}
    return unlogged(JsonResponse(answer, status=503 if missing else 200))


def _shown(finding: Finding) -> dict[str, Any]:
    """`{ok, state, detail}`; state is `ok`, `missing` or `unknown`."""
    state = "ok" if finding.ok and finding.seen else "unknown" if finding.ok else "missing"
    return {"ok": finding.ok, "state": state, "detail": finding.words}
