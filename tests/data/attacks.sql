/* What the database itself refuses, on the rows of tests/sessions_app/models/test_constraints.py. */

-- a second running turn
UPDATE sessions_app_turn SET state = 'running';

-- an unknown turn state
UPDATE sessions_app_turn SET state = 'paused';

-- a turn of nobody
UPDATE sessions_app_turn SET owner_id = 0;

-- an unknown kind
UPDATE sessions_app_turn SET kind = 'whim';

-- an unknown lane
UPDATE sessions_app_turn SET lane = 'slow';

-- an end without its instant
UPDATE sessions_app_turn SET state = 'failed';

-- an instant without an end
UPDATE sessions_app_turn SET finished_at = now();

-- a claim on a waiting turn
UPDATE sessions_app_turn SET claim = gen_random_uuid();

-- a running guest
UPDATE sessions_app_turn SET state = 'running', host_id = id;

-- one idempotency key twice
UPDATE sessions_app_turn SET idempotency_key = 'k';

-- a seq twice
UPDATE sessions_app_message SET seq = 1;

-- a seq of zero
UPDATE sessions_app_message SET seq = 0 WHERE seq = 1;

-- an unknown role
UPDATE sessions_app_message SET role = 'ghost';

-- a journal row twice
UPDATE sessions_app_turnstep SET n = 0;

-- a key twice within an agent
UPDATE sessions_app_session SET key = 'k';

-- an unknown session state
UPDATE sessions_app_session SET state = 'asleep';

-- acknowledged and dropped
UPDATE sessions_app_mailboxevent SET acknowledged_at = now(), dropped_at = now(), reason = 'x';

-- dropped without a reason
UPDATE sessions_app_mailboxevent SET dropped_at = now();

-- mail for nobody that waits
UPDATE sessions_app_mailboxevent SET target_id = NULL;

-- a turn that acknowledged nothing
UPDATE sessions_app_mailboxevent SET acknowledged_by_id = (SELECT min(id) FROM sessions_app_turn);

-- a counter below zero
UPDATE sessions_app_counter SET value = -1;

-- one counter twice
UPDATE sessions_app_counter SET name = 'one';

-- a delivery of a message and of an event
UPDATE sessions_app_delivery SET event = '{}';

-- text for every window
UPDATE sessions_app_event SET scope = 'agent';

-- two runs of one slot
UPDATE automations_runrecord SET scheduled_for = '2027-01-01';

-- a skip without a reason
UPDATE automations_runrecord SET state = 'skipped', finished_at = now();

-- an unknown run state
UPDATE automations_runrecord SET state = 'lost';

-- an ended run without its instant
UPDATE automations_runrecord SET state = 'succeeded';

-- a hook without a name
UPDATE sessions_app_hook SET name = '';

-- a hook's token as it is
UPDATE sessions_app_hook SET token_sha256 = 'rin_' || repeat('a', 43);

-- one token for two hooks
UPDATE sessions_app_hook SET token_sha256 = repeat('0', 64);

-- a route without an address
UPDATE sessions_app_hook SET channel = 'webhook';

-- an address without a channel
UPDATE sessions_app_hook SET address = '42';

-- a hook of nobody
UPDATE sessions_app_hook SET agent_id = NULL;

-- a hook into nowhere
UPDATE sessions_app_hook SET session_id = gen_random_uuid();

-- a session gone from under its hook
DELETE FROM sessions_app_session WHERE id IN (SELECT session_id FROM sessions_app_hook);

-- a token without a name
UPDATE sessions_app_apitoken SET name = '';

-- a token as it is
UPDATE sessions_app_apitoken SET token_sha256 = 'secret';

-- a token without a scope
UPDATE sessions_app_apitoken SET scopes = '{}';

-- an unknown scope
UPDATE sessions_app_apitoken SET scopes = '{root}';

-- a token with two limits
UPDATE sessions_app_apitoken
SET agent_id = (SELECT min(id) FROM sessions_app_agent), session_id = (SELECT id FROM sessions_app_session LIMIT 1);

-- a token that has expired from the start
UPDATE sessions_app_apitoken SET expires_at = '2000-01-01';

-- a consent to nothing
UPDATE sessions_app_consentquestion SET calls = '[]';

-- a consent that nobody gave
UPDATE sessions_app_consentquestion SET state = 'granted', answered_at = now();

-- a consent without its instant
UPDATE sessions_app_consentquestion SET state = 'granted', answered_by_id = 1;

-- an unknown state of a consent
UPDATE sessions_app_consentquestion SET state = 'maybe';

-- two open questions of one execution
INSERT INTO sessions_app_consentquestion (id, session_id, execution, turn_id, text, calls, state, asked_seq)
SELECT 'another2', session_id, execution, 1, text, calls, state, asked_seq
FROM sessions_app_consentquestion;

-- two schedules
UPDATE automations_cronjob SET expr = '* * * * *';

-- no schedule
UPDATE automations_cronjob SET every_seconds = NULL;

-- a bound job with a legacy field
UPDATE automations_cronjob SET channel = 'telegram';

-- a bound job that runs elsewhere
UPDATE automations_cronjob SET execution_mode = 'isolated';

-- a run of nothing
UPDATE automations_runrecord SET job_id = NULL;

-- a run of a job that is not there
UPDATE automations_runrecord SET job_id = 'x' WHERE job_id IS NOT NULL;

-- a clock gone from under its runs
DELETE FROM automations_jobclock;

-- a run of a job and of a message
UPDATE automations_runrecord SET scheduled_message_id = (SELECT min(id) FROM automations_scheduledmessage);

-- two runs of one message
INSERT INTO automations_runrecord (
  run_id, scheduled_message_id, scheduled_for, state, reason, attempt, session_key, snapshot, rendered_prompt, error,
  error_detail, response_summary, usage
)
SELECT m.id || ':' || n, m.id, m.send_at + n * interval '1 s', 'queued', '', 1, '', '{}', '', '', '', '', '{}'
FROM automations_scheduledmessage m, generate_series(1, 2) n;

-- a run of a message that is not there
UPDATE automations_runrecord SET scheduled_message_id = 'x', job_id = NULL;

-- an unknown message status
UPDATE automations_scheduledmessage SET status = 'lost';

-- a message to a group
UPDATE automations_scheduledmessage SET chat_type = 'group';

-- a message without words
UPDATE automations_scheduledmessage SET message_text = E' \n\t';

-- sent at no time
UPDATE automations_scheduledmessage
SET status = 'sent', taken_at = now(), sent_message_id = (SELECT min(id) FROM sessions_app_message);

-- a time of sending without it
UPDATE automations_scheduledmessage SET sent_at = now();

-- sent and nowhere in the history
UPDATE automations_scheduledmessage SET status = 'sent', taken_at = now(), sent_at = now();

-- said before it was taken
UPDATE automations_scheduledmessage
SET sent_message_id = (SELECT min(id) FROM sessions_app_message)
WHERE id = (SELECT min(id) FROM automations_scheduledmessage);

-- said and cancelled
UPDATE automations_scheduledmessage
SET taken_at = now(), status = 'cancelled', sent_message_id = (SELECT min(id) FROM sessions_app_message)
WHERE id = (SELECT min(id) FROM automations_scheduledmessage);

-- one entry that two messages are
UPDATE automations_scheduledmessage
SET taken_at = now(), sent_message_id = (SELECT min(id) FROM sessions_app_message);

-- failed without a word
UPDATE automations_scheduledmessage SET status = 'failed';

-- an error of what did not fail
UPDATE automations_scheduledmessage SET last_error = 'x';

-- replaced and not cancelled
UPDATE automations_scheduledmessage
SET replaced_by_id = (SELECT max(id) FROM automations_scheduledmessage)
WHERE id = (SELECT min(id) FROM automations_scheduledmessage);

-- cancelled by a call and not cancelled
UPDATE automations_scheduledmessage SET cancelled_by_tool_call_id = 'c';

-- replaced by itself
UPDATE automations_scheduledmessage SET status = 'cancelled', replaced_by_id = id;

-- one tool call twice
UPDATE automations_scheduledmessage SET created_by_turn_id = 1, created_by_tool_call_id = 'c';

-- a message for the end of time
UPDATE automations_scheduledmessage SET send_at = 'infinity';

-- a message without its session
UPDATE automations_scheduledmessage SET session_id = gen_random_uuid();

-- a job without its session
DELETE FROM sessions_app_session WHERE id IN (SELECT session_id FROM automations_cronjob);
