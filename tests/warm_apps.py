"""Loads the apps with the settings of this process's environment, for the processes that are forked from it."""

import gc
import os
import threading
from collections.abc import Iterable
from importlib import import_module

import django

# What `python -m <module>` imports, and what is loaded late: by a worker with its first turn of that kind, by a web
# process with its first request
LOADED = {
    "celery": (
        "config.celery",
        "celery.bin.celery",
        "celery.apps.worker",
        "sessions_app.tasks",
        "agent_core.llm.pydantic_ai",
        "agent_core.mcp.client",
        "agent_core.planner.run",
        "tests.plugins",
    ),
    "config.beat": ("config.celery", "automations.beat"),
    "tests.sessions_app.spending.spender": ("sessions_app.agents.budgets", "agent_core.turn.charge"),
    "config.web": ("config.asgi", "config.urls", "uvicorn", "interfaces.http.server.connection"),
}


def load(module: str) -> None:
    """Load what `python -m <module>` needs.

    No thread and no connection is left behind: what is forked from here makes its own.
    """
    django.setup()
    from sessions_app.postgres.statements import Statement

    for name in LOADED[module]:
        import_module(name)
    for each in gc.get_objects():
        if isinstance(each, Statement):
            _ = each._constants  # else each process composes the SQL of its first turn
    gc.collect()
    gc.freeze()  # so that a collection in a child does not touch, and so copy, the pages of all that was loaded
    assert threading.active_count() == 1, threading.enumerate()


def take_over(names: Iterable[str]) -> None:
    """Set these settings to what the environment says now."""
    from django.conf import settings

    from config import env
    from tests.settings import CONSTANTS

    found = env.load(os.environ)
    for name in names:
        if name not in CONSTANTS:
            setattr(settings, name, getattr(found, name.lower()))
        elif name in os.environ:
            setattr(settings, name, CONSTANTS[name](os.environ[name]))
