"""Settings for checks that load Django and need no server: types, missing migrations."""

import os

from config.env import set_placeholders

set_placeholders(os.environ)

from config.settings import *  # noqa: E402, F403

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
