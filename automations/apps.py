"""The app `automations`: schedules, scheduled messages, firing, runs and their tools."""

from django.apps import AppConfig


class AutomationsConfig(AppConfig):
    name = "automations"
    verbose_name = "Appointments"

    def ready(self) -> None:
        """Register the parts of this app that lower apps call."""
        from automations.jobs import bindings, failing, system, validate
        from automations.jobs import edit as jobs
        from automations.models import CronJob
        from automations.routines import heartbeat_document
        from automations.runs import health
        from automations.turn_kinds import dream, heartbeat, isolated, scheduled_message, slot
        from sessions_app.agents import budgets, documents, edit
        from sessions_app.connections import edit as connections
        from sessions_app.deliveries import outbox
        from sessions_app.limits import quotas
        from sessions_app.questions import unattended
        from sessions_app.queue import kinds
        from sessions_app.sessions.delete import register_session_dependent
        from sessions_app.spending import accounts

        for kind in (
            *(slot.AutomationKind(), slot.LegacyKind(), dream.DreamKind(), heartbeat.HeartbeatKind()),
            *(isolated.IsolatedRoutineKind(), scheduled_message.ScheduledMessageKind()),
        ):
            kinds.register_kind(kind)
        outbox.on_settled(scheduled_message.apply_delivery_result)
        outbox.on_settled(health.apply_delivery_result)
        unattended.on_answered(health.apply_answer)
        health.on_hopeless(failing.pause_failing)
        edit.register_agent_dependent(system.SystemJobs())
        register_session_dependent(bindings.SessionAppointments())
        budgets.register_caps("automation", CronJob)
        connections.register_models_of(CronJob.objects.all)
        connections.on_changed(jobs.check_models_again)
        connections.on_changed(failing.free_slowed)
        accounts.on_freed(jobs.check_budgets_again)
        quotas.register_stored(validate.stored_texts)
        documents.register_document_backing(heartbeat_document.HeartbeatDocument())
        _register_tools()

    def register_retention(self) -> None:
        """Register the walks of maintenance. It is called when the first one is needed."""
        from automations.jobs.edit import PREFLIGHT
        from automations.preflight import run_preflight
        from automations.retention import old_rows, zones
        from sessions_app.retention.maintenance_round import register_chore
        from sessions_app.retention.walk import register_walk

        old_rows.register_retention()
        register_walk(zones.ZoneWalk())
        register_chore(PREFLIGHT, run_preflight)


def _register_tools() -> None:
    """Register the agents' tools, the gate that comes with the server, and what plans ask of the live state."""
    from agent_core import tools
    from agent_core.planner import live
    from automations.gates import http_changed, registry
    from automations.tools import background, cron, live_state, messages, routines
    from sessions_app import flags

    for tool in (
        *(cron.CRON, background.REPAIR_HEARTBEAT, background.NEXT_TURN),
        *(*routines.ROUTINE_TOOLS, *messages.MESSAGE_TOOLS),
    ):
        tools.register(tool)
    if flags.FETCH_URL.value:
        registry.register_gate(http_changed.HttpChanged())
    live.register_lister(live_state.existing_kinds)
    for live_kind in live_state.KINDS:
        live.register(live_kind)
