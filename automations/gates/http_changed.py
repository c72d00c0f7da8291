"""The gate `http_changed`: a public address whose answer has changed since the last slot.

Compared is the text of the page that people see or, with a JSON pointer (RFC 6901), the value there. Only a hash is
remembered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_core.addresses import NoAddress, Reach, host_and_port, parse_web_address
from agent_core.tools.fetch import Fetcher, PageFailed, WebPage
from automations.exceptions import BadJob
from automations.gates.registry import LONGEST_FINDINGS, Look, OwnReason

SECONDS = 10.0  # for the answer with all redirects
LONGEST_POINTER = 200  # characters
KIND = "http_changed"


@dataclass(frozen=True, kw_only=True)
class HttpChanged:
    """The gate with the settings `{"kind": "http_changed", "url", "pointer"?}`."""

    fetcher: Fetcher = field(default_factory=lambda: Fetcher(seconds=SECONDS))
    kind: str = KIND

    def checked(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Check address and pointer. No name is looked up: that is done at each slot. BadJob."""
        if unknown := sorted(set(settings) - {"url", "pointer"}):
            raise _bad(f"gate has no setting {unknown[0][:60]!r}; known: url, pointer")
        url, pointer = settings.get("url"), settings.get("pointer") or ""
        if not isinstance(url, str):
            raise _bad("gate.url must be a web address")
        try:
            host, port = host_and_port(parse_web_address(url))
        except NoAddress as error:
            raise _bad(f"gate.{error}") from None
        if not Reach().may_be_public(host, port):
            raise _bad(f"gate.url: {host[:100]!r} is not a public address")
        if not isinstance(pointer, str) or len(pointer) > LONGEST_POINTER or pointer[:1] not in ("", "/"):
            raise _bad(
                f"gate.pointer must be a JSON pointer of at most {LONGEST_POINTER} characters, such as /a/0"
            )
        return {"url": url} | ({"pointer": pointer} if pointer else {})

    def look(self, settings: Mapping[str, Any], seen: Mapping[str, Any], user: str) -> Look:
        """Ask the address once, and compare its answer with the remembered hash. OwnReason."""
        url, pointer = settings["url"], settings.get("pointer", "")
        try:
            page = self.fetcher.read(url, user)
            text = _value_at(page, pointer) if pointer else page.text
        except PageFailed as error:
            raise OwnReason(error.reason) from None
        digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
        where = f"{url} at {pointer}" if pointer else url
        if seen.get("sha256") == digest:
            return Look(reason=f"{where} has not changed", seen={"sha256": digest})
        what = "has changed since the last run" if seen else "was read for the first time"
        cut = "\n(cut)" if page.cut or len(text) > LONGEST_FINDINGS else ""
        return Look(findings=f"{where} {what}:\n\n{text[:LONGEST_FINDINGS]}{cut}", seen={"sha256": digest})


def _bad(text: str) -> BadJob:
    return BadJob(text, code="bad_gate")


def _value_at(page: WebPage, pointer: str) -> str:
    """The value at a JSON pointer, as JSON with sorted keys. OwnReason."""
    if page.cut:
        raise OwnReason("the answer is too long to be read as JSON")
    try:
        value = json.loads(page.text)
        for part in pointer[1:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            value = value[int(name)] if isinstance(value, list) and name.isdecimal() else value[name]
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        raise OwnReason("the answer is no JSON") from None
    except (LookupError, TypeError):
        raise OwnReason("the answer has nothing at the pointer") from None
