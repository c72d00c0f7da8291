"""Checks URLs and network addresses, so that tools connect to public addresses only, and looks up host names.

The system's resolver has no timeout of its own, so each look-up has a thread. Each user may have a few at once and is
given no other user's answers, so that a slow name server of a stranger's host holds up nobody else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from typing import Final
from urllib.parse import SplitResult, urlsplit

from agent_core.process import PerProcess

MOST: Final = 64  # look-ups at once
MOST_EACH: Final = 8  # look-ups of one user at once
MOST_WAITING: Final = 100  # look-ups of one user that wait for these
FRESH_SECONDS: Final = 30.0  # for which an answer is kept
FAILED_SECONDS: Final = 5.0  # for which it is kept that a name has no address
_MOST_KEPT: Final = 2_000  # answers


@cache
def trust() -> ssl.SSLContext:
    """The trusted certificates, loaded once because that is slow."""
    return ssl.create_default_context()


class NoAddress(Exception):
    """The URL or host cannot be used. The message says why, for the model."""


class NotPublic(NoAddress):
    """The host has an address that is not public."""


@dataclass(eq=False, slots=True)
class _Lookup:
    """A look-up that waits, runs or has an answer. It is dropped if it has not begun by `begin_by` (monotonic)."""

    user: str
    host: str
    begin_by: float
    fresh_until: float = 0.0
    answer: Future[list[str]] = field(default_factory=Future)


class NameLookups:
    """The look-ups of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()  # by user
        self._waiting: list[_Lookup] = []
        self._kept: OrderedDict[tuple[str, str], _Lookup] = OrderedDict()

    def ask(self, host: str, user: str, seconds: float) -> Future[list[str]]:
        """Return the future addresses of a host; empty if it has none. It cannot be cancelled: others may wait for it.

        A look-up that has not begun after `seconds` never begins, and its future raises TimeoutError. Raises NoAddress
        if too many look-ups of the user wait.
        """
        now = time.monotonic()
        with self._lock:
            known = self._kept.get((user, host))
            if known is not None and (not known.answer.done() or now < known.fresh_until):
                return known.answer
            if sum(each.user == user for each in self._waiting) >= MOST_WAITING:
                raise NoAddress(
                    f"{host!r} was not resolved: too many other hosts of yours wait for their name servers"
                )
            lookup = _Lookup(user=user, host=host, begin_by=now + seconds)
            lookup.answer.set_running_or_notify_cancel()
            self._kept[user, host] = lookup
            self._kept.move_to_end((user, host))
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            self._waiting.append(lookup)
            self._begin()
        return lookup.answer

    def _begin(self) -> None:
        """Begin the waiting look-ups that may run, in order."""
        now, still = time.monotonic(), []
        for lookup in self._waiting:
            if now > lookup.begin_by:
                lookup.answer.set_exception(TimeoutError())
            elif not self._has_room(lookup.user):
                still.append(lookup)
            else:
                self._running[lookup.user] += 1
                threading.Thread(target=self._run, args=[lookup], name="rondo-resolve", daemon=True).start()
        self._waiting = still

    def _has_room(self, user: str) -> bool:
        of_users = self._running.total() - self._running[""]
        return self._running[user] < MOST_EACH and (not user or of_users < MOST - MOST_EACH)

    def _run(self, lookup: _Lookup) -> None:
        found: list[str] = []
        try:
            found = [str(row[4][0]) for row in socket.getaddrinfo(lookup.host, None, type=socket.SOCK_STREAM)]
        except (OSError, ValueError):  # ValueError: no host name
            pass
        finally:
            lookup.fresh_until = time.monotonic() + (FRESH_SECONDS if found else FAILED_SECONDS)
            lookup.answer.set_result(found)
            with self._lock:
                self._running[lookup.user] -= 1
                self._running += Counter()  # drops users without a look-up
                self._begin()


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
AddressCheck = Callable[[Address], bool]
LONGEST_URL = 2_000
LOOKUPS: Final[PerProcess[NameLookups]] = PerProcess()
LEAST_PORT = 1_024  # other than 80 and 443; lower ports belong to mail servers and the like

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# Networks that `is_global` counts as public, in this or another version of Python, although they are not.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "2001::/23",  # protocol assignments with Teredo, which carries IPv4 addresses
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which carries IPv4 addresses
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # 6bone
        "3fff::/20",  # documentation
        "100.64.0.0/10",  # carrier-grade NAT; 100.100.100.200 is the metadata service of Alibaba Cloud
        "168.63.129.16/32",  # the platform service of Azure
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is the metadata service of Oracle Cloud
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast relays
        "192.88.99.0/24",  # relays of 6to4
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
    )
)
# Names that no public server has: of one word, or below a suffix for local networks.
_LOCAL_NAME = re.compile(r"[^.]*|(.*\.)?(local|localhost|localdomain|internal|home\.arpa)")


def parse_web_address(url: str) -> SplitResult:
    """Validate and split a URL. Raises NoAddress."""
    if len(url) > LONGEST_URL:
        raise NoAddress(f"url is longer than {LONGEST_URL} characters")
    if not url.isprintable() or any(character in url for character in " \\"):
        raise NoAddress("url must not contain spaces, backslashes or control characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise NoAddress("url is not a valid URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoAddress("url must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise NoAddress("url must not contain a user name or a password")
    if port is not None and port not in (80, 443) and port < LEAST_PORT:
        raise NoAddress(f"port {port} is not allowed; use 80, 443 or a port from {LEAST_PORT} on")
    return parts


def host_and_port(parts: SplitResult) -> tuple[str, int]:
    """Return the host in its ASCII form, and the port. Raises NoAddress."""
    host = parts.hostname or ""
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            raise NoAddress(f"url has an invalid host name {host[:100]!r}") from None
    return host, parts.port or (443 if parts.scheme == "https" else 80)


def is_public(address: Address) -> bool:
    """Whether an address is known to be public: not of this machine, its network or its cloud provider."""
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved or address.is_private)
        and (address.version == 4 or address in _GLOBAL_UNICAST)
        and not any(address in network for network in _NOT_PUBLIC)
    )


def _written_address(name: str) -> Address | None:
    """The address that a host name spells, also as `127.1`, `2130706433` or `0x7f.1`; None for any other name."""
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(name))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """The servers that may be reached: public addresses, and `hosts` (`name` or `name:port`) named by the operator.

    `user`: whose share of the name look-ups is used; empty: the server's own.
    """

    hosts: frozenset[str] = frozenset()
    user: str = ""

    def address_check(self, host: str, port: int) -> AddressCheck:
        """Return the check for the addresses of a host."""
        named = host.lower() in self.hosts or f"{host.lower()}:{port}" in self.hosts
        return (lambda _address: True) if named else is_public

    def may_be_public(self, host: str, port: int) -> bool:
        """False for a private IP address in any of its forms and for a local name, unless the operator named it.

        The addresses of another name are checked when it is connected to.
        """
        name = host.lower().rstrip(".")
        address = _written_address(name)
        if address is None and not _LOCAL_NAME.fullmatch(name):
            return True
        return self.address_check(host, port)(address or ipaddress.IPv4Address("127.0.0.1"))


def resolve_host(host: str, is_allowed: AddressCheck, seconds: float, user: str = "") -> list[str]:
    """Return the addresses of a host within `seconds`. Raises NoAddress, NotPublic if any of them is not allowed.

    `user`: whose share of the look-ups it uses; empty: the server's own. The caller must connect to these addresses and
    not resolve the name again: the answer could be another (DNS rebinding).
    """
    try:
        found = LOOKUPS.get(NameLookups).ask(host, user, seconds).result(max(0.01, seconds))
    except TimeoutError:
        raise NoAddress(f"{host!r} could not be resolved in time") from None
    return _checked(host, found, is_allowed)


async def resolve_host_on_loop(
    host: str, is_allowed: AddressCheck, seconds: float, user: str = ""
) -> list[str]:
    """Do the same as `resolve_host` without holding a thread."""
    try:
        async with asyncio.timeout(seconds):
            found = await asyncio.wrap_future(LOOKUPS.get(NameLookups).ask(host, user, seconds))
    except TimeoutError:
        raise NoAddress(f"{host!r} could not be resolved in time") from None
    return _checked(host, found, is_allowed)


def _checked(host: str, addresses: list[str], is_allowed: AddressCheck) -> list[str]:
    found = [ipaddress.ip_address(address.partition("%")[0]) for address in addresses]
    if not found:
        raise NoAddress(f"there is no host {host!r}")
    if not all(is_allowed(address) for address in found):
        raise NotPublic(f"{host!r} is not a public address")
    return [str(address) for address in dict.fromkeys(found)]
