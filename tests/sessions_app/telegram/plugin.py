"""The tools of `tests/plugins.py`, without its channel that writes to a file."""

from sessions_app.channels import base
from sessions_app.telegram.channel import Telegram
from tests import plugins  # noqa: F401 - registers its tools

base.register(Telegram())
