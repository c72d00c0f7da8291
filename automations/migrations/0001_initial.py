"""Clocks are rewritten at every slot, so vacuum comes early (rule 10.3).

Django gives a text column with an index a second one, for LIKE 'x%', which nothing here asks for: every slot wrote two
of them at random places, and reads by id went to the one or the other, so both took memory.
"""

import automations.models.job
import datetime
import re
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


OFTEN_WRITTEN = ("cronjob", "jobclock", "runrecord", "scheduledmessage")


def without_pattern_indexes(apps, schema_editor):
    """Indexes are made when the migration ends: take these off the list."""
    unwanted = re.compile(rf"CREATE INDEX \"automations_({'|'.join(OFTEN_WRITTEN)})_\w+_like\"")
    schema_editor.deferred_sql[:] = [each for each in schema_editor.deferred_sql if not unwanted.match(str(each))]


# a job belongs to the owner of its agent; so do its runs, except those of system and legacy jobs, which nobody is shown
WITH_OWNER = [
    """
CREATE FUNCTION automations_set_owner_of_job() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
SELECT coalesce(max(owner_id), 0) INTO NEW.owner_id FROM sessions_app_agent WHERE id = NEW.agent_id;
RETURN NEW; END $$""",
    """
CREATE FUNCTION automations_set_owner_of_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF NEW.job_id IS NULL THEN
  SELECT coalesce(max(s.owner_id), 0) INTO NEW.owner_id FROM automations_scheduledmessage m
  JOIN sessions_app_session s ON s.id = m.session_id WHERE m.id = NEW.scheduled_message_id;
ELSE
  SELECT coalesce(max(owner_id), 0) INTO NEW.owner_id FROM automations_cronjob
  WHERE id = NEW.job_id AND (session_id IS NOT NULL OR execution_mode <> 'session');
END IF; RETURN NEW; END $$""",
    *(
        f"CREATE TRIGGER set_owner BEFORE INSERT ON automations_{table} FOR EACH ROW WHEN (NEW.owner_id = 0)"
        f" EXECUTE FUNCTION automations_set_owner_of_{of}()"
        for table, of in (("cronjob", "job"), ("runrecord", "run"))
    ),
]


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('sessions_app', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='CronJob',
            fields=[
                ('id', models.CharField(default=automations.models.job.new_job_id, editable=False, max_length=32, primary_key=True, serialize=False)),
                ('owner_id', models.BigIntegerField(db_default=0, editable=False, help_text='The user that it belongs to.')),
                ('name', models.CharField(max_length=200)),
                ('kind', models.CharField(choices=[('agent_turn', 'Agent Turn'), ('system_event', 'System Event')], default='agent_turn', max_length=16)),
                ('schedule_kind', models.CharField(choices=[('cron', 'Cron'), ('every', 'Every'), ('at', 'At')], max_length=8)),
                ('expr', models.CharField(blank=True, max_length=200)),
                ('every_seconds', models.PositiveIntegerField(blank=True, null=True)),
                ('anchor', models.DateTimeField(blank=True, help_text='The first slot of an interval.', null=True)),
                ('at', models.DateTimeField(blank=True, null=True)),
                ('timezone', models.CharField(default='UTC', max_length=64)),
                ('active_from', models.PositiveSmallIntegerField(blank=True, help_text='Heartbeats only: the first active hour, in the zone.', null=True)),
                ('active_to', models.PositiveSmallIntegerField(blank=True, help_text='The hour at which activity ends; if less than `active_from`, the next day.', null=True)),
                ('message', models.TextField(blank=True, help_text="A routine's instructions.")),
                ('description', models.TextField(blank=True)),
                ('task_type', models.CharField(blank=True, max_length=32)),
                ('execution_mode', models.CharField(choices=[('session', 'Session'), ('inline', 'Inline'), ('isolated', 'Isolated')], default='session', max_length=16)),
                ('enabled', models.BooleanField(default=True)),
                ('fault', models.TextField(blank=True, help_text='The error for which the job was disabled; empty if there is none.')),
                ('overlap', models.CharField(choices=[('skip', 'Skip'), ('queue', 'Queue')], default='skip', max_length=8)),
                ('catch_up', models.CharField(choices=[('none', 'None'), ('one', 'One'), ('all', 'All')], default='one', max_length=8)),
                ('timeout_seconds', models.PositiveIntegerField(blank=True, null=True)),
                ('policy', models.JSONField(blank=True, default=dict, help_text="Routines only: limits of one turn, which override the agent's; `timeout_seconds` overrides them.")),
                ('max_retry', models.PositiveSmallIntegerField(default=0, help_text='Retries of a failed run.')),
                ('ends_at', models.DateTimeField(blank=True, help_text='No runs after this time.', null=True)),
                ('max_runs', models.PositiveIntegerField(blank=True, help_text='Maximum number of runs.', null=True)),
                ('jitter_seconds', models.PositiveIntegerField(default=0, help_text='Delay each run by a fixed amount, up to this many seconds.')),
                ('ping_url', models.CharField(blank=True, db_default='', default='', help_text='Called by GET after each run that succeeded, with /fail after one that failed. Empty: none.', max_length=1900)),
                ('source', models.CharField(choices=[('manual', 'Manual'), ('chat', 'Chat'), ('heartbeat_reflect', 'Heartbeat Reflect'), ('import', 'Import'), ('system', 'System')], default='manual', max_length=20)),
                ('stranger', models.CharField(blank=True, db_default='', default='', editable=False, help_text="The hook whose post made or changed the job; its turns are restricted like that post's turn.", max_length=40)),
                ('has_read', models.BooleanField(db_default=False, default=False, editable=False, help_text='A turn that had read text from outside made or changed the job.')),
                ('revision', models.PositiveIntegerField(default=1)),
                ('system_event', models.CharField(blank=True, help_text='System jobs only: dream or heartbeat.', max_length=32)),
                ('imported_id', models.CharField(blank=True, help_text='Its id in the imported store.', max_length=200)),
                ('session_key', models.CharField(blank=True, help_text='Legacy jobs only.', max_length=200)),
                ('deliver', models.BooleanField(blank=True, help_text='Legacy jobs only.', null=True)),
                ('channel', models.CharField(blank=True, help_text='Legacy jobs only.', max_length=64)),
                ('to', models.CharField(blank=True, help_text='Legacy jobs only.', max_length=200)),
                ('channel_meta', models.JSONField(blank=True, help_text='Legacy jobs only.', null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='jobs', to='sessions_app.agent')),
                ('created_by_turn', models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='sessions_app.turn')),
                ('home', models.ForeignKey(blank=True, help_text='Routines only: the session that gets the results; empty: the primary one.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='routines', to='sessions_app.session')),
                ('session', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='jobs', to='sessions_app.session')),
            ],
            options={
                'verbose_name': 'automation',
                'indexes': [
                    models.Index(fields=['created_at', 'id'], name='job_by_age'),
                    models.Index(condition=models.Q(('enabled', True), ('schedule_kind', 'cron')), fields=['timezone', 'id'], name='job_zones'),
                    models.Index(condition=models.Q(('fault', ''), _negated=True), fields=['id'], name='job_set_aside'),
                    models.Index(fields=['owner_id', 'created_at', 'id'], name='job_of_owner'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(models.Q(('at__isnull', True), ('every_seconds__isnull', True), ('schedule_kind', 'cron'), models.Q(('expr', ''), _negated=True)), models.Q(('anchor__isnull', False), ('at__isnull', True), ('every_seconds__gte', 1), ('every_seconds__isnull', False), ('expr', ''), ('schedule_kind', 'every')), models.Q(('at__isnull', False), ('every_seconds__isnull', True), ('expr', ''), ('schedule_kind', 'at')), _connector='OR'), name='cronjob_exactly_one_schedule'),
                    models.CheckConstraint(condition=models.Q(('execution_mode', 'session'), ('session__isnull', True), _connector='OR'), name='cronjob_bound_runs_in_session'),
                    models.CheckConstraint(condition=models.Q(models.Q(('execution_mode', 'session'), ('home__isnull', True)), models.Q(('channel', ''), ('channel_meta__isnull', True), ('deliver__isnull', True), ('execution_mode__in', ['inline', 'isolated']), ('kind', 'agent_turn'), ('session_key', ''), ('to', '')), _connector='OR'), name='cronjob_routine_has_no_legacy_field'),
                    models.CheckConstraint(condition=models.Q(models.Q(('active_from__isnull', True), ('active_to__isnull', True)), models.Q(('active_from__isnull', False), ('active_from__range', (0, 24)), ('active_to__range', (0, 24)), ('active_to__isnull', False), models.Q(('active_from', models.F('active_to')), _negated=True)), _connector='OR'), name='cronjob_active_hours'),
                    models.CheckConstraint(condition=models.Q(('session__isnull', True), models.Q(('channel', ''), ('channel_meta__isnull', True), ('deliver__isnull', True), ('session_key', ''), ('to', '')), _connector='OR'), name='cronjob_bound_has_no_legacy_field'),
                    models.CheckConstraint(condition=models.Q(models.Q(('kind', 'agent_turn'), ('system_event', '')), models.Q(('kind', 'system_event'), ('session__isnull', True), models.Q(('system_event', ''), _negated=True)), _connector='OR'), name='cronjob_system_names_its_event'),
                    models.UniqueConstraint(condition=models.Q(('system_event', ''), _negated=True), fields=('agent', 'system_event'), name='cronjob_system_event_once_per_agent'),
                    models.UniqueConstraint(condition=models.Q(('imported_id', ''), _negated=True), fields=('agent', 'imported_id'), name='cronjob_imported_once_per_agent'),
                    models.CheckConstraint(condition=models.Q(('max_runs__isnull', True), ('max_runs__gte', 1), _connector='OR'), name='cronjob_max_runs_positive'),
                    models.CheckConstraint(condition=models.Q(('kind__in', ['agent_turn', 'system_event'])), name='cronjob_kind_known'),
                    models.CheckConstraint(condition=models.Q(('execution_mode__in', ['session', 'inline', 'isolated'])), name='cronjob_execution_mode_known'),
                    models.CheckConstraint(condition=models.Q(('anchor__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('created_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('ends_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('updated_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc)))), name='cronjob_times_readable'),
                    models.CheckConstraint(condition=models.Q(('overlap__in', ['skip', 'queue'])), name='cronjob_overlap_known'),
                    models.CheckConstraint(condition=models.Q(('catch_up__in', ['none', 'one', 'all'])), name='cronjob_catch_up_known'),
                    models.CheckConstraint(condition=models.Q(('owner_id__gt', 0)), name='cronjob_has_owner'),
                ],
            },
        ),
        migrations.CreateModel(
            name='ZoneData',
            fields=[
                ('name', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('fingerprint', models.CharField(max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name='RemovedRoutine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('title', models.CharField(max_length=200)),
                ('removed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('agent', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='removed_routines', to='sessions_app.agent')),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('agent', 'title'), name='removed_routine_once'),
                ],
            },
        ),
        migrations.CreateModel(
            name='ScheduledMessage',
            fields=[
                ('id', models.CharField(default=automations.models.job.new_job_id, editable=False, max_length=32, primary_key=True, serialize=False)),
                ('chat_type', models.CharField(choices=[('private', 'Private'), ('group', 'Group')], default='private', max_length=16)),
                ('message_text', models.TextField()),
                ('send_at', models.DateTimeField()),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('sent', 'Sent'), ('cancelled', 'Cancelled'), ('failed', 'Failed')], default='pending', max_length=16)),
                ('replace_existing', models.BooleanField(default=False)),
                ('created_by_tool_call_id', models.CharField(blank=True, max_length=200)),
                ('cancelled_by_tool_call_id', models.CharField(blank=True, max_length=200)),
                ('taken_at', models.DateTimeField(blank=True, null=True)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('last_error', models.CharField(blank=True, max_length=300)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('created_by_turn', models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='sessions_app.turn')),
                ('replaced_by', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='replaced', to='automations.scheduledmessage')),
                ('sent_message', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='scheduled_message', to='sessions_app.message')),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='scheduled_messages', to='sessions_app.session')),
            ],
            options={
                'indexes': [
                    models.Index(fields=['created_at', 'id'], name='scheduled_by_age'),
                    models.Index(condition=models.Q(('status', 'pending'), ('taken_at__isnull', True)), fields=['send_at', 'id'], name='scheduled_due'),
                    models.Index(condition=models.Q(('status', 'pending'), ('taken_at__isnull', True)), fields=['session', 'send_at', 'id'], name='scheduled_head'),
                    models.Index(fields=['session', 'created_at', 'id'], name='scheduled_of_session'),
                    models.Index(condition=models.Q(('replaced_by__isnull', False)), fields=['replaced_by'], name='scheduled_replaced'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('status__in', ['pending', 'sent', 'cancelled', 'failed'])), name='scheduled_state_known'),
                    models.CheckConstraint(condition=models.Q(('chat_type', 'private')), name='scheduled_private'),
                    models.CheckConstraint(condition=models.Q(('message_text__regex', '[^[:space:]]')), name='scheduled_text_not_empty'),
                    models.CheckConstraint(condition=models.Q(models.Q(('sent_at__isnull', False), ('status', 'sent')), models.Q(models.Q(('status', 'sent'), _negated=True), ('sent_at__isnull', True)), _connector='OR'), name='scheduled_sent_iff_sent_at'),
                    models.CheckConstraint(condition=models.Q(models.Q(('status', 'sent'), _negated=True), ('sent_message__isnull', False), _connector='OR'), name='scheduled_sent_is_in_history'),
                    models.CheckConstraint(condition=models.Q(('sent_message__isnull', True), models.Q(('taken_at__isnull', False), models.Q(('status', 'cancelled'), _negated=True)), _connector='OR'), name='scheduled_said_once_taken'),
                    models.CheckConstraint(condition=models.Q(models.Q(('status', 'failed'), models.Q(('last_error', ''), _negated=True)), models.Q(models.Q(('status', 'failed'), _negated=True), ('last_error', '')), _connector='OR'), name='scheduled_failed_iff_error'),
                    models.CheckConstraint(condition=models.Q(('status', 'cancelled'), models.Q(('cancelled_by_tool_call_id', ''), ('replaced_by__isnull', True)), _connector='OR'), name='scheduled_replaced_is_cancelled'),
                    models.CheckConstraint(condition=models.Q(('replaced_by__isnull', True), models.Q(('replaced_by', models.F('id')), _negated=True), _connector='OR'), name='scheduled_replaced_by_another'),
                    models.UniqueConstraint(condition=models.Q(('created_by_turn__isnull', False), models.Q(('created_by_tool_call_id', ''), _negated=True)), fields=('created_by_turn', 'created_by_tool_call_id'), name='scheduled_once_per_tool_call'),
                    models.CheckConstraint(condition=models.Q(('created_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('send_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('sent_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('taken_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('updated_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc)))), name='scheduled_times_readable'),
                ],
            },
        ),
        migrations.CreateModel(
            name='RunRecord',
            fields=[
                ('run_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('session_key', models.CharField(blank=True, max_length=200)),
                ('owner_id', models.BigIntegerField(db_default=0, editable=False, help_text='The user that it belongs to.')),
                ('scheduled_for', models.DateTimeField()),
                ('state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('succeeded', 'Succeeded'), ('failed', 'Failed'), ('cancelled', 'Cancelled'), ('skipped', 'Skipped')], default='queued', max_length=16)),
                ('reason', models.CharField(blank=True, max_length=64)),
                ('slots_from', models.DateTimeField(blank=True, null=True)),
                ('slots_to', models.DateTimeField(blank=True, null=True)),
                ('slots_count', models.PositiveIntegerField(blank=True, help_text='Null: more than 1,000.', null=True)),
                ('attempt', models.PositiveSmallIntegerField(default=1)),
                ('not_before', models.DateTimeField(blank=True, null=True)),
                ('snapshot', models.JSONField(default=dict, help_text='The job when it ran: name, message, schedule, revision.')),
                ('prompt_ref', models.JSONField(blank=True, null=True)),
                ('prompt_variables', models.JSONField(blank=True, null=True)),
                ('rendered_prompt', models.TextField(blank=True)),
                ('error', models.CharField(blank=True, max_length=300)),
                ('provider_message', models.CharField(blank=True, db_default='', default='', max_length=300)),
                ('error_detail', models.TextField(blank=True)),
                ('response_summary', models.CharField(blank=True, max_length=300)),
                ('lag_ms', models.BigIntegerField(blank=True, null=True)),
                ('duration_ms', models.BigIntegerField(blank=True, null=True)),
                ('usage', models.JSONField(blank=True, default=dict)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('job', models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='automations.cronjob')),
                ('session', models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='sessions_app.session')),
                ('turn', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='runs', to='sessions_app.turn')),
                ('scheduled_message', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='automations.scheduledmessage')),
            ],
            options={
                'verbose_name': 'run',
                'indexes': [
                    models.Index(fields=['created_at', 'run_id'], name='run_by_age'),
                    models.Index(condition=models.Q(('state__in', ['queued', 'running'])), fields=['job'], name='run_open_of_job'),
                    models.Index(condition=models.Q(('not_before__isnull', False)), fields=['not_before'], name='run_retry_due'),
                    models.Index(condition=models.Q(('state', 'failed'), models.Q(('reason__in', ('retry_error', 'superseded')), ('state', 'cancelled')), _connector='OR'), fields=['created_at', 'run_id'], name='run_failed'),
                    models.Index(condition=models.Q(('owner_id__gt', 0)), fields=['owner_id', 'scheduled_for', 'run_id'], name='run_of_owner'),
                    models.Index(condition=models.Q(('owner_id__gt', 0), models.Q(('state', 'succeeded'), _negated=True)), fields=['owner_id', 'state', 'scheduled_for', 'run_id'], name='run_of_owner_by_state'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('job', 'scheduled_for'), name='run_once_per_slot'),
                    models.UniqueConstraint(condition=models.Q(('scheduled_message__isnull', False)), fields=('scheduled_message',), name='run_once_per_message'),
                    models.CheckConstraint(condition=models.Q(models.Q(('job__isnull', False), ('scheduled_message__isnull', True)), models.Q(('job__isnull', True), ('scheduled_message__isnull', False)), _connector='OR'), name='run_of_a_job_or_a_message'),
                    models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'running', 'succeeded', 'failed', 'cancelled', 'skipped'])), name='run_state_known'),
                    models.CheckConstraint(condition=models.Q(models.Q(('state', 'skipped'), _negated=True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='run_skipped_with_reason'),
                    models.CheckConstraint(condition=models.Q(('created_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('finished_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('not_before__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('scheduled_for__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('slots_from__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('slots_to__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('started_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc)))), name='run_times_readable'),
                    models.CheckConstraint(condition=models.Q(('not_before__isnull', True), ('state', 'queued'), _connector='OR'), name='run_retry_waits_queued'),
                    models.CheckConstraint(condition=models.Q(models.Q(('finished_at__isnull', True), ('state__in', ['queued', 'running'])), models.Q(('finished_at__isnull', False), ('state__in', ['succeeded', 'failed', 'cancelled', 'skipped'])), _connector='OR'), name='run_finished_iff_ended'),
                ],
            },
        ),
        migrations.CreateModel(
            name='JobClock',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='clock', serialize=False, to='automations.cronjob')),
                ('inline', models.BooleanField(default=False, help_text='Started by the heartbeat instead of beat.')),
                ('next_run_at', models.DateTimeField(blank=True, null=True)),
                ('last_slot', models.DateTimeField(blank=True, null=True)),
                ('planned_from', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='Slots count from here: when the job was created, resumed or given its schedule.')),
                ('runs_started', models.PositiveBigIntegerField(default=0)),
                ('skipped_to', models.DateTimeField(blank=True, help_text='The last slot that a person has skipped; it may be to come.', null=True)),
                ('paused_until', models.DateTimeField(blank=True, help_text='No slot before this time runs. It may have passed.', null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('inline', False), ('next_run_at__isnull', False)), fields=['next_run_at'], name='jobclock_due'), models.Index(condition=models.Q(('inline', True), ('next_run_at__isnull', False)), fields=['next_run_at'], name='jobclock_inline_due')],
                'constraints': [models.CheckConstraint(condition=models.Q(('last_slot__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('next_run_at__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('paused_until__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('planned_from__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc))), ('skipped_to__range', (datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.timezone.utc)))), name='jobclock_times_readable'), models.CheckConstraint(condition=models.Q(('next_run_at__isnull', True), ('skipped_to__isnull', True), ('next_run_at__gt', models.F('skipped_to')), _connector='OR'), name='jobclock_next_is_not_skipped'), models.CheckConstraint(condition=models.Q(('next_run_at__isnull', True), ('paused_until__isnull', True), ('next_run_at__gte', models.F('paused_until')), _connector='OR'), name='jobclock_next_is_after_the_pause')],
            },
        ),
        migrations.RunSQL(sql=WITH_OWNER, reverse_sql=migrations.RunSQL.noop),
        migrations.RunSQL(
            sql=[
                "ALTER TABLE automations_jobclock SET (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 70)",
                "ALTER TABLE automations_cronjob SET (autovacuum_vacuum_scale_factor = 0.01)",
                "ALTER TABLE automations_scheduledmessage SET (autovacuum_vacuum_scale_factor = 0.01)",
                "ALTER TABLE automations_runrecord ADD CONSTRAINT run_job_has_clock FOREIGN KEY (job_id)"
                " REFERENCES automations_jobclock (job_id) DEFERRABLE INITIALLY DEFERRED",
            ],
            reverse_sql=migrations.RunSQL.noop,
        ),
        migrations.RunPython(without_pattern_indexes, migrations.RunPython.noop),
    ]
