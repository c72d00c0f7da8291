"""An MCP server of an agent as it is set up: its address, its headers, and whether its owner trusts it.

The owner of an agent is no operator of this machine: servers are reached over HTTP and never started as programs.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_core.addresses import NoAddress, Reach, place, web_address
from agent_core.exceptions import BadServer

HIDDEN = "***"  # stands for a header's value wherever one is shown; sent back, it keeps the value
MOST_HEADERS = 10
LONGEST_VALUE = 4_000
SHORTEST_SECRET = 6  # characters; shorter pieces of a header are words that answers may hold
_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")  # without _, so that `<server>__<tool>` has one reading
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_OURS = re.compile(
    r"host|content-.*|transfer-encoding|connection|accept|accept-encoding|te|trailer|upgrade|expect|keep-alive"
    r"|proxy-.*|mcp-.*|last-event-id",
    re.IGNORECASE,
)
_KEYS = {"url", "headers", "trusted"}


@dataclass(frozen=True, kw_only=True, slots=True)
class McpServer:
    """One server. `headers` are secrets: they are sent to it and shown to nobody."""

    name: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    trusted: bool = False

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> McpServer:
        """Read what `to_json` wrote."""
        headers = tuple(sorted(data.get("headers", {}).items()))
        return cls(name=name, url=data["url"], headers=headers, trusted=data.get("trusted", False))

    def to_json(self) -> dict[str, Any]:
        """As it is stored, the name apart."""
        return {"url": self.url, "headers": dict(self.headers), "trusted": self.trusted}

    def shown(self) -> dict[str, Any]:
        """As people see it."""
        return {**self.to_json(), "headers": dict.fromkeys(dict(self.headers), HIDDEN)}

    def without_secrets(self, text: str) -> str:
        """A text of the server, which may say again what it was sent."""
        for _name, value in self.headers:
            pieces = [value, *(piece for piece in value.split() if len(piece) >= SHORTEST_SECRET)]
            for piece in pieces:
                text = text.replace(piece, HIDDEN)
        return text


def read_server(name: str, given: Any, *, known: McpServer | None, reach: Reach) -> McpServer:
    """A server as somebody set it up; `known` is the one of this name so far. BadServer."""
    if not _NAME.fullmatch(name):
        raise BadServer(f"{name[:40]!r} is no name: 1 to 20 small letters, digits and dashes, a letter first")
    if not isinstance(given, Mapping):
        raise BadServer(f"{name} must be an object with url, and if need be headers and trusted")
    if unknown := sorted(str(key)[:40] for key in given.keys() - _KEYS):
        raise BadServer(f"{name} has no setting {unknown[0]!r}")
    trusted = given.get("trusted", False)
    if not isinstance(trusted, bool):
        raise BadServer(f"{name}.trusted must be true or false")
    url = _url(name, given.get("url"), reach)
    headers = _headers(name, given.get("headers", {}))
    return McpServer(name=name, url=url, headers=_with_kept(name, url, headers, known), trusted=trusted)


def _url(name: str, given: Any, reach: Reach) -> str:
    if not isinstance(given, str):
        raise BadServer(f"{name}.url is missing")
    try:
        parts = web_address(given)
        host, port = place(parts)
    except NoAddress as error:
        raise BadServer(f"{name}: {error}") from None
    if parts.fragment:
        raise BadServer(f"{name}: url must not hold a fragment")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return given  # a name: what it leads to is checked at each connection
    if not reach.may(host, port)(address):
        raise BadServer(f"{name}: {host} is not a public address")
    return given


def _headers(name: str, given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping) or len(given) > MOST_HEADERS:
        raise BadServer(f"{name}.headers must be an object of at most {MOST_HEADERS} headers")
    if len({str(key).lower() for key in given}) < len(given):
        raise BadServer(f"{name}.headers has a header twice")
    for key, value in given.items():
        if not isinstance(key, str) or not _HEADER.fullmatch(key) or _OURS.fullmatch(key):
            raise BadServer(f"{name}.headers: {str(key)[:60]!r} cannot be set")
        if not isinstance(value, str) or len(value) > LONGEST_VALUE or not _VALUE.fullmatch(value):
            raise BadServer(
                f"{name}.headers.{key} must be 1 to {LONGEST_VALUE} ASCII characters, without spaces around it"
            )
    return dict(given)


def _with_kept(
    name: str, url: str, headers: dict[str, str], known: McpServer | None
) -> tuple[tuple[str, str], ...]:
    """The headers, each hidden value replaced by the one that is stored.

    A new place is never sent the secrets of the old one: whoever can change an agent could read them there.
    """
    stored = dict(known.headers) if known is not None and _origin(known.url) == _origin(url) else {}
    for key, value in headers.items():
        if value == HIDDEN:
            if key not in stored:
                raise BadServer(f"{name}.headers.{key} must be given: there is none for this address")
            headers[key] = stored[key]
    return tuple(sorted(headers.items()))


def _origin(url: str) -> tuple[str, str, int]:
    parts = web_address(url)
    return parts.scheme, *place(parts)
