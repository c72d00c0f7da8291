"""What somebody may still ask for. Not logged: each request changes a row, and a crash may forget them all."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0005_deliveries_and_memory'),
    ]

    operations = [
        migrations.CreateModel(
            name='Allowance',
            fields=[
                ('key', models.CharField(help_text='`user:<id>` or `address:<network>`, and the rate.', max_length=100, primary_key=True, serialize=False)),
                ('full_at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['full_at'], name='allowance_full')],
            },
        ),
        migrations.RunSQL(
            sql="ALTER TABLE sessions_app_allowance SET UNLOGGED;"
            " ALTER TABLE sessions_app_allowance SET (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 50)",
            reverse_sql="ALTER TABLE sessions_app_allowance SET LOGGED;"
            " ALTER TABLE sessions_app_allowance RESET (autovacuum_vacuum_scale_factor, fillfactor)",
        ),
    ]
