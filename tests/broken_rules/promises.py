"""How promises to people may be broken: threads, deliveries, closures, homes, live text. As in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

UNIFIED = "tests/api/test_unified.py::"
WORKER = "tests/sessions_app/worker/test_process.py::"
RESTORED = "tests/sessions_app/retention/test_restored.py::"
HUB = "tests/api/test_hub.py::"
LEFT = "tests/automations/test_message_deliveries.py::"
HOMES = "tests/automations/routines/test_deletion.py::"
RESOURCES = "tests/api/test_resources.py::"
IMPORT = "tests/automations/nanobot_import/test_import_store.py::"
GOING_ON = "tests/sessions_app/turns/test_run.py::"
MAILBOX = "tests/sessions_app/mailbox/test_updates.py::"
BUSY = "tests/sessions_app/turns/test_receive.py::"
UNWATCHED = "tests/stories/test_unwatched.py::"
CHATS = "tests/openai_api/test_chats.py::"
ANSWERS = "tests/openai_api/test_answers.py::"
PLANNED = "tests/agent_core/planner/test_run.py::"
SHARES = "tests/sessions_app/turns/test_shares.py::"

PROMISES = (
    Break(
        rule="4.10",
        how="what a thread says itself while the mode is on is seen nowhere",
        file="sessions_app/turns/commit_statement.py",
        old='        "shown_after_seq": moved.c.shown_after_seq,\n',
        new="",
        tests=(UNIFIED + "test_a_threads_own_messages_appear_marked_in_order_while_unified",),
    ),
    Break(
        rule="9.3",
        how="the model believes that a failed delivery was said",
        file="sessions_app/memory/history.py",
        old='    if unsent := getattr(message, "unsent", ()):',
        new="    if unsent := ():",
        tests=(LEFT + "test_the_model_sees_which_answers_were_not_delivered",),
    ),
    Break(
        rule="9.3",
        how="one address is answered twice",
        file="sessions_app/deliveries/outbox.py",
        old="enumerate(places.values())",
        new="enumerate(outside)",
        tests=(UNWATCHED + "test_each_address_is_answered_once_for_several_messages",),
    ),
    Break(
        rule="4.9",
        how="what waits keeps the metadata that its chat had",
        file="sessions_app/models/session.py",
        old='    meta = after["meta"] if route.get("meta", {}) == before["meta"] else route["meta"]',
        new='    meta = route.get("meta", {})',
        tests=(LEFT + "test_scheduled_output_carries_the_chats_current_metadata",),
    ),
    Break(
        rule="4.9",
        how="a chat's metadata reaches no answer by schedule",
        file="sessions_app/models/session.py",
        old='"chat_id": self.chat_id, "meta": self.channel_meta}',
        new='"chat_id": self.chat_id, "meta": {}}',
        tests=(LEFT + "test_scheduled_output_carries_the_chats_current_metadata",),
    ),
    Break(
        rule="8.2",
        how="an imported group takes private messages",
        file="sessions_app/sessions/open.py",
        old="chat_type or chats.chat_type_of(channel, address)",
        new='chat_type or "private"',
        tests=(IMPORT + "test_a_group_is_imported_as_group_and_refuses_private_messages",),
    ),
    Break(
        rule="8.2",
        how="a chat stays private when it has become a group",
        file="sessions_app/sessions/open.py",
        old="            session.chat_type = chats.check_chat_type(chat_type)",
        new="            chats.check_chat_type(chat_type)",
        tests=(LEFT + "test_a_chat_that_becomes_a_group_takes_no_private_message",),
    ),
    Break(
        rule="3.6",
        how="a turn whose end cannot be stored is begun anew instead of closed",
        file="sessions_app/turns/run.py",
        old="    if turn.error_code == UNSTORED:",
        new="    if turn.error_code == UNSTORED and not turn.pk:",
        tests=(WORKER + "test_an_unstorable_failure_leaves_its_closure_once_storage_recovers",),
    ),
    Break(
        rule="4.4",
        how="a one-shot whose only run failed is done",
        file="automations/selectors.py",
        old='    return "failed" if had_one_run and last_status == RunState.FAILED else "done"',
        new='    return "done"',
        tests=(RESOURCES + "test_an_automations_state_follows_its_clock_and_runs",),
    ),
    Break(
        rule="4.11",
        how="a routine goes with a thread that it would lose nothing by",
        file="automations/jobs/bindings.py",
        old="        moving = set() if agent_id is not None else set(movable)",
        new="        moving: set[str] = set()",
        tests=(HOMES + "test_deleting_a_private_web_thread_moves_its_routines_to_primary",),
    ),
    Break(
        rule="3.1",
        how="a late piece of a try that was given up is shown",
        file="sessions_app/streams/running_answers.py",
        old="            if piece.of >= so_far.of:\n",
        new="            if piece:\n",
        tests=(HUB + "test_a_snapshot_holds_each_steps_latest_attempt_without_late_text",),
    ),
    Break(
        rule="9.1",
        how="the end of a turn comes before the last pieces of its answer",
        file="sessions_app/streams/running_answers.py",
        old="        return time.monotonic() >= waits_until",
        new="        return time.monotonic() < waits_until",
        tests=(HUB + "test_an_end_that_was_read_before_its_announcement_waits_for_the_last_pieces",),
    ),
    Break(
        rule="9.1",
        how="a restored database keeps the events of the server before, which windows wait for",
        file="sessions_app/retention/restored.py",
        old='"DELETE FROM {events} WHERE xid >= {_FUTURE}"',
        new='"DELETE FROM {events} WHERE xid < {_FUTURE} AND xid >= {_FUTURE}"',
        tests=(RESTORED + "test_migrate_removes_events_of_another_server_and_keeps_ours",),
    ),
    Break(
        rule="4.5",
        how="an account of slots goes back with its clock",
        file="automations/firing/due_jobs.py",
        old="sa.func.greatest(_clock.c.last_slot, given.c.last_slot)",
        new="given.c.last_slot",
        tests=(UNWATCHED + "test_resetting_a_clock_does_not_reopen_a_recorded_slot",),
    ),
    Break(
        rule="1.8",
        how="workers that are long gone are kept",
        file="sessions_app/worker/sweep.py",
        old="            FORGET.run(worker=worker_id)\n",
        new="",
        tests=(UNWATCHED + "test_the_sweep_removes_only_long_dead_workers",),
    ),
    Break(
        rule="1.8",
        how="a lock that could not be taken again at once is lost",
        file="sessions_app/worker/process.py",
        old="                self.locks.retake()\n",
        new="",
        tests=(UNWATCHED + "test_a_briefly_stolen_lock_is_retaken_at_the_next_check",),
    ),
    Break(
        rule="10.1",
        how="what became of heartbeats is not counted",
        file="automations/turn_kinds/heartbeat.py",
        old="    metrics.count(Counted.HEARTBEAT_DELIVER)\n",
        new="",
        tests=(UNWATCHED + "test_heartbeats_are_counted_as_what_became_of_them",),
    ),
    Break(
        rule="5.3",
        how="one agent's trouble holds up the routines of all",
        file="automations/firing/inline_routines.py",
        old="            return None, AFTER_A_FAULT\n",
        new="            raise\n",
        tests=(UNWATCHED + "test_one_agents_broken_routine_blocks_no_other_agent",),
    ),
    Break(
        rule="3.3",
        how="a heartbeat reads what was said in the primary session",
        file="sessions_app/turns/context.py",
        old="    seen = history.fitting_entries(read.messages, room, found)\n",
        new='    chat = Session.objects.get(agent=read.session.agent, key="unified:default")\n'
        "    seen = history.fitting_entries(read_context(chat.pk, {}).messages, room)\n",
        tests=(UNWATCHED + "test_what_is_said_in_a_chat_stays_out_of_heartbeats",),
    ),
    Break(
        rule="3.3",
        how="a person's wishes reach no prompt",
        file="sessions_app/turns/context.py",
        old="    return own if read.session.type == SessionType.JOB else read.preferences",
        new='    return own if read.session.type == SessionType.JOB else ""',
        tests=(UNWATCHED + "test_preferences_and_history_reach_the_model",),
    ),
    Break(
        rule="3.3",
        how="a planned automation is not told that it is one",
        file="sessions_app/turns/engine.py",
        old="        return _Start(request=replace(given, words=prepared.request.message))",
        new="        return _Start(request=given)",
        tests=(UNWATCHED + "test_a_planned_automation_is_shown_the_prompt_of_its_slot",),
    ),
    Break(
        rule="7.2",
        how="a look at the plan that cannot be read is asked for without end",
        file="agent_core/planner/asking.py",
        old="        for _ in range(ATTEMPTS):",
        new="        for _ in range(9 * ATTEMPTS):",
        tests=(PLANNED + "test_two_garbled_revisions_fail_visibly_and_keep_finished_work",),
    ),
    Break(
        rule="1.2",
        how="a commit locks its turn before its session",
        file="sessions_app/turns/commit_statement.py",
        old=".where(_session.c.id == _SESSION_ID).with_for_update(key_share=True)",
        new=".where(_session.c.id == _SESSION_ID)",
        tests=(GOING_ON + "test_a_commit_locks_its_session_before_its_turn",),
    ),
    Break(
        rule="2.1",
        how="a commit of one statement forgets the guests",
        file="sessions_app/turns/commit_statement.py",
        old="            sa.or_(~alone, ~_has_guests()),\n",
        new="",
        tests=(BUSY + "test_a_message_is_injected_before_the_next_model_call",),
    ),
    Break(
        rule="6.2",
        how="a commit of one statement acknowledges nothing",
        file="sessions_app/turns/commit.py",
        old="            or self.acknowledges\n",
        new="",
        tests=(MAILBOX + "test_updates_are_shown_urgent_first_and_acknowledged_by_the_commit",),
    ),
    Break(
        rule="1.2",
        how="what was meant for an ended turn reaches the next one",
        file="sessions_app/turns/lock.py",
        old="            new = Handle(session_id=handle.session_id,",
        new="            return handle\n            new = Handle(session_id=handle.session_id,",
        tests=(GOING_ON + "test_a_signal_for_an_ended_turn_does_not_reach_the_next",),
    ),
    Break(
        rule="1.2",
        how="a slot goes on with one session for ever",
        file="sessions_app/worker/process.py",
        old=" and turns < most and ",
        new=" and ",
        tests=(GOING_ON + "test_after_so_many_turns_in_a_row_it_is_the_turn_of_other_sessions",),
    ),
    Break(
        rule="1.2",
        how="a later claim that fails leaves the session without a hint",
        file="sessions_app/turns/run.py",
        old="        if is_first:\n            raise\n",
        new="        raise\n",
        tests=(GOING_ON + "test_a_failing_later_claim_ends_the_stay_and_wakes_the_session",),
    ),
    Break(
        rule="10.0",
        how="a session that finds no room after its turn waits for the sweep",
        file="sessions_app/turns/next_lane.py",
        old="    if not all(each.has_room for each in found):",
        new="    if False:",
        tests=(SHARES + "test_a_session_that_finds_no_room_after_its_turn_is_woken_by_the_next_that_ends",),
    ),
    Break(
        rule="10.0",
        how="nobody looks for room after the mark",
        file="sessions_app/turns/next_lane.py",
        old="        found += _look(session_id)\n",
        new="",
        tests=(SHARES + "test_a_place_that_becomes_free_while_a_session_is_marked_is_not_lost",),
    ),
    Break(
        rule="10.0",
        how="a session is marked only if there is no room at that moment",
        file="sessions_app/turns/next_lane.py",
        old="        _turn.c.share_of.is_(None),\n",
        new="        _turn.c.share_of.is_(None),\n        ~owners.has_room(owner_of_session(), _turn.c.lane),\n",
        tests=(SHARES + "test_a_place_that_is_free_only_while_a_session_is_marked_leaves_the_mark",),
    ),
    Break(
        rule="10.0",
        how="a person's message waits behind the automations that were refused before it",
        file="sessions_app/turns/next_lane.py",
        old="        .order_by(refused.c.lane.desc(), refused.c.id)",
        new="        .order_by(refused.c.id)",
        tests=(
            "tests/sessions_app/turns/test_claim.py::test_a_turn_that_ends_wakes_a_persons_message_first",
        ),
    ),
    Break(
        rule="3.5",
        how="a program's yes is consent",
        file="sessions_app/turns/consent.py",
        old='    return answer != "yes" or not turn.metadata.get(BY_PROGRAM)',
        new="    return True",
        tests=(
            ANSWERS + "test_a_yes_in_the_chat_is_no_consent_but_one_to_our_own_api_is",
            "tests/automations/mcp_server/test_questions.py::test_words_of_a_program_are_never_consent",
            "tests/api/test_ag_ui.py::test_a_yes_that_is_only_said_is_no_consent",
        ),
    ),
    Break(
        rule="9.4",
        how="an edited history of a program goes on in the session that it left",
        file="sessions_app/sessions/client_chats.py",
        old="    return rows.exclude(Exists(later))\n",
        new="    return rows\n",
        tests=(CHATS + "test_an_edited_message_begins_a_branch",),
    ),
    Break(
        rule="9.4",
        how="a message that a program repeats becomes another turn",
        file="sessions_app/sessions/client_chats.py",
        old="(given.repeats or (bool(given.key) and not latest.delivered))",
        new="False",
        tests=(
            CHATS + "test_a_repeated_request_gets_the_turn_of_the_first",
            CHATS + "test_concurrent_first_requests_of_a_chat_make_one_session",
        ),
    ),
    Break(
        rule="9.4",
        how="what an automation said is told again with each answer",
        file="sessions_app/sessions/client_answers.py",
        old="            row.told = told\n",
        new="",
        tests=(ANSWERS + "test_an_automations_answer_comes_first_in_the_next_answer_and_once",),
    ),
)
