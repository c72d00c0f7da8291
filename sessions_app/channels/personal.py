"""What a person is told outside of a conversation, on the ways that they chose: in open pages, by push, by mail.

These are deliveries without a message (`deliveries/notifications.py`), whose text is read when they are sent. Nothing
is sent in the person's quiet hours, and nothing that they have seen meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

from django.db import connection

from sessions_app.channels.base import Needless, Parcel, Unsent
from sessions_app.channels.mail import Email
from sessions_app.models import ConsentQuestion, Message, ReadMark, Session, UserSettings
from sessions_app.single_line import shortened

LONGEST_WORDS = 100  # characters of a text in a notification


class Told(StrEnum):
    """What a person is told of."""

    ANSWER = "answer"
    QUESTION = "question"
    FAILURE = "failure"

    @property
    def words(self) -> str:
        """What stands in place of the text."""
        return _WORDS[self]


_WORDS = {
    Told.ANSWER: "Something new",
    Told.QUESTION: "A question for you",
    Told.FAILURE: "Something failed",
}


class Personal:
    """A way to tell a person. A subclass says whether they want it now, and tells."""

    name = ""

    def check(self, address: str) -> None:
        """Nobody chooses an address of it."""

    def place(self, address: str) -> str:
        """The host of the receiver."""
        return address

    def send(self, parcel: Parcel) -> None:
        """Tell it, unless the person has switched it off, has seen it, or is not to be disturbed now."""
        wishes = UserSettings.objects.filter(pk=int(parcel.user)).first()
        if wishes is None or not self.is_wanted(wishes):
            raise Needless("it was switched off")
        if is_seen(parcel):
            raise Needless("it was seen")
        now = datetime.now(UTC)
        if until := wishes.quiet_until(now):
            raise Unsent("it waits for the end of quiet hours", wait=(until - now).total_seconds())
        self.tell(parcel, wishes)

    def is_wanted(self, wishes: UserSettings) -> bool:
        """Whether the person wants to be told in this way."""
        raise NotImplementedError

    def tell(self, parcel: Parcel, wishes: UserSettings) -> None:
        """Tell it. Unsent."""
        raise NotImplementedError


class Page(Personal):
    """Open pages show it: each asks for the list of conversations, which names what was told lately."""

    name = "page"

    def is_wanted(self, wishes: UserSettings) -> bool:
        """As they chose on their account page."""
        return wishes.notify_pages

    def tell(self, parcel: Parcel, wishes: UserSettings) -> None:
        """That the delivery is sent says it."""


class FailureMail(Personal):
    """Mails failures to the address of the account page."""

    name = "mail"

    def place(self, address: str) -> str:
        """The mail server."""
        return Email().place(address)

    def is_wanted(self, wishes: UserSettings) -> bool:
        """If there is an address."""
        return bool(wishes.notify_mail)

    def tell(self, parcel: Parcel, wishes: UserSettings) -> None:
        """Mail the whole text."""
        text = f"{text_of(parcel)}\n\nConversation: {title_of(parcel)}"
        letter = replace(parcel, address=wishes.notify_mail, text=text)
        connection.close()  # back to the pool while the server works
        Email().send(letter)


def is_seen(parcel: Parcel) -> bool:
    """Whether the person has read the message, or has answered the question."""
    about = parcel.about
    if question := about.get("question"):
        return not ConsentQuestion.objects.open().filter(pk=question).exists()
    seq = about.get("seq")
    return seq is not None and ReadMark.objects.filter(pk=UUID(parcel.session_id), seq__gte=seq).exists()


def title_of(parcel: Parcel) -> str:
    """The title of the conversation, or the agent's name."""
    title = Session.objects.filter(pk=UUID(parcel.session_id)).values_list("title", flat=True).first()
    return title or parcel.agent


def text_of(parcel: Parcel) -> str:
    """The text of the notice, or of the message that it is about."""
    seq = parcel.about.get("seq")
    if parcel.text or seq is None:
        return parcel.text
    message = Message.objects.filter(session=UUID(parcel.session_id), seq=seq)
    return message.values_list("content", flat=True).first() or ""


def words_of(parcel: Parcel, wishes: UserSettings) -> str:
    """The line below the title: the first words if the person wants them shown, else what it is about."""
    text = text_of(parcel) if wishes.notify_text else ""
    return shortened(text, LONGEST_WORDS) or Told(parcel.about["told"]).words
