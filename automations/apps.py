"""Automations: what is due, and when."""

from django.apps import AppConfig


class AutomationsConfig(AppConfig):
    name = "automations"
    verbose_name = "Automations"

    def ready(self) -> None:
        """Make what lies here known to the layers below."""
        from automations import (
            bound,
            bound_messages,
            dream,
            heartbeat,
            heartbeat_apply,
            isolated,
            job_tools,
            legacy,
            live_state,
            message_kind,
            message_tools,
            prune_messages,
            prune_runs,
            routine_tools,
            system,
            tools,
        )
        from sessions_app import belongings, delete, deliver, documents, kinds

        kinds.register(bound.AutomationKind())
        kinds.register(legacy.LegacyKind())
        kinds.register(dream.DreamKind())
        kinds.register(heartbeat.HeartbeatKind())
        kinds.register(isolated.JobKind())
        kinds.register(message_kind.ScheduledMessageKind())
        deliver.observe(message_kind.delivered)
        belongings.register(system.SystemJobs())
        delete.register(bound.SessionAutomations())
        delete.register(bound_messages.SessionMessages())
        documents.register(heartbeat_apply.HeartbeatDocument())
        tools.register()
        routine_tools.register()
        job_tools.register()
        message_tools.register()
        live_state.register()
        prune_runs.register_all()
        prune_messages.register_all()
