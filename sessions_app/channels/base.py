"""The interface of a channel: check an address, send one parcel to it. `docs/channels.md` shows how to add one."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from agent_core.types import with_note
from sessions_app.exceptions import BadInput, SessionsError
from sessions_app.models.session import LONGEST_ADDRESS, WEB

NAME = re.compile(r"[a-z0-9_-]{1,32}")
_SET_UP_BY = {"email": "set EMAIL_URL", "notify": "set RONDO_NOTIFY"}


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """One message for one address, as a channel gets it.

    `key` is the same in every attempt, so that the receiver can recognize repeats. `secret` is the signing key and must
    not be sent. `seconds` is the longest that `send` may take, `user` the agent's owner. `about` has what receivers are
    told of its origin: kind, turn, run, automation… `type` is `message`, `notice` for a text of the server's own, or
    that of a system event, which has no text: only internal channels get those.
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
    type: str = "message"
    seconds: float = 10.0
    user: str = ""

    @property
    def shown_text(self) -> str:
        """The text for a person, with a closing line if the answer is not whole (`ended_by` in `about`)."""
        return with_note(self.text, str(self.about.get("ended_by", "")))


class Unsent(Exception):
    """The receiver did not accept the message. The text is shown to people: no secret, nothing that the receiver said.

    `final`: another attempt will not help. `wait`: seconds that the receiver asks to wait, at least.
    """

    def __init__(self, text: str, *, final: bool = False, wait: float = 0.0) -> None:
        super().__init__(text)
        self.final, self.wait = final, wait


class Needless(Unsent):
    """Nobody needs the message any more: it is closed, and the text says why."""


class BadAddress(Exception):
    """The channel cannot send to this address; the text says why."""


class Channel(Protocol):
    """A way to send messages out of the server."""

    name: str

    def check(self, address: str) -> None:
        """Raise BadAddress unless messages can be sent there. Must be quick and use no network: people wait for it.

        It is called when a person enters the address, and again by `explain/` and `doctor`.
        """

    def place(self, address: str) -> str:
        """The host of the address. Only a few deliveries are sent to one place at the same time."""

    def send(self, parcel: Parcel) -> int | None:
        """Send it once, within `parcel.seconds`. Raise Unsent unless the receiver surely accepted it.

        Returns the message's number, if the channel numbers all messages of a chat in their order.
        """


@runtime_checkable
class ChannelOfAgents(Channel, Protocol):
    """A channel that sends to an address only for some agents."""

    def check_for(self, agent_id: int, address: str) -> None:
        """Raise BadAddress unless this agent may write there. Quick, as `check`."""

    def trouble(self, agent_id: int, address: str) -> str:
        """Why this agent's answers do not arrive there now; empty when they do. Quick, as `check`."""


@runtime_checkable
class ReceivingChannel(Channel, Protocol):
    """A channel that also receives messages: each worker process does so in a thread of its own."""

    def receive_until(self, ended: threading.Event, stopping: threading.Event, tick: float) -> None:
        """Receive until one of the events is set, and look at them each `tick` seconds. Errors must not end it."""


_channels: dict[str, Channel] = {}
_internal: dict[str, Channel] = {}


def register(channel: Channel) -> None:
    """Register a channel. SessionsError for a name that sessions cannot have."""
    if channel.name == WEB or not NAME.fullmatch(channel.name):
        raise SessionsError(f"a channel cannot be named {channel.name!r}")
    _channels[channel.name] = channel


def register_internal(channel: Channel) -> None:
    """Register a channel that sends what the server says itself; sessions cannot choose it."""
    _internal[channel.name] = channel


def sender(name: str) -> Channel | None:
    """The channel that sends deliveries of this name, also an internal one.

    `push:7` is the lane of one receiver of the channel `push`: none of them waits for another.
    """
    return _internal.get(name.partition(":")[0]) or _channels.get(name)


def unregister(name: str) -> None:
    """Remove a channel, if it is registered."""
    _channels.pop(name, None)


def known() -> dict[str, Channel]:
    """The registered channels by name."""
    return dict(_channels)


def all_names() -> set[str]:
    """The names of all channels that deliveries may have, also of internal ones."""
    return {*_channels, *_internal}


def check_destination(channel: str, address: str, agent_id: int | None = None) -> None:
    """BadInput `bad_channel` or `bad_address` unless this channel can send to this address, for this agent."""
    found = _channels.get(channel)
    if found is None:
        text = f"the channel {channel[:40]!r} is not set up; {_alternatives_to(channel)}"
        raise BadInput(text, code="bad_channel")
    if not address.strip():
        raise BadInput(f"the channel {channel} needs an address", code="bad_address")
    if len(address) > LONGEST_ADDRESS or not address.isprintable():
        text = f"an address is printable, of at most {LONGEST_ADDRESS:,} characters"
        raise BadInput(text, code="bad_address")
    try:
        found.check(address)
        if agent_id is not None and isinstance(found, ChannelOfAgents):
            found.check_for(agent_id, address)
    except BadAddress as error:
        raise BadInput(str(error), code="bad_address") from None


def why_unserved(route: Mapping[str, Any], agent_id: int | None = None) -> str:
    """Why answers with this route cannot be sent; empty when they can, and on the web.

    With `agent_id` also why this agent's answers cannot be.
    """
    if route["channel"] == WEB:
        return ""
    try:
        check_destination(route["channel"], route["chat_id"], agent_id)
    except BadInput as error:
        return str(error)
    found = _channels[route["channel"]]
    if agent_id is not None and isinstance(found, ChannelOfAgents):
        return found.trouble(agent_id, route["chat_id"])
    return ""


def _alternatives_to(channel: str) -> str:
    """The available channels, and how an operator sets this one up."""
    there_are = f"use one of: {', '.join(sorted({WEB, *_channels}))}"
    if channel == WEB:
        return f"its messages stay on this server; {there_are}"
    how = _SET_UP_BY.get(channel, "name a plugin that registers it in RONDO_PLUGINS")
    return f"{there_are}; or have the operator set it up ({how}, see docs/channels.md)"
