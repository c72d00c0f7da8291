"""Protocols of others by which programs talk with agents: their addresses. `RONDO_DOORS` says which are served.

The package of a protocol that is not served is not imported, and has no address. A chat service such as Telegram is
no protocol: it is a package of its own, registered in `interfaces/apps.py`.
"""

from typing import NamedTuple


class ServedProtocol(NamedTuple):
    """Where a protocol is served: the prefix of its addresses, and the module with its `urlpatterns`.

    `megabytes`: the size of a request body at most. Front ends send the images of a chat with each message.
    """

    prefix: str
    urls: str
    megabytes: int = 1


PROTOCOLS = {
    "mcp": ServedProtocol("mcp", "interfaces.mcp_server.view"),
    "openai": ServedProtocol("v1/", "interfaces.openai_api.views", megabytes=8),
    "ag-ui": ServedProtocol("ag-ui/", "interfaces.ag_ui.views", megabytes=8),
}
NONE = "none"  # serves no protocol
API = "/api/"
API_VERSION, VERSION_HEADER = "1", "Rondo-Version"  # docs/api.md says what a new version would mean
FOR_PROGRAMS = (API, *(f"/{each.prefix}" for each in PROTOCOLS.values()))


def is_for_programs(path: str) -> bool:
    """Whether the address belongs to the API or a protocol, whose bodies and errors are JSON, and not to a page."""
    return path.startswith(FOR_PROGRAMS)


def read_protocols(raw: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list; none for `none`. ValueError."""
    given = tuple(dict.fromkeys(name for name in (part.strip() for part in raw.split(",")) if name))
    if given == (NONE,):
        return ()
    if unknown := [name for name in given if name not in PROTOCOLS]:
        raise ValueError(f"must be {NONE} or some of {', '.join(PROTOCOLS)}, not {', '.join(unknown)}")
    return given
