import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0008_invitation'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='PushSubscription',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='The browser, as people know it.', max_length=60)),
                ('endpoint', models.CharField(editable=False, max_length=1000)),
                ('key', models.CharField(editable=False, max_length=100)),
                ('secret', models.CharField(editable=False, max_length=40)),
                ('server_key', models.CharField(editable=False, max_length=100)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
            ],
        ),
        migrations.AddField(
            model_name='usersettings',
            name='notify_mail',
            field=models.EmailField(blank=True, db_default='', default='', help_text='Told of failures. Empty: nobody.', max_length=254),
        ),
        migrations.AddField(
            model_name='usersettings',
            name='notify_pages',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='usersettings',
            name='notify_text',
            field=models.BooleanField(db_default=False, default=False, help_text='Pushes have the first words, not the title only.'),
        ),
        migrations.AddField(
            model_name='usersettings',
            name='quiet_from',
            field=models.TimeField(blank=True, help_text='Nothing is sent from then on.', null=True),
        ),
        migrations.AddField(
            model_name='usersettings',
            name='quiet_to',
            field=models.TimeField(blank=True, null=True),
        ),
        migrations.AddConstraint(
            model_name='usersettings',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('quiet_from__isnull', True), ('quiet_to__isnull', True)), models.Q(('quiet_from__isnull', False), ('quiet_to__isnull', False), models.Q(('quiet_from', models.F('quiet_to')), _negated=True)), _connector='OR'), name='user_settings_quiet_hours_whole_or_none', violation_error_message='Quiet hours need a beginning and another end.'),
        ),
        migrations.AddField(
            model_name='pushsubscription',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='push_subscriptions', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddConstraint(
            model_name='pushsubscription',
            constraint=models.UniqueConstraint(fields=('endpoint',), name='push_subscription_endpoint_once'),
        ),
        migrations.AddConstraint(
            model_name='pushsubscription',
            constraint=models.CheckConstraint(condition=models.Q(('endpoint__startswith', 'https://')), name='push_subscription_is_private'),
        ),
    ]
