"""A new password by mail, where a mail server is configured: ask for a link, and choose the password there."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from email.policy import SMTP
from functools import wraps
from typing import Any

import structlog
from django.conf import settings
from django.contrib.auth.forms import PasswordResetForm
from django.contrib.auth.views import PasswordResetConfirmView, PasswordResetDoneView, PasswordResetView
from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import reverse, reverse_lazy
from django.utils.decorators import method_decorator

from interfaces.http.sign_in import limit_password_forms
from interfaces.web.pages import View
from sessions_app.channels.mail import send_letter
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.tokens.issue import hashed

TEMPLATE = "web/password_reset.html"
TO_ONE_ADDRESS = Rate(limit=3, seconds=3600)  # further ones are not sent, and nothing says so
OF_ALL = Rate(limit=60, seconds=60)
# in a thread of its own: how long the answer takes does not tell whether somebody has the address
_sending = ThreadPoolExecutor(1, thread_name_prefix="rondo-reset")
log = structlog.get_logger(__name__)


def is_offered() -> bool:
    """Whether the server sends mail, and answers to its own names only: the link has the name that was asked."""
    return bool(settings.RONDO_MAIL_SERVER["host"]) and "*" not in settings.ALLOWED_HOSTS


class AskForm(PasswordResetForm):
    """Django's form, which sends through the mail server of the channel `email`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["email"].label = "Mail address of your account"

    def get_users(self, email: str) -> Iterable[Any]:
        """Whose links are sent: none after too many. All is counted before, as for an address that nobody has."""
        key = f"reset:{hashed(email.casefold())[:32]}"
        if take_allowance(key, TO_ONE_ADDRESS) or take_allowance("reset", OF_ALL):
            return ()
        return super().get_users(email)

    def send_mail(
        self,
        subject_template_name: str,  # noqa: ARG002 - the signature is Django's
        email_template_name: str,  # noqa: ARG002
        context: dict[str, Any],
        from_email: str | None,  # noqa: ARG002
        to_email: str,
        html_email_template_name: str | None = None,  # noqa: ARG002
    ) -> None:
        """Send the link of one user."""
        path = reverse("password-new", args=[context["uid"], context["token"]])
        letter = EmailMessage(policy=SMTP)
        letter["Subject"] = "A new password for Rondo"
        letter["From"], letter["To"] = settings.DEFAULT_FROM_EMAIL, to_email
        letter["Auto-Submitted"] = "auto-generated"
        letter.set_content(
            f"Choose a new password for {context['user'].get_username()} within an hour:\n\n"
            f"{context['protocol']}://{context['domain']}{path}\n\n"
            "If you have not asked for it, nothing needs to be done.\n"
        )
        _sending.submit(_send, letter)


def _send(letter: EmailMessage) -> None:
    try:
        send_letter(letter, settings.RONDO_DELIVERY_SECONDS)
    except Exception as error:  # noqa: BLE001 - nobody waits for it
        log.warning("reset_mail_not_sent", error=type(error).__name__)


def _only_with_mail(view: View) -> View:
    """Decorator: a page that exists only where new passwords are offered."""

    def found(request: HttpRequest, *args: Any, **named: Any) -> HttpResponseBase:
        if not is_offered():
            raise Http404
        return view(request, *args, **named)

    return wraps(view)(found)


@method_decorator([_only_with_mail, limit_password_forms], name="dispatch")
class AskReset(PasswordResetView):
    """Ask for a link. The answer is the same for an address that nobody has."""

    template_name = TEMPLATE
    form_class = AskForm
    success_url = reverse_lazy("password-sent")
    extra_context = {"state": "ask"}


@method_decorator(_only_with_mail, name="dispatch")
class ResetSent(PasswordResetDoneView):
    """Says to look for the mail."""

    template_name = TEMPLATE
    extra_context = {"state": "sent"}


@method_decorator([_only_with_mail, limit_password_forms], name="dispatch")
class ChooseNew(PasswordResetConfirmView):
    """Choose the new password, which signs in here and ends all other browsers' sessions."""

    template_name = TEMPLATE
    post_reset_login = True
    success_url = reverse_lazy("home")
