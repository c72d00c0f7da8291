"""How each rule of what happens in the background may be broken, and which tests must see it: as in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

MAILBOX = "tests/core/test_mailbox.py::"
DEPOSIT = "tests/core/test_deposit.py::"
DEPOSIT_RACES = "tests/core/test_deposit_races.py::"
REPLY = "tests/agent_core/test_heartbeat.py::"
HEARTBEAT = "tests/automations/test_heartbeat.py::"
HOURS = "tests/automations/test_active_hours.py::"
ISOLATED = "tests/automations/test_isolated.py::"
RETRIES = "tests/automations/test_retries.py::"
ROUTINES = "tests/automations/test_routines.py::"
TOOLS = "tests/automations/test_routine_tools.py::"
DOCUMENT = "tests/automations/test_heartbeat_apply.py::"
BAD_INPUT = "tests/api/test_bad_input.py::"
ZONES = "tests/automations/test_zone_data.py::"

BACKGROUND = (
    Break(
        rule="mailbox",
        how="a failed turn acknowledges what it was shown",
        file="sessions_app/commit.py",
        old="    if result.ending is Ending.SUCCEEDED and prepared.event_ids:",
        new="    if prepared.event_ids:",
        tests=(MAILBOX + "test_a_failed_turn_acknowledges_nothing",),
    ),
    Break(
        rule="mailbox",
        how="urgent updates wait in line",
        file="sessions_app/mailbox.py",
        old='.order_by("-priority", "id")[:MOST_EVENTS]',
        new='.order_by("id")[:MOST_EVENTS]',
        tests=(MAILBOX + "test_updates_are_shown_urgent_first_and_acknowledged_by_the_commit",),
    ),
    Break(
        rule="mailbox",
        how="the turn of an automation drains it",
        file="automations/slot_kind.py",
        old="    drains_mailbox = False",
        new="    drains_mailbox = True",
        tests=(MAILBOX + "test_automations_do_not_drain_the_mailbox",),
    ),
    Break(
        rule="mailbox",
        how="what is unread of a key stays beside the newer one",
        file="sessions_app/mailbox.py",
        old="    if _is_there(target_id):\n        same",
        new="    if not _is_there(target_id):\n        same",
        tests=(DEPOSIT + "test_an_unread_event_of_the_same_key_gives_way",),
    ),
    Break(
        rule="mailbox",
        how="what is too much for one turn is shown all the same",
        file="sessions_app/mailbox.py",
        old="        if updates and room < 0:",
        new="        if updates and room < -1_000_000:",
        tests=(DEPOSIT + "test_what_is_too_much_for_one_turn_stays_in_order_and_is_shown_in_the_end",),
    ),
    Break(
        rule="mailbox",
        how="the words of a deleted session's mail are kept",
        file="sessions_app/mailbox.py",
        old='reason=TARGET_GONE, summary="", detail="", artifacts=[], source_key=""',
        new="reason=TARGET_GONE",
        tests=(
            DEPOSIT_RACES
            + "test_mail_of_a_deleted_session_that_was_waiting_is_kept_with_its_reason_and_without_its_words",
        ),
    ),
    Break(
        rule="suppressed",
        how="the word within a sentence keeps the reply back",
        file="agent_core/heartbeat.py",
        old="    if rest == opened or _joined(rest):",
        new="    if rest == opened:",
        tests=(REPLY + "test_people_are_told_without_the_token_at_an_end",),
    ),
    Break(
        rule="suppressed",
        how="people are told of every heartbeat",
        file="automations/heartbeat.py",
        old="    elif not verdict.deliver:",
        new="    elif not text:",
        tests=(HEARTBEAT + "test_a_quiet_heartbeat_is_kept_in_its_own_session_and_nobody_hears_of_it",),
    ),
    Break(
        rule="delivered",
        how="a long reply that ends with the word is kept back",
        file="agent_core/heartbeat.py",
        old="    return Reply(deliver=len(rest) > ack_max_chars, text=rest)",
        new="    return Reply(deliver=False, text=rest)",
        tests=(REPLY + "test_people_are_told_without_the_token_at_an_end",),
    ),
    Break(
        rule="delivered",
        how="the home that a task was given is not told",
        file="automations/told.py",
        old="    return deposit(home or primary, mail, or_else=primary)",
        new="    return deposit(primary, mail)",
        tests=(HEARTBEAT + "test_a_home_that_was_given_is_told_and_one_that_is_gone_is_not",),
    ),
    Break(
        rule="hours",
        how="the last hour counts, too",
        file="automations/active_hours.py",
        old="            return self.first <= hour < self.end",
        new="            return self.first <= hour <= self.end",
        tests=(HOURS + "test_the_first_hour_counts_and_the_last_does_not",),
    ),
    Break(
        rule="hours",
        how="inline routines run at night",
        file="automations/rest.py",
        old="    if opening > now:\n",
        new="    if opening < now:\n",
        tests=(HEARTBEAT + "test_outside_the_active_hours_tasks_stay_due",),
    ),
    Break(
        rule="busy",
        how="a heartbeat is queued behind its own session's turn",
        file="automations/rest.py",
        old="    if at_work(session_id):\n        log",
        new="    if not session_id:\n        log",
        tests=(HEARTBEAT + "test_only_its_own_sessions_work_skips_a_heartbeat",),
    ),
    Break(
        rule="busy",
        how="it beats on while the model is down",
        file="automations/rest.py",
        old="first * 2 ** (down - 1)",
        new="first * 0",
        tests=(HEARTBEAT + "test_while_the_model_is_down_it_beats_less_and_less_often",),
    ),
    Break(
        rule="inline",
        how="each due task has a turn of its own",
        file="automations/inline.py",
        old="MOST_AT_ONCE = 20",
        new="MOST_AT_ONCE = 1",
        tests=(HEARTBEAT + "test_due_tasks_start_one_turn_at_once_and_share_its_outcome",),
    ),
    Break(
        rule="inline",
        how="the model is asked for the time",
        file="automations/inline.py",
        old="    plain = [run for run in attempts if run.of_job.task_type in DOES]",
        new="    plain = [run for run in attempts if run.of_job.task_type in ()]",
        tests=(HEARTBEAT + "test_a_time_reminder_asks_no_model",),
    ),
    Break(
        rule="isolated",
        how="a result is told by its first turn",
        file="automations/isolated.py",
        old="        if following is not None and result.ending is Ending.SUCCEEDED:",
        new="        if following is not None and result.ending is Ending.FAILED:",
        tests=(ISOLATED + "test_a_job_takes_several_turns_and_its_result_is_the_last_ones_answer",),
    ),
    Break(
        rule="isolated",
        how="a failure is told while attempts are left",
        file="automations/isolated.py",
        old="        if run is None or run.finished_at is not None:",
        new="        if run is None or run.pk:",
        tests=(ISOLATED + "test_a_failure_is_told_when_no_attempt_is_left_and_not_before",),
    ),
    Break(
        rule="archive",
        how="the session of an ended job stays open",
        file="sessions_app/archive.py",
        old="        state=SessionState.ARCHIVED, updated_at=Now()",
        new="        state=SessionState.OPEN, updated_at=Now()",
        tests=(
            ISOLATED + "test_a_slot_has_a_session_of_its_own_which_is_archived_and_its_home_is_told_once",
        ),
    ),
    Break(
        rule="archive",
        how="a job's old sessions are kept however many",
        file="sessions_app/prune_sessions.py",
        old="_keep > 0, _ranked.c.place > _keep",
        new="_keep > 0, _ranked.c.place > 1_000_000",
        tests=(ISOLATED + "test_archived_sessions_go_by_age_and_by_number_and_their_mail_stays",),
    ),
    Break(
        rule="again",
        how="a run is tried once more than it may be",
        file="automations/runs.py",
        old='    if run is None or run.attempt > run.snapshot.get("max_retry", 0):',
        new='    if run is None or run.attempt > run.snapshot.get("max_retry", 0) + 1:',
        tests=(RETRIES + "test_the_run_fails_when_no_attempt_is_left",),
    ),
    Break(
        rule="again",
        how="what the model refused is asked again",
        file="automations/runs.py",
        old="    return result.ending is Ending.FAILED and result.error_code not in FINAL_ERRORS",
        new="    return result.ending is Ending.FAILED",
        tests=(RETRIES + "test_a_final_error_is_not_retried_nor_is_anything_without_max_retry",),
    ),
    Break(
        rule="routines",
        how="a duplicate is told by its very letters",
        file="automations/routines.py",
        old="        if normalised(job.name) == wanted and",
        new="        if job.name == title and",
        tests=(ROUTINES + "test_a_duplicate_is_the_same_title_however_it_is_written_with_the_same_schedule",),
    ),
    Break(
        rule="routines",
        how="two that race for the last place both get it",
        file="automations/routines.py",
        old="    agent = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()",
        new="    agent = Agent.objects.filter(pk=agent_id).first()",
        tests=(ROUTINES + "test_who_adds_waits_for_another_who_adds_and_finds_the_last_place_taken",),
    ),
    Break(
        rule="routines",
        how="a background job may add routines",
        file="automations/routine_tools.py",
        old="    if kind == TurnKind.HEARTBEAT or (",
        new="    if kind in {TurnKind.HEARTBEAT, TurnKind.JOB} or (",
        tests=(TOOLS + "test_what_runs_by_schedule_is_not_offered_the_tools_and_is_refused",),
    ),
    Break(
        rule="routines",
        how="new zone data move a first firing that was given",
        file="automations/zone_data.py",
        old="        if clock.next_run_at == clock.planned_from:",
        new="        if clock.next_run_at is None:",
        tests=(ZONES + "test_a_first_firing_that_was_given_stands_and_what_follows_it_goes_by_the_new_data",),
    ),
    Break(
        rule="intents",
        how="an intent is registered by whoever reads it",
        file="automations/intents.py",
        old="mark_registered(text, line, job.pk), revision=revision)",
        new="mark_registered(text, line, job.pk))",
        tests=(TOOLS + "test_an_intent_becomes_a_routine_once",),
    ),
    Break(
        rule="intents",
        how="every routine that an agent registers is told of",
        file="automations/told.py",
        old=" or by_itself.exclude(pk=job.pk).exists():",
        new=":",
        tests=(
            TOOLS
            + "test_the_first_routine_that_an_agent_registers_by_itself_is_told_of_and_later_ones_are_not",
        ),
    ),
    Break(
        rule="document",
        how="a corrupted text disables what it does not list",
        file="automations/heartbeat_apply.py",
        old="        if parsed.parse is Parse.OK:",
        new="        if parsed.parse is not Parse.EMPTY:",
        tests=(DOCUMENT + "test_a_corrupted_text_changes_no_routine_and_is_kept_as_it_is",),
    ),
    Break(
        rule="document",
        how="a field of somebody else is dropped",
        file="automations/heartbeat_md.py",
        old="        return Task(**told, is_done=is_done, foreign=foreign)",
        new="        return Task(**told, is_done=is_done)",
        tests=(DOCUMENT + "test_what_others_wrote_into_a_task_is_kept_through_every_reading_and_writing",),
    ),
    Break(
        rule="internal",
        how="a person speaks where nobody reads",
        file="sessions_app/receive.py",
        old="    if given.kind == TurnKind.MESSAGE and session.type in INTERNAL:",
        new="    if given.kind == TurnKind.MESSAGE and session.type in ():",
        tests=(BAD_INPUT + "test_a_person_cannot_speak_into_an_internal_session",),
    ),
)
