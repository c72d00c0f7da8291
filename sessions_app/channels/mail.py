"""The channel `email`: one plain-text mail for each answer, sent with Django's mail settings."""

from __future__ import annotations

import smtplib
from email.utils import formatdate

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage, get_connection
from django.core.validators import validate_email

from sessions_app.channels.base import BadAddress, Parcel, Unsent
from sessions_app.single_line import one_line

SUBJECT = 78  # characters


class Email:
    """Sends to one mailbox. Message-ID is the same in every attempt, so that mail programs show repeats once."""

    name = "email"

    def check(self, address: str) -> None:
        """Accept one plain address without a display name."""
        try:
            validate_email(address)
        except ValidationError:
            raise BadAddress(
                f"{address[:80]!r} is not an e-mail address; give one such as 'ada@example.org'"
            ) from None

    def place(self, address: str) -> str:  # noqa: ARG002 - all mail goes to one server
        """The mail server."""
        return str(settings.EMAIL_HOST)

    def send(self, parcel: Parcel) -> None:
        """Send it to the mail server."""
        domain = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].rstrip(">")
        message = EmailMessage(
            subject=one_line(f"{parcel.agent}: {parcel.text}", SUBJECT),
            body=parcel.text,
            to=[parcel.address],
            connection=get_connection(timeout=int(parcel.seconds)),
            headers={
                "Message-ID": f"<{parcel.key.replace(':', '.')}@{domain}>",
                "Date": formatdate(parcel.created_at.timestamp()),
                "Auto-Submitted": "auto-generated",
                "Rondo-Delivery": parcel.key,
            },
        )
        try:
            message.send()
        except smtplib.SMTPRecipientsRefused as error:
            codes = {code for code, _ in error.recipients.values()}
            raise Unsent("the mail server rejected this address", final=min(codes) >= 500) from None
        except smtplib.SMTPResponseException as error:
            final = error.smtp_code >= 500  # a permanent failure
            raise Unsent(f"the mail server answered {error.smtp_code}", final=final) from None
        except (smtplib.SMTPException, OSError) as error:
            raise Unsent(f"sending to the mail server failed ({type(error).__name__})") from None
