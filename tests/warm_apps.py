"""What every worker and beat loads of ours, with the settings of this process's environment."""

from __future__ import annotations

import threading


def load() -> None:
    """Leave no thread and no connection behind: what is forked from here makes its own."""
    from config.celery import app

    app.loader.import_default_modules()  # sets Django up and imports the tasks
    import automations.beat  # noqa: F401
    import sessions_app.worker.process  # noqa: F401

    assert threading.active_count() == 1, threading.enumerate()
