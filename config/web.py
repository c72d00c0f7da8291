"""The web process: `python -m config.web` runs uvicorn with limits on connections; it takes uvicorn's options."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from interfaces.http.server.connection import backlog

WEB_GRACE = 3  # seconds that open event streams have to end
OPTIONS = {
    "--http": "interfaces.http.server.connection:ClientConnection",
    "--ws": "none",
    "--lifespan": "on",
    "--timeout-graceful-shutdown": str(WEB_GRACE),
}


def address_in(arguments: Sequence[str]) -> str:
    """Where a web process with these arguments listens, to tell people; empty: not at a port."""
    found = {"--host": "127.0.0.1", "--port": "8000"}
    given = iter(arguments)
    for each in given:
        name, is_whole, value = each.partition("=")
        if name in {"--uds", "--fd"}:
            return ""
        if name in found:
            found[name] = value if is_whole else next(given, "")
    host, port = found.values()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _keep_logging() -> None:
    """Make uvicorn use the log settings of Django, which it would replace if Django is loaded already."""
    from django.apps import apps

    if apps.ready:
        from django.conf import settings

        LOGGING_CONFIG.clear()
        LOGGING_CONFIG.update(settings.LOGGING)


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS reports no limit and accepts none
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each connection needs a descriptor
    _keep_logging()
    ours = OPTIONS | {"--backlog": str(backlog())}
    uvicorn.main(["config.asgi:application", *chain(*ours.items()), *sys.argv[1:]])


if __name__ == "__main__":
    main()
