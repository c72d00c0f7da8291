"""Lets commands use the servers of a running `manage.py up` in the current folder."""

import json
from collections.abc import MutableMapping
from pathlib import Path

FOLDER = Path(".rondo")
REQUIRED = ("DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY")


def join_running(environ: MutableMapping[str, str], folder: Path = FOLDER) -> None:
    """Set the required variables from the data folder of a running `up`, if none of them is set.

    If no `up` runs there, nothing changes, and the settings then name the missing variables.
    """
    if any(environ.get(name) for name in REQUIRED):
        return
    try:
        connection = json.loads((folder / "connection.json").read_text())
        secrets = json.loads((folder / "secrets.json").read_text())
        found = connection["database_url"], connection["broker_url"], secrets["secret_key"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    environ.update(zip(REQUIRED, found, strict=True))
    environ.setdefault("HTTPS", "0")


def running_url(folder: Path = FOLDER) -> str:
    """The address of the web process of a running `up`; empty if none runs there."""
    try:
        return str(json.loads((folder / "connection.json").read_text())["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
