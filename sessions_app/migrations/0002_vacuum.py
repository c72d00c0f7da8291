"""Turn rows change state and are never HOT, so vacuum comes early (rule 10.3)."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0001_initial")]

    operations = [
        migrations.RunSQL(
            sql="ALTER TABLE sessions_app_turn SET (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 90)",
            reverse_sql="ALTER TABLE sessions_app_turn RESET (autovacuum_vacuum_scale_factor, fillfactor)",
        )
    ]
