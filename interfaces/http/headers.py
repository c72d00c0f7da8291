"""ETags, and the request headers If-Match, Idempotency-Key, Prefer, Last-Event-ID and HX-Request."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, TypeVar

from django.http import HttpRequest
from rest_framework.request import Request

from sessions_app.events import Cursor
from sessions_app.exceptions import BadInput, RevisionConflict

LONGEST_KEY = 200  # characters of an Idempotency-Key
LONGEST_WAIT = 60  # seconds
_Basis = TypeVar("_Basis", int, str)
_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*")
_WAIT = re.compile(r'(?:^|[,\s])wait\s*=\s*"?([0-9]+)"?\s*(?:[;,]|$)', re.IGNORECASE)


def etag(basis: int | str, data: Any = None) -> str:
    """The ETag of a resource whose edits are checked against `basis`: its revision, or another text.

    `data`: the representation of a resource with fields that change by themselves; its hash follows the basis.
    """
    return f'"{basis}"' if data is None else f'"{basis}/{etag_of(data)[1:13]}"'


def etag_of(data: Any) -> str:
    """The ETag of a resource without a revision: a hash of its representation."""
    shown = json.dumps(data, sort_keys=True, default=str).encode()
    return f'"{hashlib.sha256(shown).hexdigest()[:32]}"'


def expected(request: Request, current: str) -> bool:
    """Check If-Match against `current`, the resource's ETag; False without a condition.

    BadInput `bad_if_match`; RevisionConflict when it does not match. A weak tag never matches (RFC 9110).
    """
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return False
    if not _TAGS.fullmatch(header.strip()):
        raise BadInput('If-Match must be `*` or tags in quotes, such as "3"', code="bad_if_match")
    if current not in re.findall(_TAG, header):
        raise RevisionConflict
    return True


def revision_expected(request: Request, basis: _Basis) -> _Basis | None:
    """The revision, or basis, that the change must find, to be checked again under the lock; None for any.

    If-Match compares only the basis: fields that change by themselves do not make an edit fail.
    """
    tags = re.findall(_TAG, request.headers.get("If-Match", ""))
    seen = next((tag for tag in tags if tag.startswith(f'"{basis}/')), etag(basis))
    return basis if expected(request, seen) else None


def idempotency_key(request: Request) -> str | None:
    """The Idempotency-Key, or None. BadInput `bad_idempotency_key`."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable():
        text = f"Idempotency-Key must be 1 to {LONGEST_KEY} printable ASCII characters"
        raise BadInput(text, code="bad_idempotency_key")
    return key


def turn_key(request: Request) -> str | None:
    """The Idempotency-Key as a turn stores it: with a prefix, unlike those of runs and hooks."""
    key = idempotency_key(request)
    if key is None:
        return None
    kept = f"api:{key}"
    return kept if len(kept) <= LONGEST_KEY else f"api-sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def seconds_to_wait(request: Request | HttpRequest) -> int:
    """N of `Prefer: wait=N`, at most 60; 0 without it. An invalid wait value is ignored (RFC 7240)."""
    found = _WAIT.search(request.headers.get("Prefer", ""))
    digits = found[1].lstrip("0")[:3] if found else ""  # three digits already exceed the limit
    return min(int(digits or "0"), LONGEST_WAIT)


def last_event(request: Request) -> Cursor | None:
    """The cursor after which a stream resumes: Last-Event-ID or ?last_event_id. BadInput `bad_cursor`."""
    header = request.headers.get("Last-Event-ID")
    text = header or request.query_params.get("last_event_id") or ""
    if not text:
        return None
    try:
        return Cursor.parse(text)
    except ValueError:
        text = f"{text[:40]!r} is not an event id of this server; connect without it"
        where = "Last-Event-ID" if header else "last_event_id"
        raise BadInput(text, code="bad_cursor", errors={where: [text]}) from None


def is_fragment(request: HttpRequest) -> bool:
    """Whether a part of a page is asked for, by a script on that page."""
    return request.headers.get("HX-Request") == "true"
