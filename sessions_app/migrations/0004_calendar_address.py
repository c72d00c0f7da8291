import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ('sessions_app', '0003_questions_of_runs'),
    ]

    operations = [
        migrations.CreateModel(
            name='CalendarAddress',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('token_sha256', models.CharField(editable=False, max_length=64)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('token_sha256__regex', '^[0-9a-f]{64}$')), name='calendar_token_is_a_hash'), models.UniqueConstraint(fields=('token_sha256',), name='calendar_token_once')],
            },
        ),
    ]
