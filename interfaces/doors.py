"""Protocol doors: packages that serve agents by a protocol of others, each switched by `RONDO_DOORS`.

The package of a door that is off is not imported, and has no address.
"""

from typing import NamedTuple


class Door(NamedTuple):
    """Where a door is served: the prefix of its addresses, and the module with its `urlpatterns`.

    `megabytes`: the size of a request body at most. Front ends send the images of a chat with each message.
    """

    prefix: str
    urls: str
    megabytes: int = 1


DOORS = {
    "mcp": Door("mcp", "interfaces.mcp_server.view"),
    "openai": Door("v1/", "interfaces.openai_api.views", megabytes=8),
    "ag-ui": Door("ag-ui/", "interfaces.ag_ui.views", megabytes=8),
}
NONE = "none"  # serves no door
API = "/api/"
API_VERSION, VERSION_HEADER = "1", "Rondo-Version"  # docs/api.md says what a new version would mean
FOR_PROGRAMS = (API, *(f"/{door.prefix}" for door in DOORS.values()))


def is_for_programs(path: str) -> bool:
    """Whether the address belongs to the API or a door, whose bodies and errors are JSON, or else is of a page."""
    return path.startswith(FOR_PROGRAMS)


def doors(raw: str) -> tuple[str, ...]:
    """Names of doors separated by commas, or `none`. ValueError."""
    given = tuple(dict.fromkeys(name for name in (part.strip() for part in raw.split(",")) if name))
    if given == (NONE,):
        return ()
    if unknown := [name for name in given if name not in DOORS]:
        raise ValueError(f"must be {NONE} or some of {', '.join(DOORS)}, not {', '.join(unknown)}")
    return given
