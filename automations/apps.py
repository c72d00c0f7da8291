"""Automations: what is due, and when."""

from django.apps import AppConfig


class AutomationsConfig(AppConfig):
    name = "automations"
    verbose_name = "Automations"

    def ready(self) -> None:
        """Make what lies here known to the layers below."""
        from automations import bound, tools
        from sessions_app import delete, kinds

        kinds.register(bound.AutomationKind())
        delete.register(bound.SessionAutomations())
        tools.register()
