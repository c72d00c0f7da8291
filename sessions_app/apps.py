"""Sessions: the turn, the lock, the queue."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Sessions"

    def ready(self) -> None:
        """Have what lies here pruned, and make its tools known."""
        from django.conf import settings

        from agent_core import fetch
        from sessions_app import document_tools, live_state, retention

        retention.register_all()
        document_tools.register()
        live_state.register()
        if settings.RONDO_FETCH_URL:
            fetch.register()
