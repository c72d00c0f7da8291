"""Loads a process of `manage.py up` while the database is still starting: `python -m config.preload MODULE ARGUMENTS…`.

Imports what MODULE needs, waits for the end of standard input, then runs MODULE as `python -m MODULE` does.
"""

import os
import runpy
import sys
from importlib import import_module

NEEDED = {
    "celery": (
        "config.celery",
        "celery.bin.celery",
        "celery.apps.worker",
        "sessions_app.tasks",
    ),
    "config.beat": ("config.celery", "automations.beat"),
    "config.web": ("config.asgi", "config.urls"),
}


def main() -> None:
    """Load, wait, run. Nothing here uses the database or the broker before the wait has ended."""
    module, *arguments = sys.argv[1:]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    from config.loading import leave_out_pages

    if module == "config.beat":
        leave_out_pages()
    django.setup(set_prefix=False)
    for word in sys.argv[1:]:  # a module
        for name in NEEDED.get(word, ()):
            import_module(name)
    os.read(0, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [module, *arguments]
    if not hasattr(sys.modules.get(module), "__path__"):  # runpy warns of a module that is loaded already
        sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
