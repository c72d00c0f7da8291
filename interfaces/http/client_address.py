"""The network of a client, for throttling."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

_IPV6_SITE = 64  # leading bits; the rest are usually one customer's own


@lru_cache(1024)  # asked several times for each request
def network_of(address: str) -> str:
    """An IPv4 address itself, an IPv6 address's /64, any other text unchanged (64 characters)."""
    try:
        found = ipaddress.ip_address(address)
        if found.version == 6 and found.ipv4_mapped is not None:
            found = found.ipv4_mapped  # how a dual-stack socket writes IPv4
        if found.version == 4:
            return str(found)
        return str(ipaddress.ip_network((str(found), _IPV6_SITE), strict=False))
    except ValueError:
        return address[:64]  # the name of a Unix socket, or empty
