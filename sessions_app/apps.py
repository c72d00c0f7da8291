"""Sessions: the turn, the lock, the queue."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Sessions"

    def ready(self) -> None:
        """Have what lies here pruned, and make its tools and channels known."""
        from django.conf import settings

        from agent_core import fetch
        from sessions_app import clock_tool, document_tools, live_state, retention
        from sessions_app.channels import base, mail, notify, webhook

        retention.register_all()
        clock_tool.register()
        document_tools.register()
        live_state.register()
        base.register(webhook.Webhook())
        if settings.EMAIL_HOST:
            base.register(mail.Email())
        if settings.RONDO_NOTIFY:
            base.register(notify.Notify())
        if settings.RONDO_FETCH_URL:
            fetch.register()
