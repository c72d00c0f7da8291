"""Clocks are rewritten at every slot, so vacuum comes early (rule 10.3)."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("automations", "0001_initial")]

    operations = [
        migrations.RunSQL(
            sql=[
                "ALTER TABLE automations_jobclock SET (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 70)",
                "ALTER TABLE automations_cronjob SET (autovacuum_vacuum_scale_factor = 0.01)",
            ],
            reverse_sql=[
                "ALTER TABLE automations_jobclock RESET (autovacuum_vacuum_scale_factor, fillfactor)",
                "ALTER TABLE automations_cronjob RESET (autovacuum_vacuum_scale_factor)",
            ],
        )
    ]
