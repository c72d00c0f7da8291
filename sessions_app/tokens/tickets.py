"""Tickets for browsers, whose EventSource cannot send a token in a header: each opens one stream, by its address."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.functions import Now

from sessions_app.exceptions import TooManyTickets
from sessions_app.models import ApiToken, StreamTicket
from sessions_app.postgres.rows import fetch
from sessions_app.tokens.issue import valid_token
from sessions_app.tokens.reach import share_of_limited
from sessions_app.tokens.secret import LONGEST, hashed, new_secret

VALID = timedelta(seconds=60)
MOST_OPEN = 100  # unused tickets of one user; a limited token may have half of them
_REDEEM = """
DELETE FROM sessions_app_streamticket WHERE ticket_sha256 = %s AND expires_at > now() RETURNING token_id"""


def issue_ticket(token: ApiToken) -> tuple[str, datetime]:
    """Make a ticket. Returns it and the time when it expires. TooManyTickets."""
    ticket = new_secret()
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=token.user_id)
        is_open = StreamTicket.objects.filter(token__user=token.user_id, expires_at__gt=Now())
        if is_open.count() >= MOST_OPEN or (
            token.is_limited and is_open.filter(token=token).count() >= share_of_limited(MOST_OPEN)
        ):
            raise TooManyTickets
        row = StreamTicket.objects.create(token=token, ticket_sha256=hashed(ticket), expires_at=Now() + VALID)
        row.refresh_from_db(fields=["expires_at"])
    return ticket, row.expires_at


def redeem_ticket(ticket: str) -> ApiToken | None:
    """Return the ticket's token if both are valid now, and delete the ticket, which can be used only once."""
    if len(ticket) > LONGEST:
        return None
    found = fetch(_REDEEM, [hashed(ticket)])
    return valid_token(found[0][0]) if found else None
