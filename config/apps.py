from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.conf import settings

from config import installation


class ProjectConfig(AppConfig):
    name = "config"
    verbose_name = "Rondo"

    def ready(self) -> None:
        """Register what sends hints, then load the plugins. The last in INSTALLED_APPS: all other apps are ready."""
        from django.apps import apps
        from django.db.models.signals import post_migrate, pre_migrate

        from config.celery import app
        from config.operations import schema
        from sessions_app import hints

        hints.use_celery_app(lambda: app)
        # this app has no models, so Django does not send the signals for it
        tables = apps.get_app_config("sessions_app")
        pre_migrate.connect(schema.refuse_other_version, sender=tables)
        post_migrate.connect(schema.store_fingerprints, sender=tables)
        if settings.RONDO_SENTRY_DSN:
            reports = _import_extra("config.operations.error_reports", "RONDO_SENTRY_DSN", "sentry")
            reports.start(settings.RONDO_SENTRY_DSN, installation.VERSION)
        if settings.RONDO_TRACES:
            traces = _import_extra("agent_core.telemetry.exporter", "RONDO_TRACES", "otel")
            traces.start(installation.VERSION)
        for name in settings.RONDO_PLUGINS:
            _import_plugin(name)


def _import_extra(name: str, variable: str, extra: str) -> Any:
    """Import a module that needs an extra. Without its packages the process ends with one line."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"rondo: {variable} is set, but {error.name} is not installed (extra {extra})"
        ) from None


def _import_plugin(name: str) -> None:
    """Import a plugin. A missing one ends the process with a one-line error, like any invalid variable.

    Exceptions of the plugin itself keep their traceback, for its author.
    """
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):  # the plugin or a package around it
            raise SystemExit(f"rondo: RONDO_PLUGINS names {name}, which is not installed") from None
        raise
