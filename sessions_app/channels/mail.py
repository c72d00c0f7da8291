"""The channel `email`: one plain message for each answer, by Django's mail settings."""

from __future__ import annotations

import smtplib
from email.utils import formatdate

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage, get_connection
from django.core.validators import validate_email

from sessions_app.channels.base import BadAddress, Parcel, Unsent
from sessions_app.lines import one_line

SUBJECT = 78  # characters


class Email:
    """Sends to one mailbox. Message-ID stays the same with every attempt: mail programs show it once."""

    name = "email"

    def check(self, address: str) -> None:
        """One plain address, no name around it."""
        try:
            validate_email(address)
        except ValidationError:
            raise BadAddress("that is no e-mail address") from None

    def place(self, address: str) -> str:  # noqa: ARG002 - all mail goes one way
        """The mail server."""
        return str(settings.EMAIL_HOST)

    def send(self, parcel: Parcel) -> None:
        """Hand it to the mail server."""
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
            raise Unsent("the mail server does not take this address", final=min(codes) >= 500) from None
        except smtplib.SMTPResponseException as error:
            final = error.smtp_code >= 500  # it will never take this letter
            raise Unsent(f"the mail server answered {error.smtp_code}", final=final) from None
        except (smtplib.SMTPException, OSError) as error:
            raise Unsent(f"the mail server did not take it ({type(error).__name__})") from None
