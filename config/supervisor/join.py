"""Lets commands use the servers of a running `manage.py up`: of the default folder, or of `--data-dir`."""

from __future__ import annotations

import json
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from config.installation import COMMAND, DATA_FOLDER
from config.supervisor.errors import SetupError

OPTION = "--data-dir"
REQUIRED = ("DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY")
_chosen: list[Path] = []  # of this process, by `join_running`


def without_data_dir(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """The arguments of a command without `--data-dir`, and its folder; None: it is not given. SetupError."""
    left: list[str] = []
    folder = None
    given = iter(arguments)
    for each in given:
        name, _, value = each.partition("=")
        if each == "--":
            return [*left, each, *given], folder
        if name != OPTION:
            left.append(each)
            continue
        value = value or next(given, "")
        if not value:
            raise SetupError(f"{OPTION} needs the data folder of `{COMMAND} up`")
        folder = Path(value)
    return left, folder


def join_running(environ: MutableMapping[str, str], folder: Path | None = None) -> None:
    """Set the required variables from the data folder of a running `up`.

    By default from `DATA_FOLDER`, if none of the variables is set; if no `up` runs there, nothing changes, and the
    settings then name the missing variables. A `folder` that is given wins over the variables. SetupError if no `up`
    runs on it.
    """
    if folder is None and any(environ.get(name) for name in REQUIRED):
        return
    found = _servers(folder or DATA_FOLDER)
    if found is None:
        if folder is None:
            return
        raise SetupError(f"no server runs on {folder}; start it with `{COMMAND} up {OPTION} {folder}`")
    _chosen[:] = [folder or DATA_FOLDER]
    environ.update(zip(REQUIRED, found, strict=True))
    environ.pop("DATABASE_LOCK_URL", None)  # it belongs to another database
    environ.setdefault("HTTPS", "0")


def _servers(folder: Path) -> tuple[str, str, str] | None:
    try:
        connection = json.loads((folder / "connection.json").read_text())
        secrets = json.loads((folder / "secrets.json").read_text())
        return connection["database_url"], connection["broker_url"], secrets["secret_key"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def running_url() -> str:
    """The address of the web process of the `up` that was joined, or of `DATA_FOLDER`; empty if none runs there."""
    folder = _chosen[0] if _chosen else DATA_FOLDER
    try:
        return str(json.loads((folder / "connection.json").read_text())["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
