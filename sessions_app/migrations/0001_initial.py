"""Rows change state and are never HOT, so vacuum comes early (rule 10.3). Allowances are not logged: each request
changes a row, and a crash may forget them all.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import sessions_app.models.agent
import sessions_app.models.event
import uuid
from django.conf import settings
from django.db import migrations, models


# a row belongs to the owner of its session; statements that know the owner give it, which is faster
WITH_OWNER = [
    """
CREATE FUNCTION sessions_app_set_owner() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
SELECT coalesce(max(owner_id), 0) INTO NEW.owner_id FROM sessions_app_session WHERE id = NEW.session_id;
RETURN NEW; END $$""",
    *(
        f"CREATE TRIGGER set_owner BEFORE INSERT ON {table} FOR EACH ROW WHEN (NEW.owner_id = 0)"
        " EXECUTE FUNCTION sessions_app_set_owner()"
        for table in ("sessions_app_turn", "sessions_app_delivery")
    ),
]


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Pruning',
            fields=[
                ('name', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('position', models.JSONField(default=dict)),
                ('removed', models.PositiveBigIntegerField(default=0, help_text='Rows removed in total.')),
                ('walked_at', models.DateTimeField(help_text='When its last batch ran.', null=True)),
                ('completed_at', models.DateTimeField(help_text='When it last reached its end.', null=True)),
                ('horizon_xid', models.BigIntegerField(default=0)),
                ('horizon_id', models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='Agent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64)),
                ('model', models.CharField(blank=True, help_text="Empty: the server's RONDO_MODEL.", max_length=200)),
                ('fallback_model', models.CharField(blank=True, db_default='', default='', help_text='The model that is asked if the model cannot be reached; empty: none.', max_length=200)),
                ('model_settings', models.JSONField(blank=True, db_default={}, default=dict, help_text='temperature, max_tokens, reasoning and images.')),
                ('timezone', models.CharField(default='UTC', max_length=64, validators=[sessions_app.models.agent.validate_timezone])),
                ('engine', models.CharField(choices=[('chat', 'Chat'), ('planner', 'Planner')], default='chat', max_length=16)),
                ('unified_session', models.BooleanField(default=False)),
                ('heartbeat', models.JSONField(default=sessions_app.models.agent.heartbeat_defaults)),
                ('policy', models.JSONField(blank=True, default=dict)),
                ('mcp_servers', models.JSONField(blank=True, default=dict)),
                ('allow_tools', models.JSONField(blank=True, db_default=[], default=list, help_text='Names of tools that the agent may use without consent, in all turns except those of hooks.')),
                ('signing_secret', models.CharField(blank=True, db_default='', editable=False, help_text='The key that signs webhooks. It is created when it is first needed.', max_length=100)),
                ('events_url', models.CharField(blank=True, db_default='', default='', help_text='Where system events are posted: failed runs, dead letters, used up budgets. Empty: nowhere.', max_length=2000)),
                ('routine_limit', models.PositiveSmallIntegerField(default=20)),
                ('revision', models.PositiveIntegerField(default=0)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='agents', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('owner', 'name'), name='agent_name_once_per_owner'),
                    models.CheckConstraint(condition=models.Q(('engine__in', ['chat', 'planner'])), name='agent_engine_known'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Session',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('agent', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='sessions', to='sessions_app.agent')),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='sessions', to=settings.AUTH_USER_MODEL)),
                ('key', models.CharField(max_length=200)),
                ('type', models.CharField(choices=[('primary', 'Primary'), ('sub', 'Sub'), ('heartbeat', 'Heartbeat'), ('job', 'Job')], default='sub', max_length=16)),
                ('state', models.CharField(choices=[('open', 'Open'), ('archived', 'Archived'), ('deleting', 'Deleting')], default='open', max_length=16)),
                ('channel', models.CharField(default='web', max_length=32)),
                ('chat_id', models.CharField(blank=True, help_text='The address on the channel.', max_length=2000)),
                ('chat_type', models.CharField(choices=[('private', 'Private'), ('group', 'Group')], default='private', max_length=16)),
                ('channel_meta', models.JSONField(blank=True, default=dict)),
                ('reopens_as', models.CharField(choices=[('open', 'Open'), ('archived', 'Archived'), ('deleting', 'Deleting')], default='open', editable=False, max_length=16)),
                ('deleting_since', models.DateTimeField(blank=True, editable=False, null=True)),
                ('last_route', models.JSONField(blank=True, null=True)),
                ('variables', models.JSONField(blank=True, default=dict)),
                ('revision', models.PositiveBigIntegerField(default=0)),
                ('last_seq', models.PositiveBigIntegerField(default=0)),
                ('window_from_seq', models.PositiveBigIntegerField(default=1)),
                ('stored_bytes', models.PositiveBigIntegerField(db_default=0, default=0, editable=False, help_text='The bytes of its messages; images count by themselves.')),
                ('title', models.CharField(blank=True, max_length=200)),
                ('title_given', models.BooleanField(db_default=False, default=False, help_text='Whether a person gave the title; else it is taken from the first message.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'indexes': [
                    models.Index(fields=['owner', 'created_at', 'id'], name='session_of_owner'),
                    models.Index(fields=['owner', 'type', 'created_at', 'id'], name='session_of_owner_by_type'),
                    models.Index(fields=['owner', 'state', 'created_at', 'id'], name='session_of_owner_by_state'),
                    models.Index(fields=['agent', 'created_at', 'id'], name='session_of_agent'),
                    models.Index(condition=models.Q(('type', 'sub')), fields=['agent', 'created_at', 'id'], name='session_conversation'),
                    models.Index(condition=models.Q(('state', 'archived'), ('type', 'job')), fields=['agent', 'chat_id', 'created_at'], name='session_of_job'),
                    models.Index(fields=['created_at', 'id'], name='session_by_age'),
                    models.Index(fields=['key'], name='session_by_key'),
                    models.Index(condition=models.Q(('state', 'deleting')), fields=['deleting_since'], name='session_deleting'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('agent', 'key'), name='session_key_once_per_agent'),
                    models.CheckConstraint(condition=models.Q(models.Q(('deleting_since__isnull', False), ('state', 'deleting')), models.Q(models.Q(('state', 'deleting'), _negated=True), ('deleting_since__isnull', True)), _connector='OR'), name='session_deleting_since'),
                    models.CheckConstraint(condition=models.Q(('state__in', ['open', 'archived', 'deleting'])), name='session_state_known'),
                    models.CheckConstraint(condition=models.Q(('type__in', ['primary', 'sub', 'heartbeat', 'job'])), name='session_type_known'),
                    models.CheckConstraint(condition=models.Q(('chat_type__in', ['private', 'group'])), name='session_chat_type_known'),
                ],
            },
        ),
        migrations.CreateModel(
            name='ReadMark',
            fields=[
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='read_mark', serialize=False, to='sessions_app.session')),
                ('seq', models.PositiveBigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ('host', models.CharField(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('epoch', models.PositiveIntegerField(default=1)),
                ('shards', models.JSONField(default=list, help_text='The queues that this process reads.')),
                ('slots', models.PositiveIntegerField(db_default=0, default=0, help_text='The number of turns it can run at a time.')),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('heartbeat_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('steady_since', models.DateTimeField(help_text='When its heartbeats resumed after an interruption. Empty if they were never interrupted.', null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Process',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('web', 'Web'), ('worker', 'Worker'), ('beat', 'Beat')], max_length=8)),
                ('host', models.CharField(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('address', models.CharField(blank=True, help_text='Where a web process listens.', max_length=300)),
                ('version', models.CharField(max_length=40)),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name_plural': 'processes',
                'constraints': [models.CheckConstraint(condition=models.Q(('kind__in', ['web', 'worker', 'beat'])), name='process_kind_known'), models.CheckConstraint(condition=models.Q(('seen_at__gte', models.F('started_at'))), name='process_seen_after_start')],
            },
        ),
        migrations.CreateModel(
            name='Allowance',
            fields=[
                ('key', models.CharField(help_text='`user:<id>`, `hook:<id>` or `address:<network>`, and the rate.', max_length=100, primary_key=True, serialize=False)),
                ('full_at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['full_at'], name='allowance_full')],
            },
        ),
        migrations.CreateModel(
            name='Connection',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=40)),
                ('provider', models.CharField(max_length=40)),
                ('base_url', models.CharField(blank=True, help_text="Empty: the provider's own address.", max_length=500)),
                ('secret_ciphertext', models.TextField(blank=True, editable=False)),
                ('allowed_models', models.JSONField(blank=True, db_default=[], default=list, help_text='Names of the models that may be used; empty: all.')),
                ('requests_per_minute', models.PositiveIntegerField(db_default=0, default=0, help_text='Of all agents together; 0: no limit.')),
                ('last_error', models.CharField(blank=True, db_default='', default='', editable=False, max_length=300)),
                ('state_since', models.DateTimeField(blank=True, editable=False, help_text='When calls began to succeed, or to fail.', null=True)),
                ('revision', models.PositiveIntegerField(default=1)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('owner', models.ForeignKey(blank=True, help_text="Empty: the server's; all users may use it.", null=True, on_delete=django.db.models.deletion.CASCADE, related_name='connections', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('owner__isnull', False)), fields=('owner', 'name'), name='connection_name_once_per_owner'), models.UniqueConstraint(condition=models.Q(('owner__isnull', True)), fields=('name',), name='connection_name_once_on_server'), models.CheckConstraint(condition=models.Q(('name__regex', '^[a-z0-9][a-z0-9_-]{0,39}$')), name='connection_name_valid')],
            },
        ),
        migrations.CreateModel(
            name='SignInLink',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('token_sha256', models.CharField(editable=False, max_length=64)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(blank=True, null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('token_sha256__regex', '^[0-9a-f]{64}$')), name='sign_in_link_token_is_a_hash'),
                    models.UniqueConstraint(fields=('token_sha256',), name='sign_in_link_token_once'),
                    models.CheckConstraint(condition=models.Q(('expires_at__gt', models.F('created_at'))), name='sign_in_link_expires_later'),
                    models.CheckConstraint(condition=models.Q(('used_at__isnull', True), ('used_at__lt', models.F('expires_at')), _connector='OR'), name='sign_in_link_used_in_time'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Counter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64)),
                ('labels', models.JSONField(default=dict)),
                ('value', models.BigIntegerField(default=0)),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('name', 'labels'), name='counter_once'), models.CheckConstraint(condition=models.Q(('value__gte', 0)), name='counter_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='Document',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64)),
                ('content', models.TextField(blank=True)),
                ('revision', models.PositiveIntegerField(default=1)),
                ('imported_digest', models.CharField(blank=True, help_text='SHA-256 of the file that it was last imported from.', max_length=64)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='documents', to='sessions_app.agent')),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('agent', 'name'), name='document_name_once_per_agent'),
                ],
            },
        ),
        migrations.CreateModel(
            name='DocumentRevision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('revision', models.PositiveIntegerField()),
                ('content', models.TextField(blank=True)),
                ('replaced_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('document', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='revisions', to='sessions_app.document')),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('document', 'revision'), name='document_revision_once_per_document'),
                ],
            },
        ),
        migrations.CreateModel(
            name='IdempotencyKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('address', models.CharField(help_text='Method and path.', max_length=300)),
                ('key', models.CharField(max_length=200)),
                ('body_sha256', models.CharField(max_length=64)),
                ('status', models.PositiveSmallIntegerField(default=0)),
                ('body', models.TextField(blank=True, help_text='The JSON text of the response.')),
                ('location', models.CharField(blank=True, max_length=300)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'indexes': [
                    models.Index(fields=['created_at'], name='idempotency_age'),
                    models.Index(fields=['key'], name='idempotency_key'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('user', 'address', 'key'), name='idempotency_key_once'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Preference',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('content', models.TextField(blank=True)),
                ('revision', models.PositiveIntegerField(default=1)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('agent', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='preferences', to='sessions_app.agent')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('agent', 'user'), name='preference_once_per_person'),
                ],
            },
        ),
        migrations.CreateModel(
            name='TaskState',
            fields=[
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='task_state', serialize=False, to='sessions_app.session')),
                ('current_goal', models.TextField(blank=True)),
                ('active_flow', models.TextField(blank=True)),
                ('open_loops', models.JSONField(blank=True, default=list)),
                ('important_facts', models.JSONField(blank=True, default=list)),
                ('last_decision', models.TextField(blank=True)),
                ('revision', models.PositiveIntegerField(default=1)),
                ('consolidated_revision', models.PositiveIntegerField(default=0, help_text='The revision that was last merged into MEMORY.md.')),
                ('read_to_seq', models.PositiveBigIntegerField(db_default=0, default=0, help_text='Last message included in the task state while that message is still in the window.')),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='Message',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('seq', models.PositiveBigIntegerField()),
                ('role', models.CharField(choices=[('user', 'user'), ('assistant', 'assistant'), ('tool', 'tool')], max_length=16)),
                ('content', models.TextField(blank=True)),
                ('model_content', models.TextField(blank=True, null=True)),
                ('parts', models.JSONField(blank=True, default=dict)),
                ('metadata', models.JSONField(blank=True, default=dict)),
                ('shown_after_seq', models.PositiveBigIntegerField(blank=True, editable=False, help_text="For a thread's own message in unified mode: the primary session's last seq at that time.", null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='sessions_app.session')),
            ],
            options={
                'ordering': ['session_id', 'seq'],
                'indexes': [
                    models.Index(condition=models.Q(('shown_after_seq__isnull', False)), fields=['session', 'shown_after_seq', 'seq'], name='message_beside'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('session', 'seq'), name='message_seq_once_per_session'),
                    models.CheckConstraint(condition=models.Q(('role__in', ['user', 'assistant', 'tool'])), name='message_role_known'),
                    models.CheckConstraint(condition=models.Q(('seq__gte', 1)), name='message_seq_from_one'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Hook',
            fields=[
                ('id', models.CharField(editable=False, max_length=16, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('token_sha256', models.CharField(editable=False, max_length=64)),
                ('token_salt', models.CharField(editable=False, max_length=32)),
                ('channel', models.CharField(blank=True, max_length=32)),
                ('address', models.CharField(blank=True, max_length=2000)),
                ('signed', models.BooleanField(default=False, help_text='Accepts signed messages only.')),
                ('as_person', models.BooleanField(db_default=False, default=False, help_text="Treat its messages as a person's, as from a bridge to a chat service.")),
                ('allow_tools', models.JSONField(blank=True, db_default=[], default=list, help_text='Names of writing or dangerous tools that turns of its messages may use.')),
                ('enabled', models.BooleanField(default=True)),
                ('revision', models.PositiveBigIntegerField(default=1)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('last_used_at', models.DateTimeField(blank=True, help_text='To the minute.', null=True)),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='hooks', to='sessions_app.agent')),
                ('session', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='hooks', to='sessions_app.session')),
            ],
            options={
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='hook_has_a_name'),
                    models.CheckConstraint(condition=models.Q(('token_sha256__regex', '^[0-9a-f]{64}$')), name='hook_token_is_a_hash'),
                    models.UniqueConstraint(fields=('token_sha256',), name='hook_token_once'),
                    models.CheckConstraint(condition=models.Q(models.Q(('address', ''), ('channel', '')), models.Q(models.Q(('channel', ''), _negated=True), models.Q(('address', ''), _negated=True)), _connector='OR'), name='hook_route_whole_or_none'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Event',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('xid', sessions_app.models.event.TransactionIdField(db_default=sessions_app.models.event.CurrentTransactionId(), editable=False)),
                ('turn_id', models.BigIntegerField(blank=True, null=True)),
                ('scope', models.CharField(choices=[('session', 'Session'), ('agent', 'Agent')], default='session', max_length=16)),
                ('source_type', models.CharField(blank=True, max_length=20)),
                ('run_id', models.CharField(blank=True, max_length=80)),
                ('type', models.CharField(choices=[('turn_queued', 'Turn Queued'), ('turn_start', 'Turn Start'), ('tool_call', 'Tool Call'), ('tool_output', 'Tool Output'), ('status', 'Status'), ('planning', 'Planning'), ('plan', 'Plan'), ('step_start', 'Step Start'), ('step_complete', 'Step Complete'), ('replan', 'Replan'), ('waiting', 'Waiting'), ('done', 'Done'), ('message', 'Message'), ('delivery', 'Delivery'), ('turn_end', 'Turn End')], max_length=20)),
                ('content', models.JSONField(default=dict)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('agent', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.agent')),
                ('session', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='events', to='sessions_app.session')),
            ],
            options={
                'indexes': [
                    models.Index(fields=['session', 'xid', 'id'], name='event_cursor'),
                    models.Index(condition=models.Q(('scope', 'agent')), fields=['agent', 'xid', 'id'], name='event_agent_cursor'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('type__in', ['turn_queued', 'turn_start', 'tool_call', 'tool_output', 'status', 'planning', 'plan', 'step_start', 'step_complete', 'replan', 'waiting', 'done', 'message', 'delivery', 'turn_end'])), name='event_type_known'),
                    models.CheckConstraint(condition=models.Q(('scope__in', ['session', 'agent'])), name='event_scope_known'),
                    models.CheckConstraint(condition=models.Q(('scope', 'session'), ('type', 'status'), _connector='OR'), name='event_for_all_is_status'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('session_key', models.CharField(max_length=200)),
                ('owner_id', models.BigIntegerField(db_default=0, editable=False, help_text='The user that it belongs to.')),
                ('idempotency_key', models.CharField(max_length=200, unique=True)),
                ('channel', models.CharField(max_length=64)),
                ('address', models.CharField(max_length=2000)),
                ('meta', models.JSONField(blank=True, default=dict)),
                ('event', models.JSONField(blank=True, help_text='The type and data of a system event, which has no message.', null=True)),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('sending', 'Sending'), ('sent', 'Sent'), ('failed', 'Failed'), ('withheld', 'Withheld'), ('closed', 'Closed')], default='pending', max_length=16)),
                ('reason', models.CharField(blank=True, max_length=300)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('claim', models.UUIDField(blank=True, editable=False, null=True)),
                ('next_attempt_at', models.DateTimeField(blank=True, null=True)),
                ('tried_at', models.DateTimeField(blank=True, null=True)),
                ('hinted_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('last_error', models.CharField(blank=True, max_length=300)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('handed_over_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False, help_text='When it was created or last sent again. The time limit for retries counts from here.')),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('number_at_channel', models.BigIntegerField(editable=False, help_text='Its place among the messages of the chat, if the channel numbers them.', null=True)),
                ('message', models.ForeignKey(null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='deliveries', to='sessions_app.message')),
                ('session', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deliveries', to='sessions_app.session')),
            ],
            options={
                'verbose_name_plural': 'deliveries',
                'indexes': [
                    models.Index(condition=models.Q(('session__isnull', False)), fields=['owner_id', 'created_at', 'id'], name='delivery_of_owner'),
                    models.Index(condition=models.Q(('session__isnull', False), models.Q(('state', 'sent'), _negated=True)), fields=['owner_id', 'state', 'created_at', 'id'], name='delivery_of_owner_by_state'),
                    models.Index(condition=models.Q(('state__in', ['pending', 'sending'])), fields=['session', 'channel', 'id'], name='delivery_on_the_way'),
                    models.Index(condition=models.Q(('state', 'failed')), fields=['id'], name='delivery_dead_letters'),
                    models.Index(fields=['session', 'id'], name='delivery_of_session'),
                    models.Index(condition=models.Q(('state', 'sent'), _negated=True), fields=['session', 'state', 'id'], name='delivery_by_state'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('owner_id__gt', 0), ('session__isnull', True), _connector='OR'), name='delivery_has_owner'),
                    models.CheckConstraint(condition=models.Q(('state__in', ['pending', 'sending', 'sent', 'failed', 'withheld', 'closed'])), name='delivery_state_known'),
                    models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state__in', ['pending', 'sending', 'failed'])), models.Q(('ended_at__isnull', False), ('state__in', ['sent', 'withheld', 'closed'])), _connector='OR'), name='delivery_ended_iff_nothing_follows'),
                    models.CheckConstraint(condition=models.Q(models.Q(('claim__isnull', False), ('next_attempt_at__isnull', False), ('state', 'sending')), models.Q(models.Q(('state', 'sending'), _negated=True), ('claim__isnull', True)), _connector='OR'), name='delivery_claimed_iff_sending'),
                    models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['withheld', 'closed']), _negated=True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='delivery_kept_back_with_reason'),
                    models.CheckConstraint(condition=models.Q(models.Q(('state', 'failed'), _negated=True), models.Q(('last_error', ''), _negated=True), _connector='OR'), name='delivery_failed_with_error'),
                    models.CheckConstraint(condition=models.Q(('event__isnull', True), ('message__isnull', True), _connector='OR'), name='delivery_of_message_or_event'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Turn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('message', 'Message'), ('automation', 'Automation'), ('legacy', 'Legacy'), ('heartbeat', 'Heartbeat'), ('job', 'Job'), ('scheduled_message', 'Scheduled Message'), ('system', 'System')], max_length=20)),
                ('lane', models.CharField(choices=[('turns', 'People'), ('auto', 'Auto')], max_length=8)),
                ('content', models.TextField(blank=True)),
                ('metadata', models.JSONField(blank=True, default=dict)),
                ('owner_id', models.BigIntegerField(db_default=0, editable=False, help_text='The user that it belongs to.')),
                ('origin_run', models.CharField(blank=True, max_length=80)),
                ('origin_attempt', models.PositiveSmallIntegerField(default=0)),
                ('on_busy', models.CharField(choices=[('inject', 'Inject'), ('enqueue', 'Enqueue'), ('reject', 'Reject'), ('interrupt', 'Interrupt')], default='enqueue', max_length=16)),
                ('idempotency_key', models.CharField(blank=True, max_length=200, null=True)),
                ('state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('succeeded', 'Succeeded'), ('failed', 'Failed'), ('cancelled', 'Cancelled'), ('merged', 'Merged')], default='queued', max_length=16)),
                ('claim', models.UUIDField(blank=True, null=True)),
                ('worker', models.UUIDField(blank=True, null=True)),
                ('attempt', models.PositiveSmallIntegerField(default=0)),
                ('rescues', models.PositiveSmallIntegerField(default=0)),
                ('steps_at_claim', models.PositiveIntegerField(default=0)),
                ('cancel_requested_at', models.DateTimeField(blank=True, null=True)),
                ('cancel_reason', models.CharField(blank=True, db_default='', default='', help_text='Why it was cancelled; empty if a person cancelled it.', max_length=64)),
                ('due_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('queued_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('hinted_at', models.DateTimeField(blank=True, null=True)),
                ('claimed_at', models.DateTimeField(blank=True, null=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('lock_wait_ms', models.PositiveBigIntegerField(blank=True, null=True)),
                ('usage', models.JSONField(blank=True, default=dict)),
                ('model', models.CharField(blank=True, db_default='', default='', help_text='The model that replied last; empty: none did.', max_length=200)),
                ('ended_by', models.CharField(blank=True, db_default='', default='', help_text='How the model ended the answer: stop, length, filter or refusal; empty: there is none.', max_length=16)),
                ('error_code', models.CharField(blank=True, max_length=64)),
                ('error', models.CharField(blank=True, help_text='What people see.', max_length=300)),
                ('provider_message', models.CharField(blank=True, db_default='', default='', max_length=300)),
                ('error_detail', models.TextField(blank=True, help_text='Details for operators; never shown to people.')),
                ('host', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='guests', to='sessions_app.turn')),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='turns', to='sessions_app.session')),
            ],
            options={
                'ordering': ['id'],
                'indexes': [
                    models.Index(fields=['owner_id', 'queued_at', 'id'], name='turn_of_owner'),
                    models.Index(condition=models.Q(('state', 'succeeded'), _negated=True), fields=['owner_id', 'state', 'queued_at', 'id'], name='turn_of_owner_by_state'),
                    models.Index(condition=models.Q(('state', 'queued')), fields=['session', 'lane', 'due_at', 'id'], name='turn_queue'),
                    models.Index(fields=['session', 'id'], name='turn_of_session'),
                    models.Index(condition=models.Q(('host__isnull', False)), fields=['host'], name='turn_of_host'),
                    models.Index(condition=models.Q(('host__isnull', False), ('state', 'queued')), fields=['host'], name='turn_waiting_guest'),
                    models.Index(condition=models.Q(('state', 'failed')), fields=['id'], name='turn_failed'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('owner_id__gt', 0)), name='turn_has_owner'),
                    models.UniqueConstraint(condition=models.Q(('state', 'running')), fields=('session',), name='turn_one_running_per_session'),
                    models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('session', 'idempotency_key'), name='turn_idempotency_key_once'),
                    models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'running', 'succeeded', 'failed', 'cancelled', 'merged'])), name='turn_state_known'),
                    models.CheckConstraint(condition=models.Q(('kind__in', ['message', 'automation', 'legacy', 'heartbeat', 'job', 'scheduled_message', 'system'])), name='turn_kind_known'),
                    models.CheckConstraint(condition=models.Q(('lane__in', ['turns', 'auto'])), name='turn_lane_known'),
                    models.CheckConstraint(condition=models.Q(models.Q(('finished_at__isnull', True), ('state__in', ('queued', 'running'))), models.Q(('finished_at__isnull', False), ('state__in', ('succeeded', 'failed', 'cancelled', 'merged'))), _connector='OR'), name='turn_finished_iff_ended'),
                    models.CheckConstraint(condition=models.Q(('claim__isnull', True), models.Q(('state__in', ['queued', 'merged']), _negated=True), _connector='OR'), name='turn_claim_only_once_started'),
                    models.CheckConstraint(condition=models.Q(('host__isnull', True), ('state__in', ['queued', 'merged']), _connector='OR'), name='turn_host_only_for_guests'),
                ],
            },
        ),
        migrations.AddField(
            model_name='message',
            name='turn',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='messages', to='sessions_app.turn'),
        ),
        migrations.CreateModel(
            name='MailboxEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.UUIDField(default=uuid.uuid4, unique=True)),
                ('source_key', models.CharField(blank=True, max_length=200)),
                ('event_type', models.CharField(max_length=64)),
                ('summary', models.CharField(max_length=300)),
                ('detail', models.TextField(blank=True)),
                ('artifacts', models.JSONField(blank=True, default=list)),
                ('priority', models.SmallIntegerField(choices=[(0, 'Normal'), (1, 'High'), (2, 'Urgent')], default=0)),
                ('suppress_if_stale', models.BooleanField(default=False)),
                ('dedupe_key', models.CharField(blank=True, max_length=200)),
                ('foreign', models.BooleanField(db_default=False, default=False, help_text='The reporting turn had read text from outside. A turn that is shown it is restricted.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('acknowledged_at', models.DateTimeField(blank=True, null=True)),
                ('dropped_at', models.DateTimeField(blank=True, null=True)),
                ('reason', models.CharField(blank=True, max_length=64)),
                ('lost', models.PositiveIntegerField(db_default=0, default=0, help_text='Unread updates that were dropped over the limit.')),
                ('target', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='mailbox', to='sessions_app.session')),
                ('acknowledged_by', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='acknowledged', to='sessions_app.turn')),
            ],
            options={
                'indexes': [
                    models.Index(condition=models.Q(('acknowledged_at__isnull', True), ('dropped_at__isnull', True)), fields=['target', '-priority', 'id'], name='mailbox_pending'),
                    models.Index(fields=['target', 'id'], name='mailbox_of_session'),
                    models.Index(condition=models.Q(('acknowledged_by__isnull', False)), fields=['acknowledged_by'], name='mailbox_of_turn'),
                ],
                'constraints': [
                    models.UniqueConstraint(condition=models.Q(('acknowledged_at__isnull', True), ('dropped_at__isnull', True), models.Q(('dedupe_key', ''), _negated=True)), fields=('target', 'dedupe_key'), name='mailbox_one_unread_per_dedupe_key'),
                    models.CheckConstraint(condition=models.Q(('acknowledged_at__isnull', True), ('dropped_at__isnull', True), _connector='OR'), name='mailbox_acknowledged_or_dropped'),
                    models.CheckConstraint(condition=models.Q(('dropped_at__isnull', True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='mailbox_dropped_with_reason'),
                    models.CheckConstraint(condition=models.Q(('priority__in', [0, 1, 2])), name='mailbox_priority_known'),
                    models.CheckConstraint(condition=models.Q(('target__isnull', False), ('dropped_at__isnull', False), _connector='OR'), name='mailbox_without_target_is_dropped'),
                    models.CheckConstraint(condition=models.Q(('acknowledged_by__isnull', True), ('acknowledged_at__isnull', False), _connector='OR'), name='mailbox_turn_acknowledged_it'),
                ],
            },
        ),
        migrations.CreateModel(
            name='ExecutionState',
            fields=[
                ('id', models.CharField(editable=False, max_length=16, primary_key=True, serialize=False)),
                ('source', models.CharField(editable=False, help_text='The kind of the turn that started it.', max_length=20)),
                ('origin', models.CharField(blank=True, editable=False, help_text='The id of the job that started it, or hook:<id>.', max_length=80)),
                ('status', models.CharField(choices=[('planning', 'planning'), ('running', 'running'), ('waiting_user', 'waiting_user'), ('waiting_confirmation', 'waiting_confirmation'), ('completed', 'completed'), ('failed', 'failed'), ('cancelled', 'cancelled')], max_length=24)),
                ('request', models.TextField()),
                ('goal', models.TextField(blank=True)),
                ('plans', models.PositiveSmallIntegerField(default=0)),
                ('steps', models.JSONField(default=list)),
                ('current_step', models.CharField(blank=True, max_length=16)),
                ('observations', models.JSONField(default=list)),
                ('iterations', models.PositiveSmallIntegerField(default=0)),
                ('question', models.TextField(blank=True)),
                ('question_id', models.CharField(blank=True, db_default='', default='', editable=False, max_length=16)),
                ('asked_seq', models.PositiveBigIntegerField(db_default=0, default=0, editable=False)),
                ('asked_at', models.DateTimeField(blank=True, help_text='When the question was asked.', null=True)),
                ('reply', models.TextField(blank=True)),
                ('has_read', models.BooleanField(db_default=False, default=False, editable=False)),
                ('final_answer', models.TextField(blank=True)),
                ('last_error', models.TextField(blank=True)),
                ('catalogue', models.CharField(blank=True, max_length=32)),
                ('revise', models.TextField(blank=True)),
                ('heard', models.PositiveIntegerField(default=0)),
                ('closed_by', models.CharField(blank=True, max_length=16)),
                ('revision', models.PositiveIntegerField(default=1)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='executions', to='sessions_app.session')),
                ('turn', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='executions', to='sessions_app.turn')),
            ],
            options={
                'ordering': ['-created_at', '-id'],
                'indexes': [
                    models.Index(fields=['session', '-created_at'], name='execution_of_session'),
                    models.Index(condition=models.Q(('status__in', ['waiting_user', 'waiting_confirmation'])), fields=['asked_at'], name='execution_waits'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('status__in', ['planning', 'running', 'waiting_user', 'waiting_confirmation', 'completed', 'failed', 'cancelled'])), name='execution_state_known'),
                    models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['waiting_user', 'waiting_confirmation']), _negated=True), models.Q(models.Q(('question', ''), _negated=True), ('asked_at__isnull', False)), _connector='OR'), name='execution_waits_with_a_question'),
                    models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['planning', 'running']), _negated=True), ('turn__isnull', False), _connector='OR'), name='execution_at_work_in_a_turn'),
                    models.UniqueConstraint(condition=models.Q(('status__in', ['planning', 'running'])), fields=('session',), name='execution_one_at_work_per_session'),
                ],
            },
        ),
        migrations.CreateModel(
            name='ConsentQuestion',
            fields=[
                ('id', models.CharField(editable=False, max_length=16, primary_key=True, serialize=False)),
                ('execution', models.CharField(blank=True, editable=False, max_length=16)),
                ('asked_of', models.CharField(blank=True, editable=False, max_length=300)),
                ('text', models.TextField()),
                ('calls', models.JSONField()),
                ('state', models.CharField(choices=[('open', 'Open'), ('granted', 'Granted'), ('refused', 'Refused'), ('closed', 'Closed')], default='open', max_length=8)),
                ('asked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('asked_seq', models.PositiveBigIntegerField()),
                ('answered_at', models.DateTimeField(blank=True, null=True)),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='consent_questions', to='sessions_app.session')),
                ('answered_by', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='sessions_app.turn')),
                ('turn', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='sessions_app.turn')),
            ],
            options={
                'ordering': ['-asked_seq', '-id'],
                'indexes': [
                    models.Index(fields=['session', '-asked_seq'], name='consent_of_session'),
                    models.Index(condition=models.Q(('state', 'open')), fields=['asked_at'], name='consent_open'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('state__in', ['open', 'granted', 'refused', 'closed'])), name='consent_state_known'),
                    models.CheckConstraint(condition=models.Q(('calls', []), _negated=True), name='consent_names_a_call'),
                    models.CheckConstraint(condition=models.Q(models.Q(('answered_at__isnull', True), ('state', 'open')), models.Q(('answered_at__isnull', False), ('state', 'closed')), models.Q(('answered_at__isnull', False), ('answered_by__isnull', False), ('state__in', ['granted', 'refused'])), _connector='OR'), name='consent_answered_by_a_turn'),
                    models.UniqueConstraint(condition=models.Q(('state', 'open'), models.Q(('execution', ''), _negated=True)), fields=('execution',), name='consent_one_open_per_execution'),
                ],
            },
        ),
        migrations.CreateModel(
            name='TurnStep',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('n', models.PositiveIntegerField()),
                ('kind', models.CharField(choices=[('prompt', 'prompt'), ('response', 'response'), ('intent', 'intent'), ('result', 'result'), ('inject', 'inject'), ('checkpoint', 'checkpoint'), ('memory', 'memory')], max_length=16)),
                ('data', models.JSONField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('turn', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='steps', to='sessions_app.turn')),
            ],
            options={
                'ordering': ['turn_id', 'n'],
                'constraints': [
                    models.UniqueConstraint(fields=('turn', 'n'), name='turnstep_n_once_per_turn'),
                    models.CheckConstraint(condition=models.Q(('kind__in', ['prompt', 'response', 'intent', 'result', 'inject', 'checkpoint', 'memory'])), name='turnstep_kind_known'),
                ],
            },
        ),
        migrations.AddIndex(
            model_name='message',
            index=models.Index(fields=['turn', 'seq'], name='message_of_turn'),
        ),
        migrations.CreateModel(
            name='MessageImage',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('media_type', models.CharField(max_length=20)),
                ('content', models.BinaryField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.session')),
            ],
        ),
        migrations.CreateModel(
            name='ClientChat',
            fields=[
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='client_chat', serialize=False, to='sessions_app.session')),
                ('door', models.CharField(max_length=32)),
                ('chat', models.CharField(max_length=64)),
                ('number', models.PositiveIntegerField()),
                ('told', models.JSONField(default=dict)),
                ('agent', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.agent')),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('agent', 'door', 'chat', 'number'), name='client_chat_once'),
                ],
            },
        ),
        migrations.CreateModel(
            name='ClientMessage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveIntegerField()),
                ('path', models.CharField(max_length=64)),
                ('request_key', models.CharField(blank=True, help_text='Hash of the Idempotency-Key.', max_length=64)),
                ('ends_at_seq', models.PositiveBigIntegerField(null=True)),
                ('news', models.JSONField(default=list)),
                ('news_told', models.BooleanField(default=False)),
                ('delivered', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('chat', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='accepted', to='sessions_app.clientchat')),
                ('turn', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='sessions_app.turn')),
            ],
            options={
                'indexes': [
                    models.Index(fields=['path'], name='client_message_path'),
                    models.Index(condition=models.Q(('turn__isnull', False)), fields=['turn'], name='client_message_turn'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('chat', 'position'), name='client_message_once'),
                    models.UniqueConstraint(condition=models.Q(('request_key', ''), _negated=True), fields=('request_key',), name='client_message_key_once'),
                ],
            },
        ),
        migrations.CreateModel(
            name='TelegramBot',
            fields=[
                ('agent', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='telegram_bot', serialize=False, to='sessions_app.agent')),
                ('telegram_id', models.BigIntegerField(unique=True)),
                ('username', models.CharField(max_length=64)),
                ('token_ciphertext', models.TextField(editable=False)),
                ('enabled', models.BooleanField(default=True)),
                ('code_sha256', models.CharField(blank=True, default='', editable=False, max_length=64)),
                ('code_expires_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('last_error', models.CharField(blank=True, default='', editable=False, max_length=300)),
                ('state_since', models.DateTimeField(blank=True, editable=False, help_text='When reading began to succeed, or to fail.', null=True)),
                ('revision', models.PositiveIntegerField(default=1)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
            ],
            options={
                'verbose_name': 'Telegram bot',
                'constraints': [models.CheckConstraint(condition=models.Q(('token_ciphertext', ''), _negated=True), name='telegram_bot_has_a_token'), models.CheckConstraint(condition=models.Q(models.Q(('code_expires_at__isnull', True), ('code_sha256', '')), models.Q(('code_expires_at__isnull', False), ('code_sha256__regex', '^[0-9a-f]{64}$')), _connector='OR'), name='telegram_code_is_a_hash')],
            },
        ),
        migrations.CreateModel(
            name='TelegramChat',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('chat_id', models.BigIntegerField()),
                ('name', models.CharField(blank=True, max_length=80)),
                ('connected_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('blocked_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('partial_key', models.CharField(blank=True, default='', editable=False, max_length=200)),
                ('partial_count', models.PositiveSmallIntegerField(default=0, editable=False)),
                ('bot', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='chats', to='sessions_app.telegrambot')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('bot', 'chat_id'), name='telegram_chat_once'), models.CheckConstraint(condition=models.Q(('chat_id__gt', 0)), name='telegram_chat_is_private')],
            },
        ),
        migrations.CreateModel(
            name='TelegramUpdate',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('update_id', models.BigIntegerField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('bot', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.telegrambot')),
            ],
            options={
                'indexes': [models.Index(fields=['created_at'], name='telegram_update_by_age')],
                'constraints': [models.UniqueConstraint(fields=('bot', 'update_id'), name='telegram_update_once')],
            },
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.CharField(editable=False, max_length=16, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('token_sha256', models.CharField(editable=False, max_length=64)),
                ('prefix', models.CharField(editable=False, help_text='How the token begins.', max_length=8)),
                ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(choices=[('read', 'Read'), ('talk', 'Talk'), ('schedule', 'Schedule'), ('manage', 'Manage')], max_length=16), size=None)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('expires_at', models.DateTimeField(blank=True, help_text='Empty: never.', null=True)),
                ('last_used_at', models.DateTimeField(blank=True, help_text='To the minute.', null=True)),
                ('agent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.agent')),
                ('session', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.session')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'API token',
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='api_token_has_a_name'),
                    models.CheckConstraint(condition=models.Q(('token_sha256__regex', '^[0-9a-f]{64}$')), name='api_token_is_a_hash'),
                    models.UniqueConstraint(fields=('token_sha256',), name='api_token_once'),
                    models.CheckConstraint(condition=models.Q(('scopes__len__gt', 0), ('scopes__contained_by', ['read', 'talk', 'schedule', 'manage'])), name='api_token_scopes_are_known'),
                    models.CheckConstraint(condition=models.Q(('agent__isnull', True), ('session__isnull', True), _connector='OR'), name='api_token_has_one_limit'),
                    models.CheckConstraint(condition=models.Q(('expires_at__isnull', True), ('expires_at__gt', models.F('created_at')), _connector='OR'), name='api_token_expires_later'),
                ],
            },
        ),
        migrations.CreateModel(
            name='StreamTicket',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ticket_sha256', models.CharField(editable=False, max_length=64)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('expires_at', models.DateTimeField()),
                ('token', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tickets', to='sessions_app.apitoken')),
            ],
            options={
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('ticket_sha256__regex', '^[0-9a-f]{64}$')), name='stream_ticket_is_a_hash'),
                    models.UniqueConstraint(fields=('ticket_sha256',), name='stream_ticket_once'),
                    models.CheckConstraint(condition=models.Q(('expires_at__gt', models.F('created_at'))), name='stream_ticket_expires_later'),
                ],
            },
        ),
        migrations.RunSQL(  # volatile: the count has a snapshot of its own, which is taken after the lock
            sql="""
CREATE FUNCTION rondo_running_turns(owner bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_advisory_xact_lock(hashtextextended('rondo:share:' || owner, 0));
  SELECT count(*) FROM sessions_app_turn WHERE owner_id = owner AND state = 'running'
$$""",
            reverse_sql="DROP FUNCTION rondo_running_turns(bigint)",
        ),
        migrations.RunSQL(sql=WITH_OWNER, reverse_sql=migrations.RunSQL.noop),
        migrations.RunSQL(
            sql=[
                "ALTER TABLE sessions_app_turn SET (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 90)",
                "ALTER TABLE sessions_app_allowance SET UNLOGGED",
                "ALTER TABLE sessions_app_allowance SET (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 50)",
            ],
            reverse_sql=migrations.RunSQL.noop,
        ),
    ]
