"""Makes Django load faster. Used by the settings, which every process loads first, and by ProjectConfig.ready()."""

import gc
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

UNUSED = ("rich", "greenlet")  # structlog imports them wherever they are installed
OF_PAGES = {"unfold", "unfold.contrib.filters", "django.contrib.admin.apps.SimpleAdminConfig", "axes"}


def begin() -> None:
    """Before the apps are loaded: stop garbage collections, and hide what Rondo does not use.

    Loading creates hardly any garbage, but triggers hundreds of collections. rich takes a tenth of the time of a
    command, greenlet 1 MB.
    """
    gc.disable()
    for name in UNUSED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None: its import raises ImportError


def end() -> None:
    """Undo `begin`. Loaded modules stay, so later collections skip them."""
    _show(UNUSED)
    gc.freeze()
    gc.enable()


def leave_out_pages() -> None:
    """Before the apps are loaded by a process that serves no page: 2 MB less, and no table refers to theirs."""
    from django.conf import settings

    settings.INSTALLED_APPS = [each for each in settings.INSTALLED_APPS if each not in OF_PAGES]


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Within the block, packages that are not loaded yet seem not to be installed."""
    ours = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(ours))  # type: ignore[arg-type]
    try:
        yield
    finally:
        _show(ours)


def _show(names: Iterable[str]) -> None:
    for name in names:
        if sys.modules.get(name, sys) is None:
            del sys.modules[name]
