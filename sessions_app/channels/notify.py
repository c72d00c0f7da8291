"""The channel `notify`: chat services, through the library apprise (an optional extra of the package).

The operator names services in RONDO_NOTIFY, and a session's address is such a name: the URLs of services hold keys,
which no user, page or log may see.
"""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings

from sessions_app.channels.base import BadAddress, Parcel, Unsent
from sessions_app.single_line import one_line

SUBJECT = 78  # characters


class Notify:
    """Sends to a service that the operator named."""

    name = "notify"

    def check(self, address: str) -> None:
        """Accept a name of RONDO_NOTIFY."""
        if address not in settings.RONDO_NOTIFY:
            names = ", ".join(sorted(settings.RONDO_NOTIFY)) or "none"
            raise BadAddress(f"no service is named {address[:40]!r}; use one of RONDO_NOTIFY: {names}")

    def place(self, address: str) -> str:
        """The name of the service."""
        return address

    def send(self, parcel: Parcel) -> None:
        """Send it to the service. apprise reports success or failure only, without a reason."""
        url = settings.RONDO_NOTIFY.get(parcel.address)
        if url is None:
            raise Unsent(f"RONDO_NOTIFY no longer names {parcel.address[:40]!r}")
        service = _service(url)
        if service is None:
            raise Unsent("apprise does not understand the service's URL in RONDO_NOTIFY")
        try:
            taken = service.notify(
                body=parcel.shown_text, title=one_line(parcel.agent, SUBJECT), body_format="text"
            )
        except Exception as error:  # noqa: BLE001 - each service has its own exceptions, with keys in their texts
            raise Unsent(f"the service failed ({type(error).__name__})") from None
        if not taken:
            raise Unsent("the service did not accept it")


def _service(url: str) -> Any:
    import apprise

    for name in ("apprise", "urllib3"):  # they log URLs with keys
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # a redirected POST would become a GET without the text, and count as accepted
    found = apprise.Apprise(asset=apprise.AppriseAsset(http_redirects=False))
    if not found.add(url):
        return None
    for server in found:
        server.overflow_mode = apprise.OverflowMode.SPLIT  # sends a text that is too long in pieces
    return found
