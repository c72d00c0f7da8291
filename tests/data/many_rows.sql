-- Rows of a quarter of a million: n is the number of a row; the older, the smaller. Nearly everything has ended, a little is open.
-- User 1 has most of it in session 1, user 2 has a quiet session among everybody else's. Each statement is run by itself.

INSERT INTO auth_user (
    id, username, password, is_active, is_superuser, is_staff, date_joined, first_name, last_name, email
) SELECT
    n, 'user' || n, '!', true, n = 1, n = 1, now(), '', '', ''
FROM generate_series(1, 2000) n;

INSERT INTO sessions_app_agent (
    id, owner_id, name, model, timezone, engine, unified_session, mcp_servers, policy, heartbeat, signing_secret, routine_limit,
    revision, updated_at
) SELECT
    n, n, 'demo', 'offline', 'UTC', 'chat', n = 3, '{}', '{}',
    '{"enabled": true, "interval_seconds": 1800, "active_hours": [8, 22], "ack_max_chars": 300}', 'whsec_' || n, 20, 1, now()
FROM generate_series(1, 2000) n;

INSERT INTO sessions_app_telegrambot (
    agent_id, telegram_id, username, token_ciphertext, enabled, code_sha256, last_error, revision, created_at
) SELECT
    n, n, 'bot' || n, 'unreadable', true, '', '', 1, now()
FROM generate_series(1, 2000) n;

INSERT INTO sessions_app_telegramchat (
    id, bot_id, chat_id, name, connected_at, partial_key, partial_count
) SELECT
    n, (n - 1) / 10 + 1, n, 'Person ' || n, now() - (20000 - n) * interval '1 minute', '', 0
FROM generate_series(1, 20000) n;

INSERT INTO sessions_app_session (
    id, agent_id, owner_id, type, key, state, deleting_since, reopens_as, channel, chat_id, chat_type, channel_meta, variables,
    revision, last_seq, window_from_seq, title, created_at, updated_at
) SELECT
    md5('session' || n)::uuid, agent, agent, kind,
    CASE kind WHEN 'primary' THEN 'unified:default' WHEN 'heartbeat' THEN 'heartbeat:demo' ELSE kind || ':' || n END,
    CASE WHEN kind = 'job' THEN 'archived' WHEN n IN (5000, 5001) THEN 'deleting' ELSE 'open' END,
    CASE n WHEN 5000 THEN now() WHEN 5001 THEN now() - interval '1 hour' END, 'open',
    CASE WHEN n % 10 = 0 THEN 'email' ELSE 'web' END,
    CASE WHEN kind <> 'job' THEN '' WHEN n > 195000 THEN 'job1' ELSE 'job' || n % 100000 + 1 END, 'private', '{}', '{}', 5,
    CASE n WHEN 1 THEN 40020 ELSE 20 END, 1, 'Session ' || n, now() - ((200000 - n) * interval '30 days' / 200000),
    now() - ((200000 - n) * interval '30 days' / 200000)
FROM (SELECT n, CASE WHEN n <= 2000 THEN 'primary' WHEN n <= 4000 THEN 'heartbeat' WHEN n <= 104000 THEN 'sub' ELSE 'job' END kind, CASE WHEN n BETWEEN 4001 AND 14000 OR n > 195000 THEN 1 ELSE (n - 1) % 2000 + 1 END agent FROM generate_series(1, 200000) n) s;

INSERT INTO sessions_app_turn (
    id, session_id, state, content, kind, lane, metadata, origin_run, origin_attempt, on_busy, attempt, rescues, host_id,
    idempotency_key, claim, worker, steps_at_claim, usage, error_code, error, error_detail, due_at, queued_at, claimed_at,
    finished_at, owner_id
) SELECT
    n, md5('session' || s)::uuid, state, 'Hello ' || n, CASE WHEN n % 3 = 0 THEN 'automation' ELSE 'message' END,
    CASE WHEN n % 3 = 0 THEN 'auto' ELSE 'turns' END, '{}', CASE WHEN n % 3 = 0 THEN 'run:' || n ELSE '' END, 1, 'enqueue',
    (state <> 'queued')::int, 0, CASE WHEN state = 'merged' THEN n - 1 END, CASE WHEN n % 3 = 0 THEN 'slot:' || n END,
    CASE WHEN state IN ('succeeded', 'failed', 'running') THEN md5('claim' || n)::uuid END,
    CASE WHEN state IN ('succeeded', 'failed', 'running') THEN md5('worker1')::uuid END, 0, '{}', '', '', '',
    now() - ((250000 - n) * interval '30 days' / 250000), now() - ((250000 - n) * interval '30 days' / 250000),
    CASE WHEN state = 'running' THEN now() - interval '1 minute' END,
    CASE WHEN state NOT IN ('queued', 'running') THEN now() - ((250000 - n) * interval '30 days' / 250000) END,
    CASE WHEN s BETWEEN 4001 AND 14000 OR s > 195000 THEN 1 ELSE (s - 1) % 2000 + 1 END
FROM (SELECT n, CASE WHEN n <= 20000 THEN 1 ELSE (n::bigint * 7919) % 200000 + 1 END s, CASE WHEN n > 249980 THEN 'running' WHEN n > 249800 THEN 'queued' WHEN n % 50 = 0 THEN 'failed' WHEN n % 101 = 0 THEN 'cancelled' WHEN n % 103 = 0 THEN 'merged' ELSE 'succeeded' END state FROM generate_series(1, 250000) n) t;

INSERT INTO sessions_app_turnstep (
    id, turn_id, n, data, kind, created_at
) SELECT
    n, 249800 - (n - 1) / 4, (n - 1) % 4, '{}', CASE (n - 1) % 4 WHEN 0 THEN 'prompt' ELSE 'response' END,
    now() - ((250000 - n) * interval '30 days' / 250000)
FROM generate_series(1, 250000) n;

INSERT INTO sessions_app_message (
    id, session_id, seq, turn_id, role, content, parts, metadata, created_at
) SELECT
    n, md5('session' || s)::uuid, seq, turn, CASE n % 2 WHEN 1 THEN 'user' ELSE 'assistant' END, 'What was said: ' || n, '{}',
    '{}', now() - ((250000 - n) * interval '30 days' / 250000)
FROM (SELECT n, (n + 1) / 2 turn, s, row_number() OVER (PARTITION BY s ORDER BY n) seq FROM (SELECT n, CASE WHEN n <= 40000 THEN 1 ELSE ((n + 1) / 2::bigint * 7919) % 200000 + 1 END s FROM generate_series(1, 250000) n) numbered) m;

INSERT INTO sessions_app_event (
    id, xid, turn_id, run_id, agent_id, source_type, session_id, content, scope, type, created_at
) SELECT
    n, (last - (250000 - n) / 50 - 1)::text::xid8, n, '', CASE WHEN s = 1 THEN 1 ELSE s % 2000 + 1 END, 'message',
    md5('session' || s)::uuid, '{}', CASE WHEN n % 10 = 0 THEN 'agent' ELSE 'session' END,
    CASE WHEN n % 10 = 0 THEN 'status' ELSE 'message' END, now() - interval '1 day' * (250000 - n) / 250000
FROM (SELECT n, CASE WHEN n <= 20000 THEN 1 ELSE (n::bigint * 7919) % 200000 + 1 END s, (SELECT pg_current_xact_id()::text::bigint) last FROM generate_series(1, 250000) n) e;

INSERT INTO sessions_app_mailboxevent (
    id, event_id, target_id, source_key, event_type, summary, detail, artifacts, priority, suppress_if_stale, dedupe_key, reason,
    acknowledged_at, acknowledged_by_id, dropped_at, created_at
) SELECT
    n, md5('mail' || n)::uuid, md5('session' || s)::uuid, 'job:' || n % 1000, 'job_completed', 'Done ' || n, 'Done.', '[]',
    n % 3, n % 1000 = 0, '', CASE state WHEN 1 THEN 'superseded' ELSE '' END,
    CASE state WHEN 2 THEN now() - ((250000 - n) * interval '30 days' / 250000) END, CASE state WHEN 2 THEN n END,
    CASE state WHEN 1 THEN now() - ((250000 - n) * interval '30 days' / 250000) END,
    now() - ((250000 - n) * interval '30 days' / 250000)
FROM (SELECT n, CASE WHEN n <= 20000 THEN 1 ELSE (n::bigint * 7919) % 200000 + 1 END s, CASE WHEN n % 100 = 0 THEN 0 WHEN n % 7 = 0 THEN 1 ELSE 2 END state FROM generate_series(1, 250000) n) e;

INSERT INTO sessions_app_delivery (
    id, session_id, session_key, message_id, idempotency_key, channel, address, meta, state, reason, attempts, last_error,
    ended_at, created_at, owner_id
) SELECT
    n, md5('session' || s)::uuid, 'sub:' || s, n, 'key' || n, 'email', 'a' || s || '@example.org', '{}', state, '', 1,
    CASE state WHEN 'failed' THEN 'refused' ELSE '' END,
    CASE state WHEN 'sent' THEN now() - ((250000 - n) * interval '30 days' / 250000) END,
    now() - ((250000 - n) * interval '30 days' / 250000),
    CASE WHEN s BETWEEN 4001 AND 14000 OR s > 195000 THEN 1 ELSE (s - 1) % 2000 + 1 END
FROM (SELECT n, CASE WHEN n <= 20000 THEN 1 ELSE (n::bigint * 7919) % 200000 + 1 END s, CASE WHEN n > 249800 THEN 'pending' WHEN n % 5000 = 0 THEN 'failed' ELSE 'sent' END state FROM generate_series(1, 250000) n) d;

INSERT INTO automations_cronjob (
    id, agent_id, name, message, session_id, kind, execution_mode, schedule_kind, expr, timezone, every_seconds, anchor,
    description, task_type, enabled, fault, overlap, catch_up, policy, max_retry, jitter_seconds, revision, updated_at, source,
    system_event, imported_id, session_key, channel, "to", created_at, owner_id
) SELECT
    'job' || n, agent, 'job ' || n, 'look', CASE of WHEN 'session' THEN md5('session' || agent)::uuid END,
    CASE of WHEN 'heartbeat' THEN 'system_event' ELSE 'agent_turn' END, CASE of WHEN 'heartbeat' THEN 'session' ELSE of END,
    CASE n % 2 WHEN 0 THEN 'cron' ELSE 'every' END, CASE n % 2 WHEN 0 THEN '0 9 * * *' ELSE '' END, 'Europe/Berlin',
    CASE n % 2 WHEN 1 THEN 3600 END, now() - interval '1 day', 'Look at it.', '', n % 5 <> 0, '', 'skip', 'one', '{}', 0, 0, 1,
    now(), CASE of WHEN 'heartbeat' THEN 'system' ELSE 'manual' END, CASE of WHEN 'heartbeat' THEN 'heartbeat' ELSE '' END, '',
    '', '', '', now() - ((100000 - n) * interval '30 days' / 100000), agent
FROM (SELECT n, CASE WHEN n > 98000 THEN 'heartbeat' WHEN n % 3 = 1 THEN 'session' WHEN n % 3 = 2 THEN 'inline' ELSE 'isolated' END of, CASE WHEN n <= 50 THEN 1 ELSE n % 2000 + 1 END agent FROM generate_series(1, 100000) n) j;

INSERT INTO automations_jobclock (
    job_id, inline, runs_started, next_run_at, last_slot, planned_from
) SELECT
    'job' || n, n % 3 = 2 AND n <= 98000, 10, CASE WHEN n % 5 <> 0 THEN now() + (n - 300) * interval '1 minute' END,
    now() - interval '1 day', now() - interval '2 days'
FROM generate_series(1, 100000) n;

INSERT INTO automations_runrecord (
    run_id, job_id, state, attempt, session_id, session_key, turn_id, usage, scheduled_for, reason, not_before, snapshot,
    rendered_prompt, error, error_detail, response_summary, created_at, finished_at, owner_id
) SELECT
    'job' || j || ':' || n, 'job' || j, state, 1, md5('session' || j)::uuid, '', greatest(n - n % 3, 3), '{}',
    date_trunc('second', now()) - (250000 - n) * interval '2 seconds', CASE state WHEN 'skipped' THEN 'overlap' ELSE '' END,
    CASE WHEN state = 'queued' AND n % 20 = 0 THEN now() - interval '1 minute' END, '{"policy": {}}', '', '', '', 'Done.',
    now() - ((250000 - n) * interval '30 days' / 250000),
    CASE WHEN state NOT IN ('queued', 'running') THEN now() - ((250000 - n) * interval '30 days' / 250000) END,
    CASE WHEN j > 98000 THEN 0 WHEN j <= 50 THEN 1 ELSE j % 2000 + 1 END
FROM (SELECT n, CASE WHEN n <= 20000 THEN 1 ELSE (n::bigint * 7919) % 100000 + 1 END j, CASE WHEN n > 249900 THEN 'running' WHEN n > 249800 THEN 'queued' WHEN n % 10 = 0 THEN 'skipped' ELSE 'succeeded' END state FROM generate_series(1, 250000) n) r;

INSERT INTO automations_scheduledmessage (
    id, session_id, chat_type, message_text, status, send_at, replace_existing, created_by_tool_call_id,
    cancelled_by_tool_call_id, last_error, created_at, updated_at
) SELECT
    'msg' || n, md5('session' || s)::uuid, 'private', 'Think of it', CASE WHEN waits THEN 'pending' ELSE 'cancelled' END,
    CASE WHEN waits THEN now() + (n - 99100) * interval '1 minute' ELSE now() - ((100000 - n) * interval '30 days' / 100000) END,
    false, '', '', '', now() - ((100000 - n) * interval '30 days' / 100000), now() - ((100000 - n) * interval '30 days' / 100000)
FROM (SELECT n, CASE WHEN n <= 2000 THEN 1 ELSE n + 4000 END s, n > 99000 waits FROM generate_series(1, 100000) n) m;

INSERT INTO sessions_app_taskstate (
    session_id, revision, consolidated_revision, open_loops, important_facts, updated_at, current_goal, active_flow, last_decision
) SELECT
    md5('session' || n)::uuid, 2, 1, '[]', '[]', now() - ((100000 - n) * interval '30 days' / 100000), '', '', ''
FROM generate_series(1, 100000) n;

INSERT INTO sessions_app_executionstate (
    id, session_id, turn_id, source, status, request, plans, steps, observations, iterations, heard, question, revision, origin,
    goal, current_step, reply, final_answer, last_error, catalogue, revise, asked_at, closed_by, created_at, updated_at
) SELECT
    'x' || n, md5('session' || s)::uuid, n, 'message', CASE WHEN waits THEN 'waiting_user' ELSE 'completed' END, 'Plan it.', 1,
    '[]', '[]', 1, 0, CASE WHEN waits THEN 'Which one?' ELSE '' END, 1, '', '', '', '', '', '', '', '',
    CASE WHEN waits THEN now() END, '', now() - ((100000 - n) * interval '30 days' / 100000),
    now() - ((100000 - n) * interval '30 days' / 100000)
FROM (SELECT n, CASE WHEN n <= 2000 THEN 1 ELSE n END s, n % 1000 = 0 waits FROM generate_series(1, 100000) n) x;

INSERT INTO sessions_app_idempotencykey (
    id, user_id, address, key, body_sha256, status, body, location, created_at
) SELECT
    n, n % 2000 + 1, 'POST /api/sessions/', 'key' || n, md5(n::text), 201, '{}', '', now()
FROM generate_series(1, 100000) n;
