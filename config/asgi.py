"""The ASGI application. `python -m config.web` serves it and limits connections, which only a server can."""

import os
import sys

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup(set_prefix=False)

from django.conf import settings  # noqa: E402

from config.web import address_in  # noqa: E402
from interfaces.http.server.handler import Handler  # noqa: E402 - views and models need django.setup()
from interfaces.http.server.headers import CompleteHeaders, allow_origins  # noqa: E402
from sessions_app.models import ProcessKind  # noqa: E402
from sessions_app.operations.processes import Presence  # noqa: E402

_presence = Presence(ProcessKind.WEB)


def _begin() -> None:
    _presence.start(address=address_in(sys.argv[1:]))


_handler = Handler(begin=_begin, end=_presence.stop)
application = CompleteHeaders(allow_origins(_handler, settings.RONDO_CORS_ORIGINS))
