"""Makes Django load faster. Used by the settings, which every process loads first, and by ProjectConfig.ready()."""

import gc
import sys


def begin() -> None:
    """Before the apps are loaded: stop garbage collections, and hide rich.

    Loading creates hardly any garbage, but triggers hundreds of collections. structlog imports rich wherever it is
    installed, which takes a tenth of the time of a command; Rondo does not use rich.
    """
    gc.disable()
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # None: `import rich` raises ImportError


def end() -> None:
    """Undo `begin`. Loaded modules stay, so later collections skip them."""
    if sys.modules.get("rich", sys) is None:
        del sys.modules["rich"]
    gc.freeze()
    gc.enable()
