"""The ASGI application. `python -m config.web` serves it and limits connections, which only a server can."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup(set_prefix=False)

import config.celery  # noqa: E402, F401 - loaded now, not with the first message
from config.http.body_limit import LimitBody  # noqa: E402
from config.http.handler import Handler  # noqa: E402 - views and models need django.setup()
from config.http.headers import AddHeaders  # noqa: E402

application = AddHeaders(LimitBody(Handler()))
