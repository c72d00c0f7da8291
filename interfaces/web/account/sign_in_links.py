"""Links that sign a user in once. `manage.py up` prints one, and so does `manage.py sign_in_link`.

The token has 256 random bits. The database has only its hash, so somebody who reads the database has no link.
"""

from __future__ import annotations

import re
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now

from sessions_app.models import SignInLink
from sessions_app.tokens.secret import hashed, new_secret

VALID = timedelta(minutes=10)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
# Of two requests at once the second waits for the first to commit, reads the row again and finds it used.
_REDEEM = """
UPDATE sessions_app_signinlink AS l SET used_at = now() FROM auth_user AS u
WHERE l.token_sha256 = %s AND l.used_at IS NULL AND l.expires_at > now() AND u.id = l.user_id AND u.is_active
RETURNING u.id"""


def issue(user: User) -> str:
    """Create a link. Returns its path, `/enter/<token>/`, which is not stored."""
    token = new_secret()
    SignInLink.objects.create(user=user, token_sha256=hashed(token), expires_at=Now() + VALID)
    return f"/enter/{token}/"


def is_valid(token: str) -> bool:
    """Whether the link would sign somebody in now."""
    if not _TOKEN.fullmatch(token):
        return False
    found = SignInLink.objects.filter(token_sha256=hashed(token), used_at=None, expires_at__gt=Now())
    return found.filter(user__is_active=True).exists()


def redeem(token: str) -> User | None:
    """Use the link up. Returns its user; None if it was used, has expired, is unknown or its user is inactive."""
    if not _TOKEN.fullmatch(token):
        return None
    with connection.cursor() as cursor:
        cursor.execute(_REDEEM, [hashed(token)])
        row = cursor.fetchone()
    return User.objects.get(pk=row[0]) if row else None
