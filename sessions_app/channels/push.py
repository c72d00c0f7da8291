"""Web Push: browsers of a person, and messages to them by their push services (RFC 8030, 8188, 8291, 8292).

A browser names the address of its push service, so that is checked as those of webhooks are. The services cannot read
the messages. The server signs with a key that is made of SECRET_KEY, so a fleet shares it and nobody needs to keep it.
"""

from __future__ import annotations

import json
import os
import time
from base64 import b64decode, urlsafe_b64encode
from email.utils import parseaddr
from typing import Any
from urllib.parse import SplitResult, urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.signals import post_save
from django.dispatch import receiver

from agent_core.tools.http_request import HttpRequest
from sessions_app.channels.base import BadAddress, Needless, Parcel
from sessions_app.channels.personal import Personal, Told, title_of, words_of
from sessions_app.channels.webhook import MOST_BYTES, Webhook, answer_of, check_status
from sessions_app.encryption import signing_keys
from sessions_app.exceptions import BadInput
from sessions_app.models import PushSubscription, UserSettings
from sessions_app.models.user import LONGEST_ENDPOINT, LONGEST_KEY, LONGEST_SECRET
from sessions_app.postgres.rows import existing

MOST_BROWSERS = 10  # of a user; an eleventh takes the place of the oldest
KEPT_SECONDS = 86_400  # that a push service keeps a message for a browser that is away
SIGNED_SECONDS = 12 * 3600  # that a signature is valid
GONE = frozenset({404, 410})  # the browser has taken its subscription back
RECORD = 4096  # bytes; a message is a single record
PURPOSE = "web push"


def public_key() -> str:
    """The key that browsers subscribe with."""
    return _key_of(signing_keys(PURPOSE)[0])


def subscribe(user: User, *, endpoint: str, key: str, secret: str, name: str) -> PushSubscription:
    """Tell the user things in a browser from now on. A browser belongs to whoever subscribed it last. BadInput."""
    _check_endpoint(endpoint)
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), _bytes(key))
        is_secret = len(_bytes(secret)) == 16 and len(key) <= LONGEST_KEY and len(secret) <= LONGEST_SECRET
    except ValueError:
        is_secret = False
    if not is_secret:
        raise BadInput("the keys of the push subscription are not valid", code="bad_subscription")
    values = {"user": user, "key": key, "secret": secret, "name": name, "server_key": public_key()}
    UserSettings.objects.get_or_create(user=user)
    with transaction.atomic():
        existing(UserSettings.objects.select_for_update(no_key=True).filter(pk=user.pk))  # one at a time
        made, _ = PushSubscription.objects.update_or_create(endpoint=endpoint, defaults=values)
        own = PushSubscription.objects.filter(user=user)
        newest = own.order_by("-pk").exclude(pk=made.pk).values("pk")[: MOST_BROWSERS - 1]
        own.exclude(pk=made.pk).exclude(pk__in=list(newest.values_list("pk", flat=True))).delete()
    return made


@receiver(post_save, sender=settings.AUTH_USER_MODEL)
def _forget_browsers(instance: User, **_: Any) -> None:
    """Forget the browsers of a user whose password is new, as their sessions end."""
    if getattr(instance, "_password", None) is not None:  # Django has it until a new password is stored
        PushSubscription.objects.filter(user=instance).delete()


def _check_endpoint(endpoint: str) -> None:
    try:
        Webhook().check(endpoint)
        if len(endpoint) > LONGEST_ENDPOINT or not endpoint.startswith("https://"):
            raise BadAddress(f"the address must be https, of at most {LONGEST_ENDPOINT:,} characters")
    except BadAddress as error:
        raise BadInput(f"push service: {error}", code="bad_subscription") from None


class Push(Personal):
    """Pushes to a browser, which the metadata of the delivery names."""

    name = "push"

    def is_wanted(self, wishes: UserSettings) -> bool:  # noqa: ARG002 - as every way is asked
        """As long as the browser is subscribed."""
        return True

    def tell(self, parcel: Parcel, wishes: UserSettings) -> None:
        """Push the title, and what it is about. A browser that has gone is forgotten."""
        own = PushSubscription.objects.filter(user=wishes.pk)  # it may be another user's by now
        browser = own.filter(pk=parcel.meta["subscription"]).first()
        signing = next(
            (each for each in signing_keys(PURPOSE) if browser and _key_of(each) == browser.server_key), None
        )
        if browser is None or signing is None:
            _forget(browser)
        else:
            told = {
                "session": parcel.session_id,
                "title": title_of(parcel),
                "body": words_of(parcel, wishes),
            }
            body = encrypt(json.dumps(told).encode(), _bytes(browser.key), _bytes(browser.secret))
            headers = _headers(parcel, browser.endpoint, signing)
            connection.close()  # back to the pool while the push service works
            answer = answer_of(
                browser.endpoint, parcel.seconds, lambda parts: _request(parts, headers, body, parcel.user)
            )
            if answer.status in GONE:
                _forget(browser)
            check_status(answer)


def _forget(browser: PushSubscription | None) -> None:
    """Forget a browser that takes no pushes any more. Needless."""
    if browser is not None:
        PushSubscription.objects.filter(pk=browser.pk).delete()
    raise Needless("the browser is not subscribed any more")


def _request(parts: SplitResult, headers: tuple[tuple[str, str], ...], body: bytes, user: str) -> HttpRequest:
    return HttpRequest(
        method="POST", parts=parts, headers=headers, body=body, most_bytes=MOST_BYTES, user=user
    )


def _headers(
    parcel: Parcel, endpoint: str, signing: ec.EllipticCurvePrivateKey
) -> tuple[tuple[str, str], ...]:
    urgency = "normal" if parcel.about["told"] == Told.ANSWER else "high"
    return (
        ("User-Agent", "Rondo (push)"),
        ("Content-Type", "application/octet-stream"),
        ("Content-Encoding", "aes128gcm"),
        ("TTL", str(KEPT_SECONDS)),
        ("Urgency", urgency),
        ("Topic", parcel.session_id.replace("-", "")),  # of a conversation, the newest one is kept
        ("Authorization", f"vapid t={_signature(endpoint, signing)}, k={_key_of(signing)}"),
    )


def _signature(endpoint: str, signing: ec.EllipticCurvePrivateKey) -> str:
    """The JSON Web Token by which the push service knows this server (RFC 8292)."""
    parts = urlsplit(endpoint)
    claims = {
        "aud": f"{parts.scheme}://{parts.netloc}",
        "exp": int(time.time()) + SIGNED_SECONDS,
        "sub": f"mailto:{parseaddr(settings.DEFAULT_FROM_EMAIL)[1]}",
    }
    signed = ".".join(_text(json.dumps(each).encode()) for each in ({"typ": "JWT", "alg": "ES256"}, claims))
    r, s = decode_dss_signature(signing.sign(signed.encode(), ec.ECDSA(SHA256())))
    return f"{signed}.{_text(r.to_bytes(32) + s.to_bytes(32))}"


def encrypt(
    text: bytes,
    key: bytes,
    secret: bytes,
    *,
    own: ec.EllipticCurvePrivateKey | None = None,
    salt: bytes | None = None,
) -> bytes:
    """Encrypt a message for the browser with this key and secret (RFC 8291). `own` and `salt` are used once."""
    own, salt = own or ec.generate_private_key(ec.SECP256R1()), salt or os.urandom(16)
    public = _point(own.public_key())
    shared = own.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), key))
    common = _derived(shared, secret, b"WebPush: info\0" + key + public, 32)
    content = _derived(common, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(common, salt, b"Content-Encoding: nonce\0", 12)
    head = salt + RECORD.to_bytes(4) + len(public).to_bytes(1) + public
    return head + AESGCM(content).encrypt(nonce, text + b"\x02", None)  # 2: the last record


def _derived(key: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(key)


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _key_of(signing: ec.EllipticCurvePrivateKey) -> str:
    return _text(_point(signing.public_key()))


def _text(raw: bytes) -> str:
    """Base64 for URLs, without padding, as all of Web Push has it."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """The bytes of such a text. ValueError."""
    bare = text[:200].rstrip("=")
    return b64decode(bare + "=" * (-len(bare) % 4), b"-_", validate=True)
