"""The app `automations`: schedules, scheduled messages, firing, runs and their tools."""

from importlib import import_module

from django.apps import AppConfig


class AutomationsConfig(AppConfig):
    name = "automations"
    verbose_name = "Automations"

    def ready(self) -> None:
        """Register the parts of this app that lower apps call."""
        from automations import retention
        from automations.jobs import bindings, system, validate
        from automations.routines import heartbeat_document
        from automations.tools import cron, live_state, messages, next_turn, repair, routines
        from automations.turn_kinds import dream, heartbeat, isolated, scheduled_message, slot
        from sessions_app.agents import dependents, documents
        from sessions_app.deliveries import outbox
        from sessions_app.journal import run_parts
        from sessions_app.limits import quotas
        from sessions_app.queue import kinds
        from sessions_app.retention import registry
        from sessions_app.sessions.dependents import register_session_dependent

        run_parts.register_run_parts(lambda: import_module("automations.runs.statements").RunParts())
        kinds.register_kind(slot.AutomationKind())
        kinds.register_kind(slot.LegacyKind())
        kinds.register_kind(dream.DreamKind())
        kinds.register_kind(heartbeat.HeartbeatKind())
        kinds.register_kind(isolated.IsolatedRoutineKind())
        kinds.register_kind(scheduled_message.ScheduledMessageKind())
        outbox.on_settled(scheduled_message.apply_delivery_result)
        dependents.register_agent_dependent(system.SystemJobs())
        register_session_dependent(bindings.SessionAutomations())
        register_session_dependent(bindings.SessionScheduledMessages())
        quotas.register_stored(validate.stored_texts)
        documents.register_document_backing(heartbeat_document.HeartbeatDocument())
        cron.register_cron_tool()
        routines.register_routine_tools()
        repair.register_repair_tool()
        next_turn.register_next_turn_tool()
        messages.register_message_tools()
        live_state.register_live_state()
        registry.register_rules_loader(retention.register_retention)
