"""The settings of an agent's MCP server: its address, its headers, and how far its owner trusts it.

Servers are reached over HTTP and never started as programs, because an agent's owner does not operate this machine.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote_plus, urlsplit, urlunsplit

from agent_core.addresses import NoAddress, Reach, host_and_port, parse_web_address
from agent_core.exceptions import BadServer

if TYPE_CHECKING:  # the import is slow: see client.py
    import mcp_types as types

HIDDEN = "***"  # shown in place of a secret value; a client that sends it back keeps the value
MOST_HEADERS = 10
LONGEST_VALUE = 4_000
SHORTEST_SECRET = 6  # characters; shorter pieces of a header may be ordinary words of an answer
_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")  # without _, so that `<server>__<tool>` is unambiguous
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_OURS = re.compile(
    r"host|content-.*|transfer-encoding|connection|accept|accept-encoding|te|trailer|upgrade|expect|keep-alive"
    r"|proxy-.*|mcp-.*|last-event-id",
    re.IGNORECASE,
)
_MARKS = ("trusted", "own")
_KEYS = {"url", "headers", *_MARKS}


@dataclass(frozen=True, kw_only=True, slots=True)
class McpServer:
    """One server. Its `headers` and the values in the query of its `url` are secrets, sent to this server only.

    `trusted`: what it says of its tools' effects counts. `own`: its answers are its owner's own data, no text from
    outside.
    """

    name: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    trusted: bool = False
    own: bool = False

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> McpServer:
        """Read what `to_json` wrote."""
        headers = tuple(sorted(data.get("headers", {}).items()))
        marks = {mark: data.get(mark, False) for mark in _MARKS}
        return cls(name=name, url=data["url"], headers=headers, **marks)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as they are stored, without the name."""
        return {"url": self.url, "headers": dict(self.headers), "trusted": self.trusted, "own": self.own}

    @property
    def fingerprint(self) -> str:
        """A digest of all settings: with other headers the server is another one, which acts for somebody else."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def shown(self) -> dict[str, Any]:
        """Return the settings as people see them, with hidden secrets."""
        headers = dict.fromkeys(dict(self.headers), HIDDEN)
        return {**self.to_json(), "url": _without_values(self.url), "headers": headers}

    def without_secrets(self, text: str) -> str:
        """Return a text of the server without the secrets that it was sent."""
        for _name, value in self.headers:
            pieces = [value, *(piece for piece in value.split() if len(piece) >= SHORTEST_SECRET)]
            for piece in pieces:
                text = text.replace(piece, HIDDEN)
        for _name, written in _query_pairs(self.url):
            value = unquote_plus(written)
            for piece in {written, value, quote(value, safe=""), quote_plus(value)}:
                text = text.replace(piece, HIDDEN) if len(piece) >= SHORTEST_SECRET else text
        return text


def read_server(name: str, given: Any, *, known: McpServer | None, reach: Reach) -> McpServer:
    """Validate the settings of a server; `known` is the stored server of this name. Raises BadServer."""
    if not _NAME.fullmatch(name):
        raise BadServer(
            f"{name[:40]!r} is not a server name; use 1 to 20 lower-case letters, digits and dashes, a letter first"
        )
    if not isinstance(given, Mapping):
        raise BadServer(f"{name} must be an object with url, and optionally headers, trusted and own")
    if unknown := sorted(str(key)[:40] for key in given.keys() - _KEYS):
        raise BadServer(f"{name} has no setting {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}")
    marks = {mark: given.get(mark, False) for mark in _MARKS}
    for mark, value in marks.items():
        if not isinstance(value, bool):
            raise BadServer(f"{name}.{mark} must be true or false")
    url = _url(name, _kept_url(name, given.get("url"), known), reach)
    headers = _headers(name, given.get("headers", {}))
    return McpServer(name=name, url=url, headers=_with_kept(name, url, headers, known), **marks)


def _query_pairs(url: str) -> list[tuple[str, str]]:
    """The parameters of the query as ("name=", value); one without `=` is a value without a name."""
    parameters = [part.partition("=") for part in urlsplit(url).query.split("&") if part]
    return [(name + sign, value) if sign else ("", name) for name, sign, value in parameters]


def _without_values(url: str) -> str:
    """The address with hidden values, such as `https://host/mcp?key=***`."""
    shown = "&".join(name + (value and HIDDEN) for name, value in _query_pairs(url))
    return urlunsplit(urlsplit(url)._replace(query=shown))


def _kept_url(name: str, given: Any, known: McpServer | None) -> Any:
    """Return the stored address if `given` is that address with hidden values. Raises BadServer."""
    if not isinstance(given, str) or HIDDEN not in given:
        return given
    if known is None or given != _without_values(known.url):
        raise BadServer(
            f"{name}.url must be given whole: its hidden values ({HIDDEN}) belong to another address"
        )
    return known.url


def _url(name: str, given: Any, reach: Reach) -> str:
    if not isinstance(given, str):
        raise BadServer(f"{name}.url is missing; give an address such as https://tools.example.org/mcp")
    try:
        parts = parse_web_address(given)
        host, port = host_and_port(parts)
    except NoAddress as error:
        raise BadServer(f"{name}: {error}") from None
    if parts.fragment:
        raise BadServer(f"{name}: url must not have a fragment (#{parts.fragment[:40]})")
    if not reach.may_be_public(host, port):
        raise BadServer(
            f"{name}: {host!r} is not a public address; use one, or have the operator name it in RONDO_MCP_HOSTS"
        )
    return given


def _headers(name: str, given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping) or len(given) > MOST_HEADERS:
        raise BadServer(f"{name}.headers must be an object of at most {MOST_HEADERS} headers")
    if len({str(key).lower() for key in given}) < len(given):
        raise BadServer(f"{name}.headers has the same header twice; upper and lower case are the same")
    for key, value in given.items():
        if not isinstance(key, str) or not _HEADER.fullmatch(key) or _OURS.fullmatch(key):
            raise BadServer(
                f"{name}.headers: {str(key)[:60]!r} cannot be set; it is reserved or not a valid header name"
            )
        if not isinstance(value, str) or len(value) > LONGEST_VALUE or not _VALUE.fullmatch(value):
            raise BadServer(
                f"{name}.headers.{key} must be 1 to {LONGEST_VALUE} ASCII characters, without spaces at its ends"
            )
    return dict(given)


def _with_kept(
    name: str, url: str, headers: dict[str, str], known: McpServer | None
) -> tuple[tuple[str, str], ...]:
    """Replace hidden header values by the stored ones.

    Only for the same origin: otherwise whoever may change an agent could have its secrets sent to a server of theirs.
    """
    stored = dict(known.headers) if known is not None and _origin(known.url) == _origin(url) else {}
    for key, value in headers.items():
        if value == HIDDEN:
            if key not in stored:
                raise BadServer(f"{name}.headers.{key} must be given: no value is stored for this address")
            headers[key] = stored[key]
    return tuple(sorted(headers.items()))


def _origin(url: str) -> tuple[str, str, int]:
    parts = parse_web_address(url)
    return parts.scheme, *host_and_port(parts)


class Unusable(Exception):
    """A tool cannot be offered. The message says why, for the agent's owner."""


def with_digest(name: str, own: str, longest: int) -> str:
    """Return a name that differs from others by a digest of the tool's or property's own name."""
    return f"{name[: longest - 7]}_{hashlib.sha256(own.encode()).hexdigest()[:6]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A tool of a server that agents are not offered, and why."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """A server's readable tools in its own words, the others, and the protocol mode in which it answers."""

    tools: tuple[types.Tool, ...]
    mode: str
    left_out: tuple[LeftOut, ...] = ()
