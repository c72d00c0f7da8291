"""Tokens for callers of the API. They count as just used, so that no request stores that again."""

import hashlib
from contextlib import suppress
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from sessions_app.models import ApiToken, TokenScope
from sessions_app.tokens.issue import NewToken, make_token


def token_of(user: User) -> str:
    """The user's token for everything; the same text each time."""
    secret = f"test-{hashlib.sha256(user.get_username().encode()).hexdigest()[:40]}"
    if not ApiToken.objects.filter(user=user, name="test").exists():
        with suppress(IntegrityError), transaction.atomic():  # another thread may have made it meanwhile
            new_token(user, "manage", name="test", secret=secret)
    return secret


def new_token(user: User, *scopes: str, name: str = "another", secret: str = "", **limits: Any) -> str:
    """Another token of the user. `limits`: `agent`, `session`, `expires_at`."""
    new = NewToken(name=name, scopes=[TokenScope(each) for each in scopes], **limits)
    row, secret = make_token(user, new, secret)
    ApiToken.objects.filter(pk=row.pk).update(last_used_at=Now())
    return secret
