"""The data folder: its lock, its secrets, and connection.json, by which commands find the servers of a running `up`."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections import defaultdict
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from config.installation import COMMAND, DATA_FOLDER
from config.supervisor import SetupError

LAYOUT = 1  # increase it when folders of the older layout can no longer be used


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Secrets, created once per data folder. Passwords are only letters and digits, because they go into URLs."""

    layout: int
    secret_key: str
    database_password: str
    broker_password: str
    admin_password: str
    api_token: str


@contextmanager
def locked_folder(folder: Path) -> Iterator[Path]:
    """Create and lock the data folder; yields its absolute path. Raises SetupError."""
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
        logs = folder / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not os.access(logs, os.W_OK | os.X_OK) or not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise SetupError(
            f"cannot write to {folder} ({error.strerror}); choose another folder with --data-dir"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield folder.resolve()
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode() or "unknown"
        raise SetupError(f"{folder} is in use by another `up` (process {holder}); stop it first") from None
    finally:
        os.close(lock)


def load_keys(folder: Path) -> Keys:
    """Read the secrets of the folder, or create them in a new one. Raises SetupError."""
    path = folder / "secrets.json"
    if not path.exists():
        if (folder / "postgres").exists():
            raise SetupError(f"{path} is missing; restore it, because it holds the password of the database")
        write_private_json(path, asdict(_new_keys()))
    try:
        stored = json.loads(path.read_text())
        known = {each.name: stored[each.name] for each in fields(Keys)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SetupError(f"cannot read {path}: {error}") from None
    if known["layout"] != LAYOUT:
        raise SetupError(
            f"{folder} was created by another version of Rondo; choose another folder with --data-dir"
        )
    return Keys(**known)


def _new_keys() -> Keys:
    return Keys(
        layout=LAYOUT,
        secret_key=secrets.token_urlsafe(50),
        database_password=secrets.token_hex(16),
        broker_password=secrets.token_hex(16),
        admin_password=secrets.token_hex(8),
        api_token=secrets.token_hex(20),
    )


def write_private_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file atomically, readable by its owner only (0600)."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


OPTION = "--data-dir"
REQUIRED = ("DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY")
_chosen: list[Path] = []  # of this process, by `join_running`


def without_data_dir(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """Split `--data-dir` off the arguments of a command. Returns the other arguments, and the folder if given."""
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
    running = _stored(folder / "connection.json")
    found = running["database_url"], running["broker_url"], _stored(folder / "secrets.json")["secret_key"]
    return found if all(found) else None


def _stored(file: Path) -> defaultdict[str, str]:
    """The texts of a JSON object; empty ones without the file."""
    try:
        return defaultdict(str, json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return defaultdict(str)


def running_url() -> str:
    """The address of the web process of the `up` that was joined, or of `DATA_FOLDER`; empty if none runs there."""
    return _stored((_chosen[0] if _chosen else DATA_FOLDER) / "connection.json")["url"]
