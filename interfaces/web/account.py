"""The sign-in page, and the page of one's own account with its API tokens and its calendar's address."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters

from interfaces.http.sign_in import limit_password_forms, take_browser_zone
from interfaces.web import notifications
from interfaces.web.appointments.forms import in_words
from interfaces.web.pages import page, person, person_page
from interfaces.web.password_reset import is_offered
from sessions_app.agents.invitations import invitations_of, may_invite
from sessions_app.agents.zones import known_zones, set_zone, zone_of, zone_problem
from sessions_app.exceptions import SessionsError
from sessions_app.models import ApiToken, CalendarAddress, Session, TokenScope, Turn
from sessions_app.models.access import LONGEST_NAME
from sessions_app.reads import selectors
from sessions_app.reads.usage import total_of
from sessions_app.spending.accounts import caps_of_user
from sessions_app.tokens import issue
from sessions_app.tokens.issue import NewToken

DONE = {
    "profile": "Saved.",
    "password": "Your password was changed.",
    "revoked": "The token was revoked.",
    "calendar": "The address was revoked.",
    "invitation": "The invitation was revoked.",
    "notifications": "Saved.",
}
MOST_OFFERED = 100  # sessions that a token can be limited to on the page, the latest; the API takes any
DEFAULT_LIFE = "90"
LIVES = (("7", "In 7 days"), ("30", "In 30 days"), ("90", "In 90 days"), ("365", "In a year"), ("", "Never"))
ABOUT = {
    TokenScope.READ: "see everything, and follow events",
    TokenScope.TALK: "see, send messages, answer questions, open conversations",
    TokenScope.SCHEDULE: "see, and change automations, routines and scheduled messages",
    TokenScope.MANAGE: "all of that, and change agents, conversations, connections, hooks and tokens",
}
AGENT, SESSION = "agent", "session"


class SignInForm(AuthenticationForm):
    """Django's form, with a label in our words."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "User name"


class SignIn(LoginView):
    """Sign in with a password, with the limits of `http.sign_in`. Then goes to `next`, if it is on this host."""

    template_name = "web/sign_in.html"
    authentication_form = SignInForm
    extra_context = {"command": settings.RONDO_COMMAND, "is_reset_offered": is_offered}

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Sign in, and keep the browser's time zone if none is kept."""
        answer: HttpResponse = super().form_valid(form)
        take_browser_zone(self.request, person(self.request).pk)
        return answer


class ProfileForm(forms.ModelForm):  # type: ignore[type-arg]
    """Name, mail address and time zone."""

    timezone = forms.CharField(
        label="Time zone",
        max_length=64,
        required=False,
        widget=forms.TextInput({"list": "zones", "autocomplete": "off", "spellcheck": "false"}),
        help_text="Pages show all times in it, and new agents get it. Empty: that of your browser.",
    )

    class Meta:
        model = User
        fields = ("first_name", "last_name", "email")
        labels = {"email": "Mail address"}
        widgets = {
            "first_name": forms.TextInput({"autocomplete": "given-name"}),
            "last_name": forms.TextInput({"autocomplete": "family-name"}),
            "email": forms.EmailInput({"autocomplete": "email"}),
        }

    def clean_timezone(self) -> str:
        """An IANA name, or nothing."""
        zone: str = self.cleaned_data["timezone"]
        if zone and (problem := zone_problem(zone)):
            raise ValidationError(in_words(problem))
        return zone


class PasswordForm(PasswordChangeForm):
    """Django's form with its validators, on a page with other forms."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["old_password"].widget.attrs.pop("autofocus", None)


class TokenForm(forms.Form):
    """The name, scopes, limit and lifetime of a new token."""

    name = forms.CharField(
        max_length=LONGEST_NAME, help_text="What will use it, such as “phone” or “backup”."
    )
    scopes = forms.MultipleChoiceField(
        label="It may",
        choices=[(scope.value, f"{scope.value}: {about}") for scope, about in ABOUT.items()],
        widget=forms.CheckboxSelectMultiple,
        initial=[TokenScope.READ.value],
        error_messages={"required": "Choose at least one."},
    )
    limit = forms.ChoiceField(label="It reaches", required=False)
    life = forms.ChoiceField(label="It expires", choices=LIVES, required=False, initial=DEFAULT_LIFE)

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._user = user
        limit: Any = self.fields["limit"]
        limit.choices = [("", "Everything that is yours"), *_limits(user)]

    def make(self) -> str:
        """Make the token of a valid form, and return it. Raises what `make_token` raises, and NotFound."""
        given = self.cleaned_data
        kind, _, key = given["limit"].partition(":")
        life = timedelta(days=int(given["life"])) if given["life"] else None
        new = NewToken(
            name=given["name"],
            scopes=given["scopes"],
            agent=selectors.agent(self._user, key) if kind == AGENT else None,
            session=selectors.session(self._user, uuid.UUID(key)) if kind == SESSION else None,
            expires_at=None if life is None else datetime.now(UTC) + life,
        )
        return issue.make_token(self._user, new)[1]


def _limits(user: User) -> Iterable[tuple[str, list[tuple[str, str]]]]:
    agents = [each.name for each in selectors.agents(user).order_by("name")]
    latest = Session.objects.filter(owner=user).select_related("agent").order_by("-updated_at", "-pk")
    yield "One agent", [(f"{AGENT}:{name}", name) for name in agents]
    yield (
        "One conversation",
        [
            (f"{SESSION}:{each.pk}", f"{each.title or each.key} ({each.agent.name})")
            for each in latest[:MOST_OFFERED]
        ],
    )


@person_page("GET", "HEAD", "POST")
def account(request: HttpRequest) -> HttpResponse:
    """The account; POST changes name, mail address and time zone."""
    if request.method != "POST":
        return show_account(request, done=DONE.get(request.GET.get("done", ""), ""))
    # another instance: the page shows what is stored, also when the form is refused
    form = ProfileForm(request.POST, instance=User.objects.get(pk=person(request).pk))
    if not form.is_valid():
        return show_account(request, status=400, profile=form)
    zone = form.cleaned_data.pop("timezone")
    User.objects.filter(pk=person(request).pk).update(**form.cleaned_data)
    if "timezone" in request.POST:
        set_zone(person(request).pk, zone)
    return account_saved("profile")


@person_page("POST")
def zone_form(request: HttpRequest) -> HttpResponse:
    """Keep the browser's time zone. `first`: only if none is kept; a page sends that by itself. BadInput."""
    zone = request.POST.get("timezone", "")
    if "first" in request.POST:
        take_browser_zone(request, person(request).pk)
        return HttpResponse(status=204)
    set_zone(person(request).pk, zone)
    return account_saved("profile")


@sensitive_post_parameters()
@person_page("POST")
@limit_password_forms
def password_form(request: HttpRequest) -> HttpResponse:
    """Change the password. This browser stays signed in, all others are signed out."""
    form = PasswordForm(person(request), request.POST)
    if not form.is_valid():
        return show_account(request, status=400, password=form)
    form.save()
    update_session_auth_hash(request, form.user)
    return account_saved("password")


@person_page("POST")
def make_token(request: HttpRequest) -> HttpResponse:
    """Make an API token, and show it this once."""
    form = TokenForm(person(request), request.POST)
    if not form.is_valid():
        return show_account(request, status=400, token_form=form)
    try:
        made = form.make()
    except SessionsError as refusal:
        return show_account(request, status=400, token_form=form, problem=f"{refusal}.")
    return show_account(request, made=made)


@person_page("POST")
def revoke_token(request: HttpRequest, token_id: str) -> HttpResponse:
    """Revoke an API token."""
    issue.revoke_tokens(ApiToken.objects.filter(user=person(request), pk=token_id))
    return account_saved("revoked")


@person_page("POST")
def change_calendar(request: HttpRequest) -> HttpResponse:
    """Make the secret address of the calendar, in place of the one before, and show it this once; or revoke it."""
    if request.POST.get("to") == "off":
        issue.revoke_calendar(person(request))
        return account_saved("calendar")
    path = reverse("calendar", args=[issue.make_calendar_token(person(request))])
    return show_account(request, made_calendar=request.build_absolute_uri(path))


@person_page("POST")
def change_notifications(request: HttpRequest) -> HttpResponse:
    """Change how and when the person is told."""
    form = notifications.bound_form(request)
    if not form.is_valid():
        return show_account(request, status=400, notification_form=form)
    form.save()
    return account_saved("notifications")


def account_saved(what: str) -> HttpResponse:
    """Go back to the page, which says what was done: a key of `DONE`."""
    return HttpResponseRedirect(f"{reverse('account')}?done={what}", status=303)


def show_account(request: HttpRequest, status: int = 200, **context: Any) -> HttpResponse:
    """The page of the account; `context`: what a form of it adds."""
    user = person(request)
    used = total_of(Turn.objects.filter(owner_id=user.pk))
    shown = {
        "profile": ProfileForm(instance=user, initial={"timezone": zone_of(user.pk)}),
        "zones": sorted(known_zones()),
        "password": PasswordForm(user),
        "tokens": ApiToken.objects.filter(user=user)
        .select_related("agent", "session")
        .order_by("-created_at", "pk"),
        "now": datetime.now(UTC),
        "used": used,
        "caps": caps_of_user(user.pk, is_partial=used.cost.is_partial),
        "token_form": TokenForm(user),
        "calendar": CalendarAddress.objects.filter(user=user).first(),
        "invitations": invitations_of(user)[:MOST_OFFERED] if may_invite(user) else None,
        "mcp": mcp_settings(request.build_absolute_uri("/")) if "mcp" in settings.RONDO_DOORS else None,
    }
    shown |= notifications.section(user)
    return page(request, "account.html", status=status, **(shown | context))


def mcp_settings(url: str) -> dict[str, str]:
    """The settings of MCP clients, as JSON: of one that speaks HTTP, and of one that starts a program."""
    headers = {"Authorization": "Bearer YOUR_TOKEN"}
    environ = {"RONDO_URL": url.rstrip("/"), "RONDO_TOKEN": "YOUR_TOKEN"}
    servers = {
        "http": {"type": "http", "url": f"{url}mcp", "headers": headers},
        "program": {"command": "rondo", "args": ["mcp"], "env": environ},
    }
    return {name: json.dumps({"mcpServers": {"rondo": each}}, indent=2) for name, each in servers.items()}
