from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0006_why_questions_were_closed'),
    ]

    operations = [
        migrations.AlterModelTable(
            name='messageimage',
            table='sessions_app_messageimage',
        ),
        migrations.RenameModel(
            old_name='MessageImage',
            new_name='Attachment',
        ),
        migrations.AddField(
            model_name='attachment',
            name='name',
            field=models.CharField(blank=True, db_default='', default='', max_length=100),
        ),
        migrations.AddField(
            model_name='attachment',
            name='text',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddConstraint(
            model_name='attachment',
            constraint=models.CheckConstraint(condition=models.Q(('media_type__in', ('image/png', 'image/jpeg', 'image/gif', 'image/webp', 'application/pdf', 'text/plain'))), name='attachment_media_type_known'),
        ),
    ]
