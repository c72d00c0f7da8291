"""How this copy of Rondo is installed: a checkout with `manage.py`, or a wheel with the command `rondo`.

A wheel holds the checkout's code in one folder, `rondo_server`, with the same structure. So in both the code finds
templates and prompts relative to `ROOT`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

VERSION = "0.2.0"
ROOT = Path(__file__).resolve().parent.parent  # the folder of manage.py
IS_CHECKOUT = (ROOT / "pyproject.toml").is_file()
COMMAND = "manage.py" if IS_CHECKOUT else "rondo"  # as people type it
SETTINGS_HINT = f"see docs/configuration.md, or use `{COMMAND} up`"


def data_folder(environ: Mapping[str, str], *, is_checkout: bool = IS_CHECKOUT) -> Path:
    """The default of `--data-dir`: `.rondo` in the current folder, or for a wheel a folder of the user's data."""
    if is_checkout:
        return Path(".rondo")
    base = Path(environ.get("XDG_DATA_HOME", ""))
    if not base.is_absolute():  # a relative one is to be ignored, says its specification
        base = Path(environ.get("HOME") or "~").expanduser() / ".local" / "share"
    return base / "rondo"


DATA_FOLDER = data_folder(os.environ)
