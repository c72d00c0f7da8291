"""Django gives a text column with an index a second one, for LIKE 'x%', which nothing here asks for.

Every slot wrote two of them at random places, and reads of jobs by id went to the one or the other, so both took
memory.
"""

from django.db import migrations

INDEXES = {
    "automations_cronjob_id_2a0db818_like": "automations_cronjob (id varchar_pattern_ops)",
    "automations_jobclock_job_id_f3e5082b_like": "automations_jobclock (job_id varchar_pattern_ops)",
    "automations_runrecord_run_id_0fefcde3_like": "automations_runrecord (run_id varchar_pattern_ops)",
}


class Migration(migrations.Migration):
    dependencies = [("automations", "0003_plans_and_imports")]

    operations = [
        migrations.RunSQL(
            sql=[f"DROP INDEX {name}" for name in INDEXES],
            reverse_sql=[f"CREATE INDEX {name} ON {place}" for name, place in INDEXES.items()],
        )
    ]
