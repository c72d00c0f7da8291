"""Tokens of hooks and the signatures made with them. A token is shown once and stored nowhere.

It follows from the server's secret key and a salt in the hook's row: so a signature can be checked although the token
did not come along with it, and who reads the database alone can make neither.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode

from django.utils.crypto import salted_hmac

from sessions_app.channels import webhook
from sessions_app.models import Hook

PREFIX = "rin_"
_PURPOSE = "rondo.hook"


def renew(hook: Hook) -> str:
    """Give the hook another token; the row is the caller's to save."""
    hook.token_salt = secrets.token_hex(16)
    token = token_of(hook)
    hook.token_sha256 = _hash(token)
    return token


def token_of(hook: Hook) -> str:
    """The token, made again. It is another one, which no hook takes, once the server has another secret key."""
    made = salted_hmac(_PURPOSE, f"{hook.pk}:{hook.token_salt}", algorithm="sha256").digest()
    return PREFIX + urlsafe_b64encode(made).decode().rstrip("=")


def is_token_of(hook: Hook, token: str) -> bool:
    """Whether the token is this hook's; it takes as long for any."""
    return hmac.compare_digest(_hash(token), hook.token_sha256)


def sign(token: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The signature of a message, by the scheme that webhooks are signed by."""
    return webhook.sign(token.encode(), message_id, timestamp, body)


def is_signed(header: str, signature: str) -> bool:
    """Whether one of the signatures in the header is this one; it takes as long for any."""
    return True in [hmac.compare_digest(each.encode(), signature.encode()) for each in header.split()]


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
