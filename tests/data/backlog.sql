/* So many turns of one session, %(count)s, of a hundred days ago, each with a message, an event and a step. */

-- the turns
INSERT INTO sessions_app_turn (
  session_id, kind, lane, content, metadata, origin_run, origin_attempt, on_busy, state, attempt, rescues,
  steps_at_claim, due_at, queued_at, finished_at, usage, error_code, error, error_detail
)
SELECT %(session)s, 'message', 'turns', 'x', '{}', '', 0, 'enqueue', 'succeeded', 1, 0, 0, t, t, t, '{}', '', '', ''
FROM generate_series(1, %(count)s), LATERAL (SELECT now() - interval '100 days' AS t) at;

-- their messages
INSERT INTO sessions_app_message (session_id, seq, role, content, parts, metadata, turn_id)
SELECT session_id, row_number() OVER (ORDER BY id), 'user', 'x', '{}', '{}', id
FROM sessions_app_turn
WHERE session_id = %(session)s AND finished_at < now() - interval '91 days';

-- their events
INSERT INTO sessions_app_event (
  agent_id, session_id, turn_id, scope, source_type, run_id, type, content, created_at
)
SELECT s.agent_id, s.id, t.id, 'session', 'message', '', 'message', '{}', t.queued_at
FROM sessions_app_turn t
JOIN sessions_app_session s ON s.id = t.session_id
WHERE s.id = %(session)s
ORDER BY t.id;

-- their steps in the order of the turns: the journal of a turn that is removed first would go, uncounted, with it
INSERT INTO sessions_app_turnstep (turn_id, n, kind, data, created_at)
SELECT id, 0, 'prompt', '{}', queued_at
FROM sessions_app_turn
WHERE session_id = %(session)s
ORDER BY id;

-- the session's last message
UPDATE sessions_app_session SET last_seq = %(count)s WHERE id = %(session)s;
