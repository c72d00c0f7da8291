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
            import_module(name)
