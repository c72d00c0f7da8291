"""Caps, what is spent and reserved, and the two functions that change it.

Each function is one statement to its caller, and locks first: the reservation, then rows of spending by key. The parts
of a function see what was committed while they waited.
"""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


# a cap is {key, tokens, micro_usd, ends_at}; null: no limit. `micro_usd` is 0 without a price. Returns the new
# reservation; if a cap refuses it, none, and the key of that cap with what is spent. `is_held`: without what is
# reserved there it would be allowed
RESERVE = """
CREATE FUNCTION rondo_reserve(of_turn bigint, of_claim uuid, new_tokens bigint, new_micro_usd bigint, new_caps jsonb)
RETURNS TABLE (reservation bigint, refused text, is_held boolean, tokens bigint, micro_usd bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  keys text[] := ARRAY(SELECT cap->>'key' FROM jsonb_array_elements(new_caps) AS cap ORDER BY cap->>'key' COLLATE "C");
BEGIN
  INSERT INTO sessions_app_spending (key, ends_at)
    SELECT cap->>'key', (cap->>'ends_at')::timestamptz FROM jsonb_array_elements(new_caps) AS cap
    ORDER BY cap->>'key' COLLATE "C" ON CONFLICT DO NOTHING;
  PERFORM 1 FROM sessions_app_spending WHERE key = ANY (keys) ORDER BY key COLLATE "C" FOR NO KEY UPDATE;
  SELECT of.key, of.fits_later, of.spent_tokens, of.spent_micro_usd INTO refused, is_held, tokens, micro_usd FROM (
    SELECT s.*, s.spent_tokens + new_tokens <= coalesce((cap->>'tokens')::bigint, s.spent_tokens + new_tokens)
      AND s.spent_micro_usd + new_micro_usd
        <= coalesce((cap->>'micro_usd')::bigint, s.spent_micro_usd + new_micro_usd) AS fits_later
    FROM sessions_app_spending AS s JOIN jsonb_array_elements(new_caps) AS cap ON s.key = cap->>'key'
    WHERE s.spent_tokens + s.reserved_tokens + new_tokens > (cap->>'tokens')::bigint
      OR new_micro_usd > 0 AND s.spent_micro_usd + s.reserved_micro_usd + new_micro_usd > (cap->>'micro_usd')::bigint
    ) AS of ORDER BY of.fits_later, of.ends_at DESC NULLS LAST, of.key LIMIT 1;
  IF refused IS NULL THEN
    UPDATE sessions_app_spending SET reserved_tokens = reserved_tokens + new_tokens,
      reserved_micro_usd = reserved_micro_usd + new_micro_usd WHERE key = ANY (keys);
    INSERT INTO sessions_app_reservation (turn_id, claim, tokens, micro_usd, caps)
      VALUES (of_turn, of_claim, new_tokens, new_micro_usd, new_caps) RETURNING id INTO reservation;
  END IF;
  RETURN NEXT;
END $$"""
# null instead of what was used: all that was reserved. Returns the caps of which more than told is spent, and a row
# only if the reservation still stands. A cap of no dollars is not reached by what costs nothing. It does not wait for
# the disk: if it is lost in a crash, the reservation stands
SETTLE = """
CREATE FUNCTION rondo_settle(which bigint, used_tokens bigint, used_micro_usd bigint)
RETURNS TABLE (cap jsonb, percent integer, tokens bigint, micro_usd bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  held sessions_app_reservation;
  keys text[];
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  DELETE FROM sessions_app_reservation WHERE id = which RETURNING * INTO held;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  keys := ARRAY(SELECT of_cap->>'key' FROM jsonb_array_elements(held.caps) AS of_cap);
  PERFORM 1 FROM sessions_app_spending WHERE key = ANY (keys) ORDER BY key COLLATE "C" FOR NO KEY UPDATE;
  UPDATE sessions_app_spending AS s SET
    reserved_tokens = s.reserved_tokens - held.tokens, reserved_micro_usd = s.reserved_micro_usd - held.micro_usd,
    spent_tokens = s.spent_tokens + coalesce(used_tokens, held.tokens),
    spent_micro_usd = s.spent_micro_usd + coalesce(used_micro_usd, held.micro_usd)
    WHERE key = ANY (keys);
  RETURN QUERY SELECT of.of_cap, of.reached, of.spent_tokens, of.spent_micro_usd FROM (
    SELECT s.*, of_cap, CASE
      WHEN s.spent_tokens >= (of_cap->>'tokens')::bigint
        OR s.spent_micro_usd > 0 AND s.spent_micro_usd >= (of_cap->>'micro_usd')::bigint THEN 100
      WHEN s.spent_tokens * 100 >= (of_cap->>'tokens')::bigint * 80
        OR s.spent_micro_usd > 0 AND s.spent_micro_usd * 100 >= (of_cap->>'micro_usd')::bigint * 80 THEN 80
      ELSE 0 END AS reached
    FROM sessions_app_spending AS s JOIN jsonb_array_elements(held.caps) AS of_cap ON s.key = of_cap->>'key'
    ) AS of WHERE of.reached > of.told AND of.ends_at IS NOT NULL;
END $$"""


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('sessions_app', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='UserLimits',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='spending_limits', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('limits', models.JSONField(blank=True, db_default={}, default=dict)),
            ],
            options={
                'verbose_name': 'caps',
                'verbose_name_plural': 'caps',
            },
        ),
        migrations.AddField(
            model_name='agent',
            name='limits',
            field=models.JSONField(blank=True, db_default={}, default=dict, help_text='Caps in tokens and US dollars by run, day and month.'),
        ),
        migrations.AddField(
            model_name='connection',
            name='limits',
            field=models.JSONField(blank=True, db_default={}, default=dict, help_text='Caps in tokens and US dollars by run, day and month.'),
        ),
        migrations.AddField(
            model_name='connection',
            name='prices',
            field=models.JSONField(blank=True, db_default={}, default=dict, help_text='US dollars for a million tokens by model, each {input, output}; * is for all others.'),
        ),
        migrations.CreateModel(
            name='Reservation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('turn_id', models.BigIntegerField(blank=True, null=True)),
                ('claim', models.UUIDField(blank=True, null=True)),
                ('tokens', models.BigIntegerField()),
                ('micro_usd', models.BigIntegerField()),
                ('caps', models.JSONField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('micro_usd__gte', 0), ('tokens__gte', 0)), name='reservation_not_negative'), models.CheckConstraint(condition=models.Q(models.Q(('claim__isnull', True), ('turn_id__isnull', True)), models.Q(('claim__isnull', False), ('turn_id__isnull', False)), _connector='OR'), name='reservation_of_a_claim')],
            },
        ),
        migrations.CreateModel(
            name='Spending',
            fields=[
                ('key', models.CharField(max_length=200, primary_key=True, serialize=False)),
                ('spent_tokens', models.BigIntegerField(db_default=0, default=0)),
                ('spent_micro_usd', models.BigIntegerField(db_default=0, default=0)),
                ('reserved_tokens', models.BigIntegerField(db_default=0, default=0)),
                ('reserved_micro_usd', models.BigIntegerField(db_default=0, default=0)),
                ('told', models.PositiveSmallIntegerField(db_default=0, default=0)),
                ('ends_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
            ],
            options={
                'verbose_name_plural': 'spending',
                'constraints': [models.CheckConstraint(condition=models.Q(('spent_micro_usd__gte', 0), ('spent_tokens__gte', 0), ('reserved_micro_usd__gte', 0), ('reserved_tokens__gte', 0)), name='spending_not_negative'), models.CheckConstraint(condition=models.Q(('told__in', (0, 80, 100))), name='spending_told_known')],
                'indexes': [models.Index(fields=['created_at'], name='spending_age')],
            },
        ),
        migrations.RunSQL(sql=[RESERVE, SETTLE], reverse_sql=["DROP FUNCTION rondo_settle", "DROP FUNCTION rondo_reserve"]),
        migrations.RunSQL(
            sql="ALTER TABLE sessions_app_spending SET (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 50)",
            reverse_sql=migrations.RunSQL.noop,
        ),
    ]
