"""A beat process: `python -m config.beat`.

`celery -A config beat` does the same, but its command line also loads the tasks and commands that beat does not use.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Fire what is due until SIGTERM or SIGINT."""
    if len(sys.argv) > 1:
        sys.exit("python -m config.beat takes no arguments: its settings are environment variables")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup(set_prefix=False)
    from celery.beat import Service

    from config.celery import app

    service = Service(app, scheduler_cls=app.conf.beat_scheduler)

    def stop(*_: Any) -> None:
        service.sync()  # closes the scheduler
        raise SystemExit

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    service.start()


if __name__ == "__main__":
    main()
