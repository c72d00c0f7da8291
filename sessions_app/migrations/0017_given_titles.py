from django.db import migrations, models


def primaries(apps, _schema_editor):
    """The title of a primary session is the server's own, and holds no word of any message."""
    apps.get_model("sessions_app", "Session").objects.filter(type="primary").update(title_given=True)


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0016_preferences'),
    ]

    operations = [
        migrations.AddField(
            model_name='session',
            name='title_given',
            field=models.BooleanField(db_default=False, default=False, help_text="By a person; else it is the first message's beginning."),
        ),
        migrations.RunPython(primaries, migrations.RunPython.noop),
    ]
