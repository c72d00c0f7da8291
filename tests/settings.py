"""The server's settings, with passwords that are checked at once: one usual hash takes longer than most tests.

Processes that tests start take bounds and times, which are constants elsewhere, from variables of the same names.
"""

import os
from collections.abc import Callable
from typing import Any

from config.env import variables
from config.settings import *  # noqa: F403

PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.MD5PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]


def _of_type(value: Any) -> Callable[[str], Any]:
    if isinstance(value, bool):
        return lambda text: text == "1"
    if isinstance(value, tuple):
        return lambda text: tuple(map(int, text.split(",")))
    return type(value)


CONSTANTS = {
    name: _of_type(value)
    for name, value in dict(globals()).items()
    if name.startswith(("RONDO_", "AUTOMATION_")) and name not in {each.name for each in variables()}
}
globals().update({name: read(os.environ[name]) for name, read in CONSTANTS.items() if name in os.environ})
