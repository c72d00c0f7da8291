"""The page of a link that signs in once. Its button uses the link up: previews and prefetches only read the page."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import login
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from interfaces.http.watchers import is_on_this_machine
from interfaces.web.account.sign_in_links import is_valid, redeem

# The address holds the token: no request that the page makes may name it. With `no-referrer` a browser would also hide
# the origin of the form, and Django's protection against forged requests would refuse it.
REFERRER_POLICY = "strict-origin"


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def enter_by_link(request: HttpRequest, token: str) -> HttpResponse:
    """The page with the button, or the sign-in that the button asks for. 403 from elsewhere; 410 for a dead link."""
    if not is_on_this_machine(request):
        response = render(request, "web/enter.html", {"state": "elsewhere"}, status=403)
    elif request.method == "POST":
        response = _sign_in(request, token)
    else:
        response = _page(request, is_valid=is_valid(token))
    response["Referrer-Policy"] = REFERRER_POLICY
    return response


def _sign_in(request: HttpRequest, token: str) -> HttpResponse:
    with transaction.atomic():  # a link whose session cannot be stored stays valid
        user = redeem(token)
        if user is None:
            return _page(request, is_valid=False)
        login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    return HttpResponseRedirect("/", status=303)


def _page(request: HttpRequest, *, is_valid: bool) -> HttpResponse:
    context = {"state": "valid" if is_valid else "dead", "command": settings.RONDO_COMMAND}
    return render(request, "web/enter.html", context, status=200 if is_valid else 410)
