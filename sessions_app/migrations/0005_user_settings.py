import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ('sessions_app', '0004_calendar_address'),
    ]

    operations = [
        migrations.CreateModel(
            name='UserSettings',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='settings', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('timezone', models.CharField(blank=True, db_default='', default='', help_text='Empty: not known yet.', max_length=64)),
            ],
            options={
                'verbose_name': 'settings of a user',
                'verbose_name_plural': 'settings of a user',
            },
        ),
    ]
