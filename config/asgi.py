"""The web process: `uvicorn config.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

from config.limit import LimitBody

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = LimitBody(get_asgi_application())
