"""Once: a create that is sent twice happens once. The key and what was created are one transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now

from sessions_app.exceptions import IdempotencyMismatch
from sessions_app.models import IdempotencyKey

KEPT = timedelta(days=1)
MOST_FORGOTTEN = 100  # old keys removed along with each new one


@dataclass(frozen=True, kw_only=True)
class Request:
    """A create as it came: `address` is method and path, `data` the body's value."""

    user_id: int
    address: str
    key: str
    data: Any

    @property
    def body_sha256(self) -> str:
        """Of the body's meaning: spaces and the order of keys do not count."""
        return hashlib.sha256(json.dumps(self.data, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a create answers; `body` is ready for JSON."""

    body: dict[str, Any]
    location: str
    status: int = 201


def once(request: Request, create: Callable[[], Answer]) -> Answer:
    """The answer of the first request of this key. IdempotencyMismatch for another body, and what `create` raises.

    Of two at once the second waits for the first at the unique key. A refusal leaves no key behind.
    """
    with transaction.atomic():
        if _insert(request):
            answer = create()
            IdempotencyKey.objects.filter(
                user=request.user_id, address=request.address, key=request.key
            ).update(status=answer.status, body=json.dumps(answer.body), location=answer.location)
            _forget()
            return answer
    earlier = IdempotencyKey.objects.get(user=request.user_id, address=request.address, key=request.key)
    if earlier.body_sha256 != request.body_sha256:
        raise IdempotencyMismatch
    return Answer(status=earlier.status, body=json.loads(earlier.body), location=earlier.location)


def _insert(request: Request) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sessions_app_idempotencykey (user_id, address, key, body_sha256, status, body, location)"
            " VALUES (%s, %s, %s, %s, 0, '', '') ON CONFLICT DO NOTHING",
            [request.user_id, request.address, request.key, request.body_sha256],
        )
        return bool(cursor.rowcount)


def _forget() -> None:
    old = IdempotencyKey.objects.filter(created_at__lt=Now() - KEPT).order_by("created_at")
    locked = old.select_for_update(skip_locked=True).values_list("pk", flat=True)[:MOST_FORGOTTEN]
    IdempotencyKey.objects.filter(pk__in=list(locked)).delete()
