"""Encrypts secrets that the server must send to others, such as API keys and bot tokens, so that no row holds them.

The keys are derived from SECRET_KEY and from each of SECRET_KEY_FALLBACKS. Secrets are encrypted with SECRET_KEY; those
that were encrypted with a former key can be read while that key is a fallback.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from sessions_app.exceptions import UnreadableSecret

_LABEL = "rondo stored secret: "
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of the curve P-256


def encrypt(secret: str, purpose: str) -> str:
    """Return the secret as ciphertext, in ASCII; empty for an empty secret.

    `purpose` names the kind of secret, such as `connection`. A ciphertext can be read for its own purpose only.
    """
    return _keys(purpose).encrypt(secret.encode()).decode() if secret else ""


def decrypt(ciphertext: str, purpose: str) -> str:
    """Return the secret. UnreadableSecret, which contains neither of the two."""
    if not ciphertext:
        return ""
    try:
        return _keys(purpose).decrypt(ciphertext.encode()).decode()
    except (InvalidToken, UnicodeError):
        raise UnreadableSecret from None


def renew(ciphertext: str, purpose: str) -> str:
    """Return the same secret encrypted with SECRET_KEY, for a row that is written again. UnreadableSecret."""
    return encrypt(decrypt(ciphertext, purpose), purpose)


def renew_all(rows: QuerySet[Any], column: str, purpose: str) -> tuple[int, list[str]]:
    """Encrypt the secrets in this column of the rows with SECRET_KEY. Returns their number, and names of rows whose
    secret cannot be read.
    """
    renewed, unreadable = 0, []
    for pk in rows.order_by("pk").values_list("pk", flat=True):
        with transaction.atomic():
            row = rows.select_for_update(no_key=True).filter(pk=pk).first()
            if row is None:  # it was deleted meanwhile
                continue
            try:
                setattr(row, column, renew(getattr(row, column), purpose))
            except UnreadableSecret:
                unreadable.append(str(row))
                continue
            row.save(update_fields=[column])
            renewed += 1
    return renewed, unreadable


def signing_keys(purpose: str) -> list[ec.EllipticCurvePrivateKey]:
    """The keys on P-256 that sign for this purpose, the same in every process: of SECRET_KEY, then of former keys."""
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    numbers = [int.from_bytes(urlsafe_b64decode(_derive(key, purpose))) for key in keys]
    return [ec.derive_private_key(number % (_ORDER - 1) + 1, ec.SECP256R1()) for number in numbers]


def _keys(purpose: str) -> MultiFernet:
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return MultiFernet([Fernet(_derive(key, purpose)) for key in keys])


def _derive(key: str, purpose: str) -> bytes:
    """A key of 32 bytes. SECRET_KEY is random text, so no slow function is needed."""
    info = (_LABEL + purpose).encode()
    return urlsafe_b64encode(HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key.encode()))
