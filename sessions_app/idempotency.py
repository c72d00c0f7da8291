"""Idempotent creates: a request that is sent twice takes effect once.

The key is stored in the same transaction as what was created.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now

from sessions_app.exceptions import IdempotencyMismatch
from sessions_app.models import IdempotencyKey
from sessions_app.models.access import IDEMPOTENCY_KEPT

MOST_FORGOTTEN = 100  # old keys that each new one removes


@dataclass(frozen=True, kw_only=True)
class IdempotentRequest:
    """A create request: `address` is method and path, `data` the parsed body."""

    user_id: int
    address: str
    key: str
    data: Any

    @property
    def body_sha256(self) -> str:
        """Hash of the parsed body, so that whitespace and the order of keys do not matter."""
        return hashlib.sha256(json.dumps(self.data, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class StoredAnswer:
    """The response to a create; `body` can be serialized as JSON."""

    body: dict[str, Any]
    location: str
    status: int = 201


def idempotent(request: IdempotentRequest, create: Callable[[], StoredAnswer]) -> StoredAnswer:
    """Run `create` once for each key; repeats get the stored response. IdempotencyMismatch, and what `create` raises.

    Of two concurrent requests the second waits for the first at the unique key. An error stores no key.
    """
    with transaction.atomic():
        if _insert(request):
            answer = create()
            IdempotencyKey.objects.filter(
                user=request.user_id, address=request.address, key=request.key
            ).update(status=answer.status, body=json.dumps(answer.body), location=answer.location)
            _delete_old_keys()
            return answer
    earlier = IdempotencyKey.objects.get(user=request.user_id, address=request.address, key=request.key)
    if earlier.body_sha256 != request.body_sha256:
        raise IdempotencyMismatch
    return StoredAnswer(status=earlier.status, body=json.loads(earlier.body), location=earlier.location)


def _insert(request: IdempotentRequest) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sessions_app_idempotencykey (user_id, address, key, body_sha256, status, body, location)"
            " VALUES (%s, %s, %s, %s, 0, '', '') ON CONFLICT DO NOTHING",
            [request.user_id, request.address, request.key, request.body_sha256],
        )
        return bool(cursor.rowcount)


def _delete_old_keys() -> None:
    old = IdempotencyKey.objects.filter(created_at__lt=Now() - IDEMPOTENCY_KEPT).order_by("created_at")
    locked = old.select_for_update(skip_locked=True).values_list("pk", flat=True)[:MOST_FORGOTTEN]
    IdempotencyKey.objects.filter(pk__in=list(locked)).delete()
