"""What a channel is: it checks an address, and sends one parcel to it. `docs/channels.md` shows how to add one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from sessions_app.exceptions import BadInput, SessionsError
from sessions_app.models.session import LONGEST_ADDRESS

WEB = "web"  # history and event streams: nothing leaves the server
NAME = re.compile(r"[a-z0-9_-]{1,32}")


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """One message for one address, as a channel gets it.

    `key`: the same with every attempt, so that the receiver can tell that it has it already. `secret` signs; it must
    not leave. `seconds`: by then `send` has to be back. `about`: kind, turn, run, automation… for receivers.
    """

    key: str
    address: str
    text: str
    secret: str = field(repr=False)
    attempt: int
    created_at: datetime
    session_id: str
    session_key: str
    agent: str
    meta: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    seconds: float = 10.0


class Unsent(Exception):
    """The receiver did not take it. The text is for people: no secret, nothing that the receiver said.

    `final`: another attempt will not help. `wait`: seconds that the receiver asks for, at least.
    """

    def __init__(self, text: str, *, final: bool = False, wait: float = 0.0) -> None:
        super().__init__(text)
        self.final, self.wait = final, wait


class BadAddress(Exception):
    """The channel has no such address; the text says why."""


class Channel(Protocol):
    """A way out of the server."""

    name: str

    def check(self, address: str) -> None:
        """BadAddress unless something can be sent there. No network: it is asked where people wait."""

    def place(self, address: str) -> str:
        """Who is held up when this address is slow: a host. Only a part of all sending goes to one place at a time."""

    def send(self, parcel: Parcel) -> None:
        """Hand it over, once, within `parcel.seconds`; Unsent when it was not, or not surely, taken."""


_channels: dict[str, Channel] = {}


def register(channel: Channel) -> None:
    """Make a channel known. SessionsError for a name that no session could have."""
    if channel.name == WEB or not NAME.fullmatch(channel.name):
        raise SessionsError(f"a channel cannot be named {channel.name!r}")
    _channels[channel.name] = channel


def unregister(name: str) -> None:
    """Forget one, if it is known."""
    _channels.pop(name, None)


def known() -> dict[str, Channel]:
    """The channels that there are here, by name."""
    return dict(_channels)


def check(channel: str, address: str) -> None:
    """BadInput `bad_channel` or `bad_address` unless something can be sent to this address by this channel."""
    found = _channels.get(channel)
    if found is None:
        there_are = ", ".join(sorted(_channels)) or "none"
        raise BadInput(f"nothing here sends to {channel[:40]!r}; there are: {there_are}", code="bad_channel")
    check_address(found, address)


def check_address(channel: Channel, address: str) -> None:
    """BadInput `bad_address`."""
    if not address.strip():
        raise BadInput(f"the channel {channel.name} needs an address", code="bad_address")
    if len(address) > LONGEST_ADDRESS or not address.isprintable():
        text = f"an address is printable, of at most {LONGEST_ADDRESS:,} characters"
        raise BadInput(text, code="bad_address")
    try:
        channel.check(address)
    except BadAddress as error:
        raise BadInput(str(error), code="bad_address") from None
