from importlib import import_module

from django.apps import AppConfig
from django.conf import settings


class ProjectConfig(AppConfig):
    name = "config"
    verbose_name = "Rondo"

    def ready(self) -> None:
        """Make our Celery app the default in every process that runs Django: hints reach the broker.

        Plugins come last, when all that they may register with is there.
        """
        import config.celery  # noqa: F401

        for name in settings.RONDO_PLUGINS:
            _load(name)


def _load(name: str) -> None:
    """Import a plugin; one that is not there ends the process in one line, like any bad variable.

    What a plugin raises itself goes through with its traceback, for its author.
    """
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):  # itself or a package that it is in
            raise SystemExit(f"rondo: RONDO_PLUGINS names {name}, which cannot be found") from None
        raise
