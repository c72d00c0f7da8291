"""Invitations on the account page, and the page of an invitation, on which somebody makes their account."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.forms import UserCreationForm
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from interfaces.http.sign_in import REFERRER_POLICY, limit_password_forms
from interfaces.web.account import account_saved, show_account
from interfaces.web.pages import person, person_page
from sessions_app.agents import invitations
from sessions_app.exceptions import BadInput


class JoinForm(UserCreationForm[User]):
    """Django's form of a new user, with its rules for names and passwords."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "User name"


@person_page("POST")
def invite(request: HttpRequest) -> HttpResponse:
    """Make an invitation, and show its link this once."""
    try:
        path = reverse("join", args=[invitations.invite(person(request))])
    except BadInput as refusal:
        return show_account(request, status=400, invitation_problem=f"{refusal}.")
    return show_account(request, made_invitation=request.build_absolute_uri(path))


@person_page("POST")
def revoke_invitation(request: HttpRequest, invitation_id: int) -> HttpResponse:
    """Revoke an invitation that nobody has used."""
    invitations.invitations_of(person(request)).filter(pk=invitation_id, used_at=None).delete()
    return account_saved("invitation")


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@limit_password_forms
def join(request: HttpRequest, token: str) -> HttpResponse:
    """The page of an invitation; POST makes the account and signs it in. 410 for a dead link."""
    found = invitations.valid_invitation(token)
    form = JoinForm(request.POST or None)
    if found is not None and request.method == "POST" and form.is_valid():
        user = form.save(commit=False)
        try:
            if not invitations.join(token, user, request.POST.get("timezone", "")):
                found = None
        except IntegrityError:  # somebody took the name just now
            form.add_error("username", "A user with that name already exists.")
        if user.pk and not form.errors:
            login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
            return HttpResponseRedirect(reverse("home"), status=303)
    status = 410 if found is None else 400 if form.errors else 200
    response = render(request, "web/join.html", {"form": form, "invitation": found}, status=status)
    response["Referrer-Policy"] = REFERRER_POLICY
    return response
