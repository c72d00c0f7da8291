"""The Django app of sessions, turns, mailboxes, deliveries and workers."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Sessions"

    def ready(self) -> None:
        """Register this app's retention rules, tools and channels."""
        from django.conf import settings
        from django.db.models.signals import post_migrate, pre_migrate

        from agent_core import tools
        from agent_core.connections import hooks
        from agent_core.prices import use_own_prices
        from agent_core.tools import fetch
        from sessions_app.agents.budgets import register_budgets
        from sessions_app.channels import base, mail, notify, personal, push, webhook
        from sessions_app.connections.check import register_connections
        from sessions_app.deliveries import outbox, system_events
        from sessions_app.postgres.connection import disable_time_limits, enable_time_limits
        from sessions_app.streams.event_log import forget_events_of_another_server
        from sessions_app.tools import clock, documents, live_state

        pre_migrate.connect(disable_time_limits)
        post_migrate.connect(enable_time_limits)
        post_migrate.connect(forget_events_of_another_server, sender=self)
        hooks.silence = lambda: float(settings.RONDO_MODEL_SILENCE_SECONDS)
        hooks.context_tokens = lambda: int(settings.RONDO_CONTEXT_TOKENS)
        hooks.reply_characters = lambda: int(settings.RONDO_REPLY_CHARS)
        register_connections()
        register_budgets()
        use_own_prices(settings.RONDO_PRICES)
        clock.register_clock_tool()
        documents.register_document_tools()
        live_state.register_agent_live_state()
        base.register(webhook.Webhook())
        for channel in (webhook.SystemEvents(), webhook.Ping(), personal.Page(), push.Push()):
            base.register_internal(channel)
        outbox.on_settled(system_events.report_dead_letter)
        if settings.RONDO_MAIL_SERVER["host"]:
            base.register(mail.Email())
            base.register_internal(personal.FailureMail())
        if settings.RONDO_NOTIFY:
            base.register(notify.Notify())
        if settings.RONDO_FETCH_URL:
            tools.register(fetch.FETCH_URL)

    def register_retention(self) -> None:
        """Register the walks of maintenance. It is called when the first one is needed."""
        from sessions_app.retention import rules

        rules.register_walks()
