/* What was done under the load of chaos/load.py. */

-- turns of messages
SELECT count(*)
FROM sessions_app_turn t
JOIN sessions_app_session s ON s.id = t.session_id
WHERE s.key LIKE 'web:soak-%' AND t.kind = 'message' AND t.state = 'succeeded';

-- runs
SELECT count(*)
FROM automations_runrecord
WHERE state = 'succeeded';

-- slots skipped with a reason
SELECT coalesce(sum(slots_count), 0)
FROM automations_runrecord
WHERE state = 'skipped';

-- resumed turns
SELECT count(*)
FROM sessions_app_turn
WHERE attempt > 1;

-- turns in all
SELECT count(*)
FROM sessions_app_turn
WHERE finished_at IS NOT NULL;
