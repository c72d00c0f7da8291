"""The channel `webhook`: POST of JSON, signed by the Standard Webhooks scheme over id, timestamp and body.

Users give the addresses, so only public ones and hosts in RONDO_WEBHOOK_HOSTS are accepted. A name is looked up once
for each attempt, and exactly that address is connected to. Redirects are not followed.
"""

from __future__ import annotations

import base64
import hmac
import http.client
import json
import secrets
import ssl
import time
from collections.abc import Callable
from urllib.parse import SplitResult

from django.conf import settings

from agent_core.addresses import NoAddress, NotPublic, Reach, host_and_port, parse_web_address
from agent_core.text.formats import utc_text
from agent_core.tools.http_request import REDIRECTS, HttpAnswer, HttpRequest, send_request
from sessions_app.channels.base import BadAddress, Parcel, Unsent, check_destination
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent
from sessions_app.postgres.rows import existing

PREFIX = "whsec_"
KEY_BYTES = 32
MOST_BYTES = 64_000  # of an answer; it is read only to see that it is complete
LONGEST_WAIT = 3_600.0  # seconds; a longer Retry-After is cut to it
# permanent failures: the address is gone, or the receiver will never accept this text
FINAL = frozenset({400, 405, 406, 410, 411, 413, 414, 415, 422, 431, 501})
PATIENT = (429, 503)  # statuses whose Retry-After is obeyed


def _new_secret() -> str:
    """A new signing key, as Standard Webhooks writes it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def secret_of(agent_id: int) -> str:
    """The key that signs an agent's webhooks, made when it is first needed and shown to its owner alone. NotFound."""
    Agent.objects.filter(pk=agent_id, signing_secret="").update(signing_secret=_new_secret())
    return existing(Agent.objects.filter(pk=agent_id)).signing_secret


def new_secret_of(agent_id: int) -> str:
    """Replace the key that signs an agent's webhooks. A running attempt may still use the old one. NotFound."""
    Agent.objects.filter(pk=agent_id).update(signing_secret=_new_secret())
    return secret_of(agent_id)


def signature(secret: str, key: str, timestamp: int, body: bytes) -> str:
    """The `Webhook-Signature` of a delivery with this `whsec_` secret."""
    return sign(base64.b64decode(secret.removeprefix(PREFIX)), key, str(timestamp), body)


def sign(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    """`v1,<base64 of HMAC-SHA256 over "message_id.timestamp.body">`."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


class Webhook:
    """Posts to a URL. Any 2xx accepts the message."""

    name = "webhook"

    def check(self, address: str) -> None:
        """Accept http or https with a host and no user name. Names are looked up only when something is sent."""
        try:
            parts = parse_web_address(address)
            host, port = host_and_port(parts)
        except NoAddress as error:
            raise BadAddress(str(error).replace("url ", "the address ", 1)) from None
        if parts.fragment:
            raise BadAddress("the address must not hold a fragment")
        if not _reach().may_be_public(host, port):
            raise BadAddress(
                f"{host!r} is not a public address; use one, or have the operator name it in RONDO_WEBHOOK_HOSTS"
            )

    def place(self, address: str) -> str:
        """The host."""
        return parse_web_address(address).hostname or ""

    def send(self, parcel: Parcel) -> None:
        """Post it."""
        answer = answer_of(parcel.address, parcel.seconds, lambda parts: self._request(parcel, parts))
        check_status(answer)

    def _request(self, parcel: Parcel, parts: SplitResult) -> HttpRequest:
        body = _body(parcel)
        return HttpRequest(
            method="POST",
            parts=parts,
            headers=_headers(parcel, body),
            body=body,
            most_bytes=MOST_BYTES,
            user=parcel.user,
        )


class SystemEvents(Webhook):
    """Posts what the server says itself, signed and repeated as messages are."""

    name = "events"


class Ping(Webhook):
    """Calls a URL by GET, as a dead man's switch wants it."""

    name = "ping"

    def _request(self, parcel: Parcel, parts: SplitResult) -> HttpRequest:
        return ping_request(parts, parcel.user)


def ping_request(parts: SplitResult, user: str = "") -> HttpRequest:
    """The request that a dead man's switch waits for."""
    headers = (("User-Agent", "Rondo (ping)"),)
    return HttpRequest(parts=parts, headers=headers, most_bytes=MOST_BYTES, user=user)


def check_setting(name: str, url: str) -> None:
    """BadInput, with the setting's name in its text, unless webhooks may be sent to the URL. An empty one is fine."""
    try:
        if url:
            check_destination(Webhook.name, url)
    except BadInput as error:
        raise BadInput(str(error).replace("the address", name, 1), code=f"bad_{name}") from None


def answer_of(address: str, seconds: float, request: Callable[[SplitResult], HttpRequest]) -> HttpAnswer:
    """Send the request that is made for this address; return the complete answer. Unsent."""
    deadline = time.monotonic() + seconds
    try:
        parts = _readable(address)
        may = _reach().address_check(*host_and_port(parts))
        answer = send_request(request(parts), may, deadline)
    except NoAddress as error:
        raise Unsent(str(error), final=isinstance(error, NotPublic)) from None
    except ssl.SSLError as error:
        raise Unsent(f"the TLS connection failed: {error.reason or 'no reason given'}") from None
    except TimeoutError:
        raise Unsent(f"no answer within {seconds:.0f} s") from None
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= deadline:
            raise Unsent(f"no answer within {seconds:.0f} s") from None
        raise Unsent(f"the connection failed ({type(error).__name__})") from None
    if answer.broken:
        raise Unsent("the receiver closed the connection in the middle of its answer")
    return answer


def _reach() -> Reach:
    return Reach(hosts=frozenset(host.lower() for host in settings.RONDO_WEBHOOK_HOSTS))


def _readable(address: str) -> SplitResult:
    try:
        return parse_web_address(address)
    except NoAddress as error:
        raise Unsent(str(error), final=True) from None


def _body(parcel: Parcel) -> bytes:
    payload = {
        "type": parcel.type,
        "timestamp": utc_text(parcel.created_at),
        "data": {
            "delivery": parcel.key,
            "agent": parcel.agent,
            "session": parcel.session_id,
            "session_key": parcel.session_key,
            **({"text": parcel.text} if parcel.text or parcel.type == "message" else {}),
            **({"meta": parcel.meta} if parcel.meta else {}),
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


def check_status(answer: HttpAnswer) -> None:
    """Unsent unless the receiver accepted it."""
    status, retry_after = answer.status, answer.headers.get("Retry-After")
    if 200 <= status < 300:
        return
    if status in REDIRECTS:
        raise Unsent(
            f"the receiver redirects to another address ({status}); set that one instead", final=True
        )
    asked, wait = (retry_after or "").strip(), 0.0
    if status in PATIENT and asked.isascii() and asked.isdigit():
        wait = min(float(asked), LONGEST_WAIT)
    raise Unsent(f"the receiver answered {status}", final=status in FINAL, wait=wait)
