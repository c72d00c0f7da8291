"""The channel `webhook`: POST of JSON, signed by the Standard Webhooks scheme over id, timestamp and body.

An address of a user is a stranger's wish: only public ones, or hosts that the operator named; the name is looked up
once for each attempt and that very address is connected to; no redirect is followed.
"""

from __future__ import annotations

import base64
import hmac
import http.client
import json
import secrets
import ssl
import time
from functools import cache
from urllib.parse import SplitResult

from django.conf import settings

from agent_core.addresses import NoAddress, NotPublic, Reach, place, web_address
from agent_core.one_request import REDIRECTS, Request, ask
from sessions_app.channels.base import BadAddress, Parcel, Unsent

PREFIX = "whsec_"
KEY_BYTES = 32
MOST_BYTES = 64_000  # of an answer, which is not read but for its end
LONGEST_WAIT = 3_600.0  # seconds of a Retry-After that are believed
# what another attempt would not help: gone for good, or a text that it will never take
FINAL = frozenset({400, 405, 406, 410, 411, 413, 414, 415, 422, 431, 501})
PATIENT = (429, 503)  # whose Retry-After counts


def new_secret() -> str:
    """A key for signatures as the scheme spells it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def signature(secret: str, key: str, timestamp: int, body: bytes) -> str:
    """`v1,<base64 of HMAC-SHA256 over "key.timestamp.body">`."""
    return sign(base64.b64decode(secret.removeprefix(PREFIX)), key, str(timestamp), body)


def sign(by: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    """The signature of a message by the scheme, whoever sends it."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(by, signed, "sha256")).decode()


class Webhook:
    """Posts to an address of the web. Any 2xx takes the message."""

    name = "webhook"

    def check(self, address: str) -> None:
        """http or https, a host, no user name; where the host is, is looked at when something is sent."""
        try:
            parts = web_address(address)
            place(parts)
        except NoAddress as error:
            raise BadAddress(str(error).replace("url ", "the address ", 1)) from None
        if parts.fragment:
            raise BadAddress("the address must not hold a fragment")

    def place(self, address: str) -> str:
        """The host."""
        return web_address(address).hostname or ""

    def send(self, parcel: Parcel) -> None:
        """Post it."""
        deadline = time.monotonic() + parcel.seconds
        try:
            parts = _readable(parcel.address)
            may = Reach(hosts=frozenset(host.lower() for host in settings.RONDO_WEBHOOK_HOSTS)).may(
                *place(parts)
            )
            body = _body(parcel)
            request = Request(
                method="POST", parts=parts, headers=_headers(parcel, body), body=body, most_bytes=MOST_BYTES
            )
            answer = ask(request, may, deadline, _trust)
        except NoAddress as error:
            raise Unsent(str(error), final=isinstance(error, NotPublic)) from None
        except ssl.SSLError as error:
            raise Unsent(f"no secure connection: {error.reason or 'it failed'}") from None
        except TimeoutError:
            raise Unsent(f"no answer within {parcel.seconds:.0f} s") from None
        except (OSError, http.client.HTTPException) as error:
            late = time.monotonic() >= deadline
            text = (
                f"no answer within {parcel.seconds:.0f} s" if late else f"it failed ({type(error).__name__})"
            )
            raise Unsent(text) from None
        if answer.broken:
            raise Unsent("it hung up in the middle of its answer")
        _judge(answer.status, answer.headers.get("Retry-After"))


def _readable(address: str) -> SplitResult:
    try:
        return web_address(address)
    except NoAddress as error:
        raise Unsent(str(error), final=True) from None


@cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def _body(parcel: Parcel) -> bytes:
    payload = {
        "type": "message",
        "timestamp": parcel.created_at.isoformat(),
        "data": {
            "delivery": parcel.key,
            "agent": parcel.agent,
            "session": parcel.session_id,
            "session_key": parcel.session_key,
            "text": parcel.text,
            **parcel.about,
        },
    }
    return json.dumps(payload, ensure_ascii=False).encode()


def _headers(parcel: Parcel, body: bytes) -> tuple[tuple[str, str], ...]:
    timestamp = int(time.time())
    return (
        ("User-Agent", "Rondo (webhook)"),
        ("Content-Type", "application/json"),
        ("Accept-Encoding", "identity"),
        ("Webhook-Id", parcel.key),
        ("Webhook-Timestamp", str(timestamp)),
        ("Webhook-Signature", signature(parcel.secret, parcel.key, timestamp, body)),
        ("Rondo-Attempt", str(parcel.attempt)),
    )


def _judge(status: int, retry_after: str | None) -> None:
    if 200 <= status < 300:
        return
    if status in REDIRECTS:
        raise Unsent(f"it leads on to another place ({status}); set that address instead", final=True)
    asked = (retry_after or "").strip()
    wait = (
        min(float(asked), LONGEST_WAIT) if status in PATIENT and asked.isascii() and asked.isdigit() else 0.0
    )
    raise Unsent(f"the receiver answered {status}", final=status in FINAL, wait=wait)
