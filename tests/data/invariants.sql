/* What must hold of all rows at every moment: queries that answer nothing, by what they would show. */

-- two turns run in one session
SELECT session_id FROM sessions_app_turn WHERE state = 'running' GROUP BY session_id HAVING count(*) > 1;

-- seqs with a gap
SELECT session_id
FROM sessions_app_message m
JOIN sessions_app_session s ON s.id = m.session_id
GROUP BY session_id, s.last_seq
HAVING count(*) <> max(seq) OR min(seq) <> 1 OR max(seq) <> s.last_seq;

-- revisions that are no commits
SELECT s.id
FROM sessions_app_session s
WHERE revision <> (
  SELECT count(*) FROM sessions_app_turn t
  WHERE t.session_id = s.id AND t.started_at IS NOT NULL AND t.state IN ('succeeded', 'failed', 'cancelled')
);

-- runs and turns apart
SELECT r.run_id, r.state, t.state
FROM automations_runrecord r
JOIN sessions_app_turn t ON t.id = r.turn_id
WHERE NOT CASE r.state
  WHEN 'queued' THEN CASE WHEN r.not_before IS NULL THEN t.state = 'queued' ELSE t.state = 'failed' END
  WHEN 'running' THEN t.state = 'running'
  WHEN 'cancelled' THEN t.state IN ('cancelled', 'failed')
  ELSE t.state = r.state
END;

-- open runs without a turn
SELECT run_id FROM automations_runrecord WHERE state IN ('queued', 'running') AND turn_id IS NULL;

-- automations that ended without a closure
SELECT t.id
FROM sessions_app_turn t
WHERE kind = 'automation'
  AND started_at IS NOT NULL
  AND state IN ('succeeded', 'failed', 'cancelled')
  AND NOT EXISTS (
    SELECT 1 FROM sessions_app_message m
    WHERE m.turn_id = t.id AND m.role = 'assistant' AND m.content <> ''
  );

-- automation turns without a run
SELECT t.id
FROM sessions_app_turn t
WHERE kind = 'automation'
  AND state IN ('queued', 'running')
  AND NOT EXISTS (SELECT 1 FROM automations_runrecord r WHERE r.turn_id = t.id)
  AND EXISTS (SELECT 1 FROM automations_cronjob j WHERE j.id = split_part(t.origin_run, ':', 1))
  AND state = 'queued';

-- a guest of a turn that ended
SELECT g.id
FROM sessions_app_turn g
JOIN sessions_app_turn h ON h.id = g.host_id
WHERE g.state = 'queued' AND h.state <> 'running';

-- messages that were taken along and lost
SELECT g.id
FROM sessions_app_turn g
JOIN sessions_app_turn h ON h.id = g.host_id
WHERE g.state = 'merged' AND h.state <> 'succeeded';

-- mail that a turn acknowledged and that did not succeed
SELECT m.id
FROM sessions_app_mailboxevent m
JOIN sessions_app_turn t ON t.id = m.acknowledged_by_id
WHERE t.state <> 'succeeded';

-- mail that was told twice
SELECT m.id
FROM sessions_app_mailboxevent m
JOIN sessions_app_turnstep s ON s.n = 0 AND s.data->'event_ids' @> to_jsonb(m.id)
JOIN sessions_app_turn t ON t.id = s.turn_id AND t.state = 'succeeded'
GROUP BY m.id
HAVING count(*) > 1;

-- mail that was told and waits
SELECT m.id
FROM sessions_app_mailboxevent m
JOIN sessions_app_turnstep s ON s.n = 0 AND s.data->'event_ids' @> to_jsonb(m.id)
JOIN sessions_app_turn t ON t.id = s.turn_id AND t.state = 'succeeded'
WHERE acknowledged_at IS NULL AND dropped_at IS NULL;

-- mail acknowledged by who did not tell it
SELECT id
FROM sessions_app_mailboxevent
WHERE acknowledged_by_id IS NOT NULL
  AND id NOT IN (
    SELECT m.id
    FROM sessions_app_mailboxevent m
    JOIN sessions_app_turnstep s ON s.n = 0 AND s.data->'event_ids' @> to_jsonb(m.id)
    JOIN sessions_app_turn t ON t.id = s.turn_id AND t.state = 'succeeded'
    WHERE t.id = acknowledged_by_id
  );

-- mail dropped without a reason
SELECT id
FROM sessions_app_mailboxevent
WHERE dropped_at IS NOT NULL AND (reason = '' OR acknowledged_at IS NOT NULL);

-- journals with a gap
SELECT turn_id FROM sessions_app_turnstep GROUP BY turn_id HAVING count(*) <> max(n) + 1;
