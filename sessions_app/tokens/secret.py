"""Random secrets of which only the hash is stored."""

from __future__ import annotations

import hashlib
import secrets

PREFIX = "rdo_"  # of a token, so that programs that look for leaked secrets recognize one
LONGEST = 200  # characters of a text that is worth hashing


def new_secret() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def hashed(secret: str) -> str:
    """Return the hash. The secrets are random, so no slow hash is needed against guessing."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
