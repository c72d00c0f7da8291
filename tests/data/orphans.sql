/* What no delete may leave behind: the ids of such rows. */

-- a bound job without a session
SELECT id FROM automations_cronjob
WHERE session_id IS NULL AND kind = 'agent_turn' AND session_key = '' AND channel = '' AND "to" = ''
  AND execution_mode = 'session';

-- a job without a clock
SELECT j.id FROM automations_cronjob j LEFT JOIN automations_jobclock c ON c.job_id = j.id
WHERE c.job_id IS NULL;

-- a run of a bound job without a session
SELECT r.run_id FROM automations_runrecord r JOIN automations_cronjob j ON j.id = r.job_id
WHERE j.session_id IS NOT NULL AND r.session_id IS DISTINCT FROM j.session_id;

-- an open run that nothing will end
SELECT r.run_id FROM automations_runrecord r LEFT JOIN sessions_app_turn t ON t.id = r.turn_id
WHERE r.state IN ('queued', 'running') AND r.not_before IS NULL
  AND (t.id IS NULL OR t.state NOT IN ('queued', 'running'));

-- a scheduled message that nothing will end
SELECT m.id FROM automations_scheduledmessage m
WHERE m.status = 'pending' AND m.taken_at IS NOT NULL
  AND NOT EXISTS (
    SELECT 1 FROM automations_runrecord r JOIN sessions_app_turn t ON t.id = r.turn_id
    WHERE r.scheduled_message_id = m.id AND t.state IN ('queued', 'running'))
  AND NOT EXISTS (
    SELECT 1 FROM sessions_app_delivery d
    WHERE d.message_id = m.sent_message_id AND d.state IN ('pending', 'sending'));

-- an automation's turn without its run
SELECT t.id FROM sessions_app_turn t
WHERE t.kind = 'automation' AND t.state IN ('queued', 'running')
  AND NOT EXISTS (SELECT 1 FROM automations_runrecord r WHERE r.run_id = t.origin_run);

-- an event of a turn that is gone
SELECT e.id FROM sessions_app_event e LEFT JOIN sessions_app_turn t ON t.id = e.turn_id
WHERE e.turn_id IS NOT NULL AND t.id IS NULL;

-- a message without its turn
SELECT id
FROM sessions_app_message
WHERE turn_id IS NULL;

-- mail for nobody
SELECT id
FROM sessions_app_mailboxevent
WHERE target_id IS NULL AND dropped_at IS NULL;

-- words of mail for nobody
SELECT id FROM sessions_app_mailboxevent
WHERE target_id IS NULL AND (summary || detail || source_key <> '' OR artifacts <> '[]');

-- a delivery of nothing
SELECT id FROM sessions_app_delivery WHERE state = 'pending' AND (session_id IS NULL OR message_id IS NULL);

-- a session that is being deleted by nobody
SELECT id
FROM sessions_app_session
WHERE state = 'deleting';

-- a turn in a session without its agent's owner
SELECT s.id FROM sessions_app_session s JOIN sessions_app_agent a ON a.id = s.agent_id
WHERE a.owner_id <> s.owner_id;

-- an agent without a primary session
SELECT id FROM sessions_app_agent a WHERE NOT EXISTS
  (SELECT 1 FROM sessions_app_session s WHERE s.agent_id = a.id AND s.key = 'unified:default');
