"""The ASGI application. `python -m config.web` serves it and limits connections, which only a server can."""

import os
import sys

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup(set_prefix=False)

from django.conf import settings  # noqa: E402

from config.web import address_in  # noqa: E402
from interfaces.http.server.body_limit import LimitBody  # noqa: E402
from interfaces.http.server.cors import allow_origins  # noqa: E402
from interfaces.http.server.handler import Handler  # noqa: E402 - views and models need django.setup()
from interfaces.http.server.headers import AddHeaders  # noqa: E402
from interfaces.http.server.lifespan import Lifespan  # noqa: E402
from interfaces.http.server.request_id import IdentifyRequests  # noqa: E402
from sessions_app.models import ProcessKind  # noqa: E402
from sessions_app.operations.processes import Presence  # noqa: E402

_presence = Presence(ProcessKind.WEB)


def _begin() -> None:
    _presence.start(address=address_in(sys.argv[1:]))


_served = allow_origins(LimitBody(Handler()), settings.RONDO_CORS_ORIGINS)
application = IdentifyRequests(AddHeaders(Lifespan(_served, begin=_begin, end=_presence.stop)))
