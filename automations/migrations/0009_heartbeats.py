import hashlib
from datetime import UTC, datetime, timedelta

from django.db import migrations, models


def heartbeats_for_all(apps, _schema_editor):
    """A heartbeat for each agent that has none. Beat finds its first active slot from the anchor on."""
    agents = apps.get_model("sessions_app", "Agent").objects.exclude(jobs__system_event="heartbeat")
    jobs, clocks = (apps.get_model("automations", name).objects for name in ("CronJob", "JobClock"))
    now = datetime.now(UTC).replace(microsecond=0)
    for agent in agents.iterator():
        seconds = agent.heartbeat["interval_seconds"]
        first, end = agent.heartbeat["active_hours"]
        if first == end:
            first, end = 0, 24
        offset = int.from_bytes(hashlib.sha256(str(agent.pk).encode()).digest()[:8], "big") % seconds
        anchor = now + timedelta(seconds=offset)
        job = jobs.create(
            agent=agent,
            name="Heartbeat",
            kind="system_event",
            system_event="heartbeat",
            schedule_kind="every",
            every_seconds=seconds,
            anchor=anchor,
            active_from=first,
            active_to=end,
            timezone=agent.timezone,
            enabled=agent.heartbeat["enabled"],
            source="system",
        )
        clocks.create(job=job, next_run_at=anchor if job.enabled else None, planned_from=now)


def no_heartbeats(apps, _schema_editor):
    apps.get_model("automations", "CronJob").objects.filter(system_event="heartbeat").delete()


class Migration(migrations.Migration):
    dependencies = [("automations", "0008_routines_and_heartbeats")]

    operations = [
        migrations.AddIndex(
            model_name="jobclock",
            index=models.Index(
                condition=models.Q(("inline", True), ("next_run_at__isnull", False)),
                fields=["next_run_at"],
                name="jobclock_inline_due",
            ),
        ),
        migrations.RunPython(heartbeats_for_all, no_heartbeats),
    ]
