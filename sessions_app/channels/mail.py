"""The channel `email`: one plain-text mail for each answer.

Django's own way to a mail server needs other settings from version to version, and warns of the older ones.
"""

from __future__ import annotations

import smtplib
import ssl
from contextlib import closing, suppress
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail.utils import DNS_NAME
from django.core.validators import validate_email
from django.utils.encoding import punycode

from sessions_app.channels.base import BadAddress, Parcel, Unsent
from sessions_app.single_line import one_line

SUBJECT = 78  # characters


class Email:
    """Mails one address. Message-ID is the same in every attempt, so that mail programs show repeats once."""

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
        return str(settings.RONDO_MAIL_SERVER["host"])

    def send(self, parcel: Parcel) -> None:
        """Send it to the mail server."""
        try:
            send_letter(_letter(parcel), parcel.seconds)
        except smtplib.SMTPRecipientsRefused as error:
            codes = {code for code, _ in error.recipients.values()}
            raise Unsent("the mail server rejected this address", final=min(codes) >= 500) from None
        except smtplib.SMTPResponseException as error:
            final = error.smtp_code >= 500  # a permanent failure
            raise Unsent(f"the mail server answered {error.smtp_code}", final=final) from None
        except (smtplib.SMTPException, OSError) as error:
            raise Unsent(f"sending to the mail server failed ({type(error).__name__})") from None


def _letter(parcel: Parcel) -> EmailMessage:
    domain = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].rstrip(">")
    name, _, host = parcel.address.rpartition("@")
    letter = EmailMessage(policy=SMTP)
    letter["Subject"] = one_line(f"{parcel.agent}: {parcel.text}", SUBJECT)
    letter["From"] = settings.DEFAULT_FROM_EMAIL
    letter["To"] = f"{name}@{punycode(host)}"
    letter["Message-ID"] = f"<{parcel.key.replace(':', '.')}@{domain}>"
    letter["Date"] = formatdate(parcel.created_at.timestamp())
    letter["Auto-Submitted"] = "auto-generated"
    letter["Rondo-Delivery"] = parcel.key
    letter.set_content(parcel.shown_text)
    return letter


def send_letter(letter: EmailMessage, seconds: float) -> None:
    """Hand a letter to the mail server. SMTPException, OSError."""
    server = settings.RONDO_MAIL_SERVER
    place = {"host": server["host"], "port": server["port"], "local_hostname": DNS_NAME.get_fqdn()}
    tls = ssl.create_default_context() if server["tls"] or server["starttls"] else None
    smtp = (
        smtplib.SMTP_SSL(**place, timeout=seconds, context=tls)
        if server["tls"]
        else smtplib.SMTP(**place, timeout=seconds)
    )
    with closing(smtp):
        if server["starttls"]:
            smtp.starttls(context=tls)
        if server["user"] and server["password"]:
            smtp.login(server["user"], server["password"])
        smtp.send_message(letter)
        with suppress(smtplib.SMTPException, OSError):  # the server has taken it
            smtp.quit()
