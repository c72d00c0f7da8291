"""Invitations: links with which somebody makes themselves an account with a first agent. Each is used once."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from sessions_app.agents.edit import create_agent
from sessions_app.agents.zones import set_first_zone
from sessions_app.exceptions import BadInput, NotFound
from sessions_app.models import Invitation
from sessions_app.postgres.rows import existing
from sessions_app.tokens.issue import hashed, new_secret

VALID = timedelta(days=7)
MOST_OPEN = 20  # of one user
FIRST_AGENT = "Assistant"


def may_invite(user: User) -> bool:
    """Whether the user may invite: staff, and who has the permission to add invitations."""
    return user.is_active and (user.is_staff or user.has_perm("sessions_app.add_invitation"))


def invitations_of(user: User) -> QuerySet[Invitation]:
    """The user's invitations that are stored, the newest first."""
    return Invitation.objects.filter(made_by=user).select_related("used_by").order_by("-created_at", "-pk")


def invite(user: User) -> str:
    """Make an invitation. Returns its token, which is not stored. BadInput; NotFound if the user may not invite."""
    if not may_invite(user):
        raise NotFound("you cannot invite anybody")
    token = new_secret()
    with transaction.atomic():
        existing(User.objects.select_for_update(no_key=True).filter(pk=user.pk))  # so that the count is exact
        if invitations_of(user).filter(used_at=None, expires_at__gt=Now()).count() >= MOST_OPEN:
            raise BadInput(f"you have {MOST_OPEN} open invitations, as many as a user may have; revoke one")
        Invitation.objects.create(made_by=user, token_sha256=hashed(token), expires_at=Now() + VALID)
    return token


def valid_invitation(token: str, *, lock: bool = False) -> Invitation | None:
    """The invitation with this token, if it can be used now; `lock` locks it until the transaction ends."""
    rows = Invitation.objects.filter(token_sha256=hashed(token), used_at=None, expires_at__gt=Now())
    rows = rows.select_related("made_by")
    found = (rows.select_for_update(of=("self",)) if lock else rows).first()
    return found if found is not None and may_invite(found.made_by) else None


@transaction.atomic
def join(token: str, user: User, zone: str) -> bool:
    """Store a new user with a first agent in this zone, and use the invitation up. False if it is not valid any more.

    IntegrityError if the user name is taken. A zone that is not known is left out.
    """
    # of two requests at once the second waits for the first, then finds the invitation used
    found = valid_invitation(token, lock=True)
    if found is None:
        return False
    user.save(force_insert=True)
    with suppress(BadInput):
        set_first_zone(user.pk, zone)
    create_agent(user, FIRST_AGENT)
    found.used_at, found.used_by = Now(), user
    found.save(update_fields=["used_at", "used_by"])
    return True
