from django.apps import AppConfig


class ProjectConfig(AppConfig):
    name = "config"
    verbose_name = "Rondo"

    def ready(self) -> None:
        """Make our Celery app the default in every process that runs Django: hints reach the broker."""
        import config.celery  # noqa: F401
