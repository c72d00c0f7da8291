"""How a person is told of what came: a section of their account page, and the addresses of its scripts."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.generic import TemplateView

from interfaces.web.pages import person, person_page
from sessions_app.channels import base, push
from sessions_app.channels.personal import FailureMail
from sessions_app.exceptions import BadInput
from sessions_app.models import PushSubscription, UserSettings

LONGEST_AGENT = 1_000  # characters of a browser's name for itself
# in this order: most browsers also name those whose pages they are like
_BROWSERS = (("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", ""), ("Chrome", ""), ("Safari", ""))
_SYSTEMS = (
    ("Android", ""),
    ("iPhone", ""),
    ("iPad", ""),
    ("Windows", ""),
    ("Mac OS", "macOS"),
    ("Linux", ""),
)

manifest = TemplateView.as_view(template_name="web/manifest.json", content_type="application/manifest+json")
worker = TemplateView.as_view(template_name="web/worker.js", content_type="text/javascript")


class NotificationForm(forms.ModelForm):  # type: ignore[type-arg]
    """The ways, the address for failures, and the quiet hours."""

    class Meta:
        model = UserSettings
        fields = ("notify_pages", "notify_text", "notify_mail", "quiet_from", "quiet_to")
        labels = {
            "notify_pages": "Open pages show notifications",
            "notify_text": "Notifications show the first words",
            "notify_mail": "Mail failures to",
            "quiet_from": "Quiet from",
            "quiet_to": "to",
        }
        help_texts = dict.fromkeys(fields, "")
        widgets = dict.fromkeys(("quiet_from", "quiet_to"), forms.TimeInput({"type": "time"}, format="%H:%M"))


def section(user: User) -> dict[str, Any]:
    """What the account page shows."""
    stored = UserSettings.objects.filter(pk=user.pk).first() or UserSettings(user=user)
    return {
        "notification_form": NotificationForm(instance=stored),
        "quiet_zone": stored.zone,
        "browsers": PushSubscription.objects.filter(user=user).order_by("pk"),
        "push_key": push.public_key(),
        "mails": base.sender(FailureMail.name) is not None,
    }


def bound_form(request: HttpRequest) -> NotificationForm:
    """The form as it was sent, for the person's settings."""
    stored, _ = UserSettings.objects.get_or_create(user=person(request))
    return NotificationForm(request.POST, instance=stored)


@person_page("POST")
def add_browser(request: HttpRequest) -> HttpResponse:
    """Push to this browser from now on; a script sends it. A refusal is a line of text."""
    names = ("endpoint", "key", "secret")
    given = {name: request.POST.get(name, "")[:2_000] for name in names}
    try:
        push.subscribe(person(request), **given, name=name_of(request.headers.get("User-Agent", "")))
    except BadInput as refusal:
        return HttpResponse(str(refusal), status=400, content_type="text/plain")
    return HttpResponse(status=204)


@person_page("POST")
def remove_browser(request: HttpRequest, subscription_id: int) -> HttpResponse:
    """Push to this browser no more."""
    PushSubscription.objects.filter(user=person(request), pk=subscription_id).delete()
    return HttpResponseRedirect(f"{reverse('account')}?done=notifications#notifications", status=303)


def name_of(agent: str) -> str:
    """A browser as people know it, such as `Firefox on Android`."""
    known = [_first_in(agent[:LONGEST_AGENT], names) for names in (_BROWSERS, _SYSTEMS)]
    return " on ".join(filter(None, known)) or "A browser"


def _first_in(agent: str, names: tuple[tuple[str, str], ...]) -> str:
    return next((name or mark for mark, name in names if re.search(mark, agent)), "")
