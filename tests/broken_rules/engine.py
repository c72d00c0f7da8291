"""How the turn engine's connections, locks and statements may be broken. As in table.py."""

from __future__ import annotations

from tests.broken_rules.table import SHARES, Break

LOCKS = "tests/chaos/test_locks.py::"
CLAIM = "tests/sessions_app/turns/test_claim.py::"
POOL = "tests/sessions_app/postgres/test_connection.py::"
BEATS = "tests/chaos/test_beats.py::"
FIRE = "tests/automations/firing/test_fire_jobs.py::"
MAILBOX = "tests/sessions_app/mailbox/test_updates.py::"
STREAMS = "tests/api/test_streams.py::"

ENGINE = (
    Break(
        rule="1.8",
        how="heartbeats wait for hints that wait for a locked table",
        file="sessions_app/turns/lock.py",
        old='    "lock_timeout": "50ms",',
        new='    "lock_timeout": "5s",',
        tests=(LOCKS + "test_a_locked_turn_table_delays_no_heartbeat_and_loses_no_hint",),
    ),
    Break(
        rule="1.8",
        how="a hint that finds the turn table locked is lost",
        file="sessions_app/turns/lock.py",
        old="        with suppress(psycopg.errors.LockNotAvailable):\n",
        new="        if True:\n",
        tests=(LOCKS + "test_a_locked_turn_table_delays_no_heartbeat_and_loses_no_hint",),
    ),
    Break(
        rule="1.8",
        how="a locked table counts as a lost lock connection",
        file="sessions_app/worker/process.py",
        old="        except psycopg.errors.LockNotAvailable:\n",
        new="        except ZeroDivisionError:\n",
        tests=(LOCKS + "test_a_locked_turn_table_delays_no_heartbeat_and_loses_no_hint",),
    ),
    Break(
        rule="10.0",
        how="a broken connection leaves the others of its pool as they are",
        file="sessions_app/postgres/connection.py",
        old="            if self.closed:\n                self._drop_idle()\n",
        new="",
        tests=(POOL + "test_one_broken_connection_of_a_trusted_pool_replaces_all_idle_ones",),
    ),
    Break(
        rule="10.0",
        how="web processes trust connections, too",
        file="sessions_app/postgres/connection.py",
        old="_trusted_for = 0.0",
        new="_trusted_for = REST_SECONDS",
        tests=(POOL + "test_a_process_that_trusts_no_connection_checks_each",),
    ),
    Break(
        rule="10.0",
        how="trusted connections are checked all the same",
        file="sessions_app/postgres/connection.py",
        old=" and not _checks_all.get():\n            return\n",
        new=":\n            pass\n",
        tests=(POOL + "test_a_trusted_connection_is_not_checked_before_its_use",),
    ),
    Break(
        rule="1.9",
        how="a result is written on a connection that broke during its call",
        file="sessions_app/turns/journal.py",
        old="        with checked():\n",
        new="        if checked:\n",
        tests=(POOL + "test_connections_that_break_in_a_model_call_do_not_repeat_it",),
    ),
    Break(
        rule="1.9",
        how="a planner keeps its connection during a model call",
        file="sessions_app/turns/engine.py",
        old="                yield\n        finally:\n            connection.close()\n",
        new="                yield\n        finally:\n            pass\n",
        tests=(POOL + "test_connections_that_break_in_a_model_call_do_not_repeat_it",),
    ),
    Break(
        rule="10.0",
        how="statements are prepared behind a transaction pooler",
        file="config/settings.py",
        old="_IS_DIRECT = ENV.database_url == DATABASE_LOCK_URL",
        new="_IS_DIRECT = bool(ENV.database_url)",
        tests=("tests/config/test_database.py::test_nothing_is_prepared_where_locks_have_another_address",),
    ),
    Break(
        rule="1.9",
        how="a planner keeps its connection after it has read live state",
        file="sessions_app/turns/engine.py",
        old="            return self._live(names)\n        finally:\n            connection.close()\n",
        new="            return self._live(names)\n        finally:\n            pass\n",
        tests=(POOL + "test_connections_that_break_in_a_model_call_do_not_repeat_it",),
    ),
    Break(
        rule="10.0",
        how="a worker goes on in one session while the user's other sessions were refused",
        file="sessions_app/turns/run.py",
        old="number, elsewhere=waiting.elsewhere",
        new="number, elsewhere=False",
        tests=(SHARES + "test_a_stay_ends_when_another_session_of_the_user_was_refused",),
    ),
    Break(
        rule="2.2",
        how="a message whose host ended as it joined is stuck",
        file="sessions_app/worker/sweep.py",
        old="            RELEASE_GUESTS.run()\n",
        new="",
        tests=(CLAIM + "test_a_message_that_joins_as_its_host_is_ended_goes_next",),
    ),
    Break(
        rule="2.2",
        how="the sweep frees messages that have joined a running turn",
        file="sessions_app/worker/sweep.py",
        old="            host.c.state != sa.literal_column(f\"'{TurnState.RUNNING}'\"),\n",
        new="",
        tests=(CLAIM + "test_the_sweep_leaves_guests_of_a_running_host",),
    ),
    Break(
        rule="4.3",
        how="a run may name a job that is not there",
        file="automations/migrations/0001_initial.py",
        old="""                "ALTER TABLE automations_runrecord ADD CONSTRAINT run_job_has_clock FOREIGN KEY (job_id)"
                " REFERENCES automations_jobclock (job_id) DEFERRABLE INITIALLY DEFERRED",
""",
        new="",
        tests=("tests/sessions_app/models/test_constraints.py::test_the_database_refuses_every_attack",),
    ),
    Break(
        rule="4.4",
        how="after a failed batch as many jobs are tried again",
        file="automations/firing/batch_size.py",
        old='among the next ones again."""\n        self.size = self._least',
        new='among the next ones again."""\n        self.size = LARGEST',
        tests=(BEATS + "test_a_failed_batch_is_followed_by_a_small_one",),
    ),
    Break(
        rule="4.4",
        how="batches grow without end",
        file="automations/firing/batch_size.py",
        old="            self.size = min(LARGEST, self.size * GROWTH)",
        new="            self.size = self.size * GROWTH",
        tests=(FIRE + "test_a_batch_grows_while_it_is_full_and_shrinks_when_slow",),
    ),
    Break(
        rule="4.4",
        how="a batch that fails as a whole is not fired one by one",
        file="automations/firing/one_by_one.py",
        old='        log.exception("batch_failed", of=name)\n',
        new='        log.exception("batch_failed", of=name)\n        raise\n',
        tests=(BEATS + "test_a_failed_batch_is_followed_by_a_small_one",),
    ),
    Break(
        rule="4.4",
        how="a fault that all jobs share switches every job off",
        file="automations/firing/one_by_one.py",
        old="if total.queued or isinstance(cause, row_errors)",
        new="if total is not None",
        tests=(BEATS + "test_a_fault_shared_by_all_jobs_sets_none_aside",),
    ),
    Break(
        rule="10.0",
        how="a beat does not end by itself when it is told to",
        file="config/beat.py",
        old="(signal.SIGTERM, signal.SIGINT)",
        new="(signal.SIGINT,)",
        tests=("tests/config/test_beat.py::test_a_beat_fires_and_ends_cleanly_when_told",),
    ),
    Break(
        rule="6.2",
        how="a turn does not see that updates wait in its mailbox",
        file="sessions_app/turns/context_statement.py",
        old="sa.exists().where(mail.c.target_id == _session.c.id, *UNREAD)",
        new="sa.exists().where(mail.c.target_id == _session.c.id, sa.false())",
        tests=(MAILBOX + "test_updates_are_shown_urgent_first_and_acknowledged_by_the_commit",),
    ),
    Break(
        rule="1.4",
        how="the journal takes steps of a worker that has lost its claim",
        file="sessions_app/turns/journal_statements.py",
        old='_turn.c.claim == sa.bindparam("claim", type_=sa.Uuid()),',
        new='sa.bindparam("claim", type_=sa.Uuid()).is_not(None),',
        tests=(CLAIM + "test_a_stale_worker_writes_nothing",),
    ),
    Break(
        rule="9.1",
        how="windows are not told that a turn was queued",
        file="sessions_app/turns/enqueue_statements.py",
        old="Statement(row.add_cte(_queued(turns)), prepared=True)",
        new="Statement(row, prepared=True)",
        tests=(STREAMS + "test_a_window_sees_a_turn_from_queue_to_end",),
    ),
)
