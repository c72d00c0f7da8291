"""A command beside a running `manage.py up`: it uses the servers that the `up` of this folder started."""

import json
from collections.abc import MutableMapping
from pathlib import Path

FOLDER = Path(".rondo")
REQUIRED = ("DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY")


def join_running(environ: MutableMapping[str, str], folder: Path = FOLDER) -> None:
    """Set what is required from the data folder of a running `up`, but only if none of it is set.

    Without one nothing is changed, and the missing variables are named as always.
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
