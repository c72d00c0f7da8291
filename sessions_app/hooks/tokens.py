"""Tokens of hooks. A token is shown once and not stored.

It is derived from the server's secret key and a salt in the hook's row. So the server can check a signature without
being sent the token, and somebody who reads only the database can make neither.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode

from django.utils.crypto import salted_hmac

from sessions_app.models import Hook
from sessions_app.tokens.issue import hashed

PREFIX = "rin_"
_PURPOSE = "rondo.hook"


def renew(hook: Hook) -> str:
    """Set a new token on the hook and return it; the caller saves the row."""
    hook.token_salt = secrets.token_hex(16)
    token = token_of(hook)
    hook.token_sha256 = hashed(token)
    return token


def token_of(hook: Hook) -> str:
    """Derive the token again. After a change of SECRET_KEY the result is a different, invalid token."""
    made = salted_hmac(_PURPOSE, f"{hook.pk}:{hook.token_salt}", algorithm="sha256").digest()
    return PREFIX + urlsafe_b64encode(made).decode().rstrip("=")


def is_token_of(hook: Hook, token: str) -> bool:
    """Whether the token is this hook's, compared in constant time."""
    return hmac.compare_digest(hashed(token), hook.token_sha256)


def is_signed(header: str, signature: str) -> bool:
    """Whether the header has this signature among others, separated by spaces, compared in constant time."""
    return True in [hmac.compare_digest(each.encode(), signature.encode()) for each in header.split()]
