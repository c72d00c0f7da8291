"""Statuses of messages change a few times in a row's life, and an index for LIKE 'x%' is asked for by nothing."""

from django.db import migrations

LIKE = """
DO $$ DECLARE found text; BEGIN
    FOR found IN SELECT indexname FROM pg_indexes
        WHERE schemaname = current_schema() AND tablename = 'automations_scheduledmessage' AND indexname LIKE '%\\_like'
    LOOP EXECUTE format('DROP INDEX %I', found); END LOOP;
END $$
"""


class Migration(migrations.Migration):
    dependencies = [("automations", "0011_scheduled_messages")]

    operations = [
        migrations.RunSQL(
            sql=[
                LIKE,
                "ALTER TABLE automations_scheduledmessage SET (autovacuum_vacuum_scale_factor = 0.01)",
            ],
            reverse_sql=["ALTER TABLE automations_scheduledmessage RESET (autovacuum_vacuum_scale_factor)"],
        )
    ]
