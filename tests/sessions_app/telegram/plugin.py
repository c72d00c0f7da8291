"""The tools of `tests/plugins.py`, without its channel that writes to a file."""

from interfaces.telegram.channel import Telegram
from sessions_app.channels import base
from tests import plugins  # noqa: F401 - registers its tools

base.register(Telegram())
