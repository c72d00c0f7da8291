"""Idempotent creates: a request that is sent twice takes effect once.

The key is stored in the same transaction as what was created.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
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
        row, is_new = IdempotencyKey.objects.get_or_create(
            user_id=request.user_id,
            address=request.address,
            key=request.key,
            defaults={"body_sha256": request.body_sha256},
        )
        if is_new:
            answer = create()
            row.status, row.body, row.location = answer.status, json.dumps(answer.body), answer.location
            row.save(update_fields=["status", "body", "location"])
            _delete_old_keys()
            return answer
    if row.body_sha256 != request.body_sha256:
        raise IdempotencyMismatch
    return StoredAnswer(status=row.status, body=json.loads(row.body), location=row.location)


def _delete_old_keys() -> None:
    old = IdempotencyKey.objects.filter(created_at__lt=Now() - IDEMPOTENCY_KEPT).order_by("created_at")
    locked = old.select_for_update(skip_locked=True).values_list("pk", flat=True)[:MOST_FORGOTTEN]
    IdempotencyKey.objects.filter(pk__in=list(locked)).delete()
