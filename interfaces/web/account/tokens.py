"""The API tokens on the page of one's account: a form that makes one, and the list."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import User

from sessions_app.models import ApiToken, Session, TokenScope
from sessions_app.models.access import LONGEST_NAME
from sessions_app.reads import selectors
from sessions_app.tokens.issue import NewToken, make_token

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


class TokenForm(forms.Form):
    """What a new token is called, allows and reaches, and how long it lives."""

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
        """Make the token of a valid form, and return it. What `make_token` raises; NotFound."""
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
        return make_token(self._user, new)[1]


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


def tokens_of(user: User) -> list[dict[str, Any]]:
    """The user's tokens as the page lists them, the latest first."""
    rows = ApiToken.objects.filter(user=user).select_related("agent", "session").order_by("-created_at", "pk")
    now = datetime.now(UTC)
    return [
        {
            "row": each,
            "scopes": ", ".join(each.scopes),
            "conversation": each.session and (each.session.title or each.session.key),
            "has_expired": each.expires_at is not None and each.expires_at <= now,
        }
        for each in rows
    ]
