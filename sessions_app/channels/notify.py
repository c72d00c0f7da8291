"""The channel `notify`: chat services people use, over the library apprise (an optional extra of the package).

Services are named by the operator in RONDO_NOTIFY, and a session's address is such a name: the addresses of services
hold keys, which no user, page or log is to see.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

from django.conf import settings

from sessions_app.channels.base import BadAddress, Parcel, Unsent
from sessions_app.lines import one_line

SUBJECT = 78  # characters


def is_installed() -> bool:
    """Whether the extra is there."""
    return find_spec("apprise") is not None


class Notify:
    """Sends to a service that the operator named."""

    name = "notify"

    def check(self, address: str) -> None:
        """A name of RONDO_NOTIFY."""
        if address not in settings.RONDO_NOTIFY:
            names = ", ".join(sorted(settings.RONDO_NOTIFY)) or "none"
            raise BadAddress(f"no service is named {address[:40]!r}; there are: {names}")

    def place(self, address: str) -> str:
        """The service."""
        return address

    def send(self, parcel: Parcel) -> None:
        """Hand it to the service. The library tells no more than whether it went well."""
        url = settings.RONDO_NOTIFY.get(parcel.address)
        if url is None:
            raise Unsent(f"no service is named {parcel.address[:40]!r} any more")
        service = _service(url)
        if service is None:
            raise Unsent("the service's address in RONDO_NOTIFY cannot be read")
        try:
            taken = service.notify(
                body=parcel.text, title=one_line(parcel.agent, SUBJECT), body_format="text"
            )
        except Exception as error:  # noqa: BLE001 - a hundred services, each with its own failures, and keys in their texts
            raise Unsent(f"the service failed ({type(error).__name__})") from None
        if not taken:
            raise Unsent("the service did not take it")


def _service(url: str) -> Any:
    import apprise

    for name in ("apprise", "urllib3"):  # they log addresses
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # a redirected POST would become a GET without the text, and count as taken
    found = apprise.Apprise(asset=apprise.AppriseAsset(http_redirects=False))
    if not found.add(url):
        return None
    for server in found:
        server.overflow_mode = (
            apprise.OverflowMode.SPLIT
        )  # a text that is too long for the service comes in pieces
    return found
