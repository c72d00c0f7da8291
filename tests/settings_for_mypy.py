"""Settings for the type checker, which loads Django but talks to no server."""

import os

from config.env import set_placeholders

set_placeholders(os.environ)

from config.settings import *  # noqa: E402, F403
