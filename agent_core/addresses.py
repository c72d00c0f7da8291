"""Which addresses of the web and of the network a tool may go to: public ones, looked up once."""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
May = Callable[[Address], bool]
LONGEST_URL = 2_000
LEAST_PORT = 1_024  # beside 80 and 443: nothing that speaks mail or the like

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# within it: protocol assignments with Teredo, 6to4 and documentation; the first two carry IPv4 addresses within
_NOT_PUBLIC_6 = tuple(
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "3ffe::/16"))
)
_NOT_PUBLIC_4 = tuple(map(ipaddress.IPv4Network, ("192.0.0.0/24", "192.88.99.0/24")))


class NoAddress(Exception):
    """The name leads nowhere; the message says why, for the model."""


class NotPublic(NoAddress):
    """It leads to where nobody may be sent."""


def web_address(url: str) -> SplitResult:
    """The parts of an address of the web. NoAddress."""
    if len(url) > LONGEST_URL:
        raise NoAddress(f"url is longer than {LONGEST_URL} characters")
    if not url.isprintable() or any(character in url for character in " \\"):
        raise NoAddress("url holds a space, a backslash or a control character")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise NoAddress("url cannot be read") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoAddress("url must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise NoAddress("url must not hold a user name or a password")
    if port is not None and port not in (80, 443) and port < LEAST_PORT:
        raise NoAddress(f"port {port} is not one of web servers")
    return parts


def place(parts: SplitResult) -> tuple[str, int]:
    """The host as the network spells it, and the port. NoAddress."""
    host = parts.hostname or ""
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            raise NoAddress("url names no readable host") from None
    return host, parts.port or (443 if parts.scheme == "https" else 80)


def is_public(address: Address) -> bool:
    """Nothing of this machine, of its network or of its cloud. What is not known to be public is not."""
    if isinstance(address, ipaddress.IPv6Address):
        return (
            address in _GLOBAL_UNICAST
            and address.is_global
            and not any(address in network for network in _NOT_PUBLIC_6)
        )
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved or address.is_private)
        and not any(address in network for network in _NOT_PUBLIC_4)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """Where servers may be: at public addresses, and at hosts (`name` or `name:port`) that the operator named."""

    hosts: frozenset[str] = frozenset()

    def may(self, host: str, port: int) -> May:
        """Which addresses a host may have."""
        named = host.lower() in self.hosts or f"{host.lower()}:{port}" in self.hosts
        return _any if named else is_public


def _any(_address: Address) -> bool:
    return True


def look_up(host: str, port: int, may: May, seconds: float) -> list[str]:
    """The addresses of a host, each of which `may` allows. NoAddress.

    Whoever connects uses these and never the name again: a second look could find other ones (DNS rebinding). One
    bad address refuses all: a name that has a private one is no public place.
    """
    found = [ipaddress.ip_address(address.partition("%")[0]) for address in _answers(host, port, seconds)]
    if not found:
        raise NoAddress(f"there is no host {host!r}")
    if not all(may(address) for address in found):
        raise NotPublic(f"{host!r} is not a public address")
    return [str(address) for address in dict.fromkeys(found)]


def _answers(host: str, port: int, seconds: float) -> list[str]:
    """What the resolver says, at most so late: it has no time limit of its own."""
    answers: queue.Queue[Any] = queue.Queue(1)

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):
            answers.put([])

    threading.Thread(target=ask, name="rondo-resolve", daemon=True).start()
    try:
        rows = answers.get(timeout=max(0.01, seconds))
    except queue.Empty:
        raise NoAddress(f"{host!r} could not be looked up in time") from None
    return [str(row[4][0]) for row in rows]
