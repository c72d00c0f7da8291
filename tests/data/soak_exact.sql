/* What does not hold once the load of chaos/load.py has ended. */

-- a message that did not become exactly one turn
SELECT s.key, t.idempotency_key
FROM sessions_app_turn t
JOIN sessions_app_session s ON s.id = t.session_id
WHERE s.key LIKE 'web:soak-%' AND t.kind = 'message'
GROUP BY 1, 2
HAVING count(*) <> 1;

-- a turn that failed
SELECT t.id, t.kind, t.error_code
FROM sessions_app_turn t
JOIN sessions_app_session s ON s.id = t.session_id
WHERE s.key LIKE 'web:soak-%' AND t.state NOT IN ('succeeded', 'cancelled');

-- a turn without exactly one input and one answer
SELECT t.id
FROM sessions_app_turn t
JOIN sessions_app_session s ON s.id = t.session_id
LEFT JOIN sessions_app_message m ON m.turn_id = t.id
WHERE s.key LIKE 'web:soak-%' AND t.state = 'succeeded'
GROUP BY t.id
HAVING count(*) FILTER (WHERE m.role = 'user') <> 1 OR count(*) FILTER (WHERE m.role = 'assistant') <> 1;

-- a turn without exactly one end
SELECT t.id
FROM sessions_app_turn t
JOIN sessions_app_session s ON s.id = t.session_id
LEFT JOIN sessions_app_event e ON e.turn_id = t.id AND e.type = 'turn_end'
WHERE s.key LIKE 'web:soak-%' AND t.started_at IS NOT NULL
GROUP BY t.id
HAVING count(e.id) <> 1;

-- a slot that is not accounted for once
SELECT j.id
FROM automations_cronjob j
JOIN sessions_app_session s ON s.id = j.session_id
JOIN automations_jobclock c ON c.job_id = j.id
LEFT JOIN automations_runrecord r ON r.job_id = j.id
WHERE s.key LIKE 'web:soak-%'
GROUP BY j.id, c.last_slot
HAVING coalesce(sum(CASE WHEN r.state = 'skipped' THEN r.slots_count ELSE 1 END), 0)
  <> round(extract(epoch FROM c.last_slot - j.anchor) / :every);
