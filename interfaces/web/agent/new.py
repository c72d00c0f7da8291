"""A new agent in one field: its zone is the person's, its model the server's, its heartbeat off."""

from __future__ import annotations

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from interfaces.http.sign_in import take_browser_zone
from interfaces.web.appointments.forms import in_words
from interfaces.web.pages import leave_to, page, person, person_page
from sessions_app.agents.edit import new_agent
from sessions_app.exceptions import SessionsError
from sessions_app.sessions.open import primary_session


class NewAgentForm(forms.Form):
    """The name; `new_agent` checks it."""

    name = forms.CharField(
        max_length=64,
        widget=forms.TextInput({"autocomplete": "off", "placeholder": "Such as “Assistant”"}),
        help_text=f"Letters, digits, spaces, dots, dashes and underscores. It begins with the model"
        f" {settings.RONDO_MODEL}; its page has all its settings.",
    )


@person_page("GET", "HEAD", "POST")
def make_agent(request: HttpRequest) -> HttpResponse:
    """The form of a new agent; POST makes it, and goes to its conversation."""
    form = NewAgentForm(request.POST or None)
    if request.method != "POST":
        return page(request, "agent/new.html", form=form)
    if form.is_valid():
        take_browser_zone(request, person(request).pk)
        try:
            agent = new_agent(person(request), form.cleaned_data["name"], {})
        except SessionsError as refusal:
            form.add_error("name", in_words(str(refusal)))
        else:
            return leave_to(request, reverse("conversation", args=[primary_session(agent).pk]))
    return page(request, "agent/new.html", status=400, form=form)
