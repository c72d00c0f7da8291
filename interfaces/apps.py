"""The Django app of the interfaces: templates, static files and commands. It has no models."""

from django.apps import AppConfig


class InterfacesConfig(AppConfig):
    name = "interfaces"
    verbose_name = "Interfaces"

    def ready(self) -> None:
        """Register the channels that are interfaces, too."""
        from interfaces.telegram.channel import Telegram
        from sessions_app.channels import base

        base.register(Telegram())
