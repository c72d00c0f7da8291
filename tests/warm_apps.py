"""Loads the apps with the settings of this process's environment, for the workers and beats that are forked from it."""

from __future__ import annotations

import gc
import threading
from importlib import import_module

import django

from config.preload import NEEDED


def load() -> None:
    """Leave no thread and no connection behind: what is forked from here makes its own."""
    django.setup()
    for name in (*NEEDED["celery"], *NEEDED["config.beat"]):
        import_module(name)
    gc.collect()
    gc.freeze()  # so that a collection in a child does not touch, and so copy, the pages of all that was loaded
    assert threading.active_count() == 1, threading.enumerate()
