"""Links that sign a user in once, and the page that they open. `manage.py up` and `sign_in_link` print one.

The token has 256 random bits. The database has only its hash, so somebody who reads the database has no link.
The button of the page uses the link up: previews and prefetches only read the page.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from interfaces.http.watchers import is_on_this_machine
from sessions_app.models import SignInLink
from sessions_app.tokens.issue import hashed, new_secret

VALID = timedelta(minutes=10)
# The address holds the token: no request that the page makes may name it. With `no-referrer` a browser would also hide
# the origin of the form, and Django's protection against forged requests would refuse it.
REFERRER_POLICY = "strict-origin"


def issue(user: User) -> str:
    """Create a link. Returns its path, `/enter/<token>/`, which is not stored."""
    token = new_secret()
    SignInLink.objects.create(user=user, token_sha256=hashed(token), expires_at=Now() + VALID)
    return f"/enter/{token}/"


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def enter_by_link(request: HttpRequest, token: str) -> HttpResponse:
    """The page with the button, or the sign-in that the button asks for. 403 from elsewhere; 410 for a dead link."""
    if not is_on_this_machine(request):
        response = render(request, "web/enter.html", {"state": "elsewhere"}, status=403)
    elif request.method == "POST":
        response = _sign_in(request, token)
    else:
        response = _page(request, is_valid=_valid_links(token).exists())
    response["Referrer-Policy"] = REFERRER_POLICY
    return response


def _sign_in(request: HttpRequest, token: str) -> HttpResponse:
    with transaction.atomic():  # a link whose session cannot be stored stays valid
        # of two requests at once the second waits for the first, then finds the link used
        link = _valid_links(token).select_for_update(of=("self",)).select_related("user").first()
        if link is None:
            return _page(request, is_valid=False)
        link.used_at = Now()
        link.save(update_fields=["used_at"])
        login(request, link.user, backend=settings.AUTHENTICATION_BACKENDS[0])
    return HttpResponseRedirect("/", status=303)


def _valid_links(token: str) -> QuerySet[SignInLink]:
    found = SignInLink.objects.filter(token_sha256=hashed(token), used_at=None, expires_at__gt=Now())
    return found.filter(user__is_active=True)


def _page(request: HttpRequest, *, is_valid: bool) -> HttpResponse:
    context = {"state": "valid" if is_valid else "dead", "command": settings.RONDO_COMMAND}
    return render(request, "web/enter.html", context, status=200 if is_valid else 410)
