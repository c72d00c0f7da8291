"""How each rule of automations in sessions may be broken, and which tests must see it.

`rule` is the number of a rule (tests/rules.py). Breaks of other parts are in the modules beside this one.
`old` stands exactly once in `file`; `new` breaks the rule. The tests bear the mark of the rule.
"""

from __future__ import annotations

from dataclasses import dataclass

MAIN = "tests/stories/test_main_job.py::"
TOOL = "tests/automations/tools/test_cron.py::"
RETRIES = "tests/automations/firing/test_retries.py::"
BOUND = "tests/automations/turn_kinds/test_bound.py::"
SENDING = "tests/sessions_app/deliveries/test_send.py::"
EDIT = "tests/automations/jobs/test_edit.py::"
SKIP = "tests/automations/jobs/test_skip.py::"
DELETE = "tests/sessions_app/sessions/test_delete.py::"
PROPERTY = (
    "tests/properties/test_sessions_and_automations.py::"
    "test_every_invariant_holds_whatever_happens_in_whatever_order"
)
BUSY = "tests/sessions_app/turns/test_receive.py::"
RACES = "tests/sessions_app/sessions/test_delete_races.py::"
UNIFIED = "tests/api/test_unified.py::"
LEGACY = "tests/automations/turn_kinds/test_legacy.py::"
DELIVERY = "tests/automations/turn_kinds/test_legacy_delivery.py::"
DREAM = "tests/automations/turn_kinds/test_dream.py::"
IMPORT = "tests/automations/nanobot_import/test_import_store.py::"
PREVIEW = "tests/api/test_previews.py::"
INACTIVE = "tests/sessions_app/test_owners.py::"
SHARES = "tests/sessions_app/turns/test_shares.py::"


@dataclass(frozen=True, kw_only=True)
class Break:
    """One way to break one rule."""

    rule: str
    how: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


BREAKS = (
    Break(
        rule="1.6",
        how="a turn that ends leaves the next of its session to the sweep",
        file="sessions_app/turns/run.py",
        old="    for each in next_lane(session_id):",
        new="    for each in []:",
        tests=("tests/sessions_app/worker/test_process.py::test_a_turns_end_starts_the_sessions_next_turn",),
    ),
    Break(
        rule="4.1",
        how="an automation's turn sees no history",
        file="sessions_app/turns/context.py",
        old="    session = turn.session = read.session\n",
        new="    read = replace(read, messages=[]) if turn.origin_run else read\n"
        "    session = turn.session = read.session\n",
        tests=(MAIN + "test_an_automation_and_its_session_share_one_history",),
    ),
    Break(
        rule="4.8",
        how="the answer of an automation is not kept",
        file="sessions_app/turns/commit_messages.py",
        old="        if entry.content.strip() or entry.calls or entry.results:\n            yield entry",
        new="        if not result.reply.strip():\n            yield entry",
        tests=(MAIN + "test_an_automation_and_its_session_share_one_history",),
    ),
    Break(
        rule="4.1",
        how="a job with legacy fields counts as bound",
        file="automations/models/category.py",
        old="    if job.session_id is not None and not legacy:",
        new="    if job.session_id is not None:",
        tests=(BOUND + "test_the_category_of_a_job_is_decided_by_its_fields",),
    ),
    Break(
        rule="4.1",
        how="a job named dream is taken for a system job",
        file="automations/models/category.py",
        old="    if job.kind == JobKind.SYSTEM_EVENT or job.pk in RESERVED_IDS:",
        new="    if job.kind == JobKind.SYSTEM_EVENT or job.pk in RESERVED_IDS or job.name in RESERVED_IDS:",
        tests=(BOUND + "test_the_category_of_a_job_is_decided_by_its_fields",),
    ),
    Break(
        rule="4.2",
        how="an automation may create automations",
        file="sessions_app/turns/kinds.py",
        old="    interactive = False",
        new="    interactive = True",
        tests=(TOOL + "test_only_a_persons_message_may_create_automations",),
    ),
    Break(
        rule="4.8",
        how="the prompt goes into the history",
        file="sessions_app/turns/kinds.py",
        old="    replays_model_content = False",
        new="    replays_model_content = True",
        tests=(BOUND + "test_the_history_holds_the_readable_trigger_and_never_the_prompt",),
    ),
    Break(
        rule="4.8",
        how="the trigger is not marked as one",
        file="automations/turn_kinds/slot.py",
        old="            BY_AUTOMATION: True,\n",
        new="",
        tests=(BOUND + "test_the_history_holds_the_readable_trigger_and_never_the_prompt",),
    ),
    Break(
        rule="4.8",
        how="the answer does not say where it comes from",
        file="sessions_app/turns/commit_messages.py",
        old='            metadata["source"] = trigger.source',
        new="            pass",
        tests=(BOUND + "test_the_history_holds_the_readable_trigger_and_never_the_prompt",),
    ),
    Break(
        rule="4.9",
        how="an automation answers where the session was opened",
        file="sessions_app/models/session.py",
        old="        if self.last_route:\n            return dict(self.last_route)\n",
        new="",
        tests=(BOUND + "test_the_answer_goes_where_a_person_last_wrote",),
    ),
    Break(
        rule="4.9",
        how="an automation answers on the web until a person has written",
        file="sessions_app/models/session.py",
        old="        if self.channel and self.chat_id:\n            return self.own_route\n",
        new="",
        tests=(
            BOUND + "test_the_answer_goes_where_a_person_last_wrote",
            SENDING + "test_automations_and_scheduled_messages_are_delivered_before_any_person_wrote",
        ),
    ),
    Break(
        rule="4.9",
        how="a session is opened on a channel that nothing here serves",
        file="sessions_app/sessions/open.py",
        old="    elif not unserved or channel in channels.known():",
        new="    elif channel in channels.known():",
        tests=(SENDING + "test_an_unserved_channel_or_address_is_refused_when_set",),
    ),
    Break(
        rule="4.9",
        how="nobody warns of a route that lost its sender",
        file="automations/jobs/explain.py",
        old="        *undeliverable(job.session),\n",
        new="",
        tests=("tests/automations/jobs/test_explain.py::test_a_route_that_lost_its_sender_is_warned_of",),
    ),
    Break(
        rule="4.9",
        how="an automation's turn moves the route",
        file="sessions_app/turns/commit.py",
        old="        route=json.dumps(end.route) if by_person and end.route is not None else None,",
        new='        route=json.dumps(turn.metadata.get("route", {"channel": "elsewhere"})),',
        tests=(BOUND + "test_the_answer_goes_where_a_person_last_wrote",),
    ),
    Break(
        rule="4.8",
        how="a session takes its title from a trigger",
        file="sessions_app/turns/commit.py",
        old='one_line(turn.content, TITLE_LENGTH) if by_person else "",',
        new="one_line(turn.content, TITLE_LENGTH),",
        tests=(PREVIEW + "test_a_session_title_comes_from_a_person_not_an_automation",),
    ),
    Break(
        rule="4.8",
        how="a preview shows a trigger",
        file="sessions_app/turns/session_reads.py",
        old=".exclude(metadata__has_key=BY_AUTOMATION)",
        new="",
        tests=(PREVIEW + "test_a_preview_skips_triggers_and_what_people_do_not_see",),
    ),
    Break(
        rule="4.4",
        how="a run is done when its turn starts",
        file="automations/runs/statements.py",
        old="values(state=running, started_at=sa.func.now())",
        new="values(state='succeeded', started_at=sa.func.now(), finished_at=sa.func.now())",
        tests=(BOUND + "test_a_run_is_queued_then_running_then_follows_its_turn",),
    ),
    Break(
        rule="4.4",
        how="a turn ends without its run",
        file="sessions_app/turns/commit_statement.py",
        old="        written.append(run_parts().end(ended))\n",
        new="        pass\n",
        tests=(BOUND + "test_a_run_is_queued_then_running_then_follows_its_turn",),
    ),
    Break(
        rule="4.7",
        how="the turn of an earlier attempt writes the run of a later one",
        file="automations/runs/statements.py",
        old="found.c.run_id, _run.c.attempt == found.c.attempt\n",
        new="found.c.run_id\n",
        tests=(RETRIES + "test_an_earlier_attempts_turn_cannot_close_a_later_attempt",),
    ),
    Break(
        rule="4.4",
        how="a failed turn is a run that succeeded",
        file="automations/runs/record.py",
        old="    Ending.FAILED: RunState.FAILED,",
        new="    Ending.FAILED: RunState.SUCCEEDED,",
        tests=(BOUND + "test_a_run_is_queued_then_running_then_follows_its_turn",),
    ),
    Break(
        rule="1.3",
        how="two turns of a session at once",
        file="sessions_app/turns/claim.py",
        old="        started.scalar_subquery(),\n        aged",
        new="        aged",
        tests=(BOUND + "test_an_automation_for_a_busy_session_waits_and_shows_pending",),
    ),
    Break(
        rule="2.3",
        how="an automation is injected into the running turn",
        file="sessions_app/turns/tool_calls.py",
        old="                    kind=TurnKind.MESSAGE,\n                    on_busy=OnBusy.INJECT,\n",
        new="",
        tests=(BOUND + "test_a_running_model_never_sees_an_automation_that_came_meanwhile",),
    ),
    Break(
        rule="1.3",
        how="an automation goes before a person",
        file="sessions_app/turns/claim.py",
        old="        sa.select(people.c.id).scalar_subquery(),\n        sa.select(by_slot.c.id).scalar_subquery(),",
        new="        sa.select(by_slot.c.id).scalar_subquery(),\n        sa.select(people.c.id).scalar_subquery(),",
        tests=(BUSY + "test_people_precede_slots_unless_a_slot_waited_too_long",),
    ),
    Break(
        rule="1.3",
        how="a busy session's automation does not show",
        file="automations/selectors.py",
        old="        pending=Exists(runs.filter(state=RunState.QUEUED)),",
        new="        pending=Exists(runs.filter(state=RunState.SKIPPED)),",
        tests=(BOUND + "test_an_automation_for_a_busy_session_waits_and_shows_pending",),
    ),
    Break(
        rule="4.8",
        how="the run does not keep the prompt",
        file="sessions_app/turns/context.py",
        old="trigger.template, trigger.model_content",
        new="trigger.template, trigger.content",
        tests=(BOUND + "test_the_run_keeps_the_prompt_whose_hash_the_history_has",),
    ),
    Break(
        rule="3.6",
        how="an empty answer leaves nothing",
        file="sessions_app/turns/kinds.py",
        old='    Ending.SUCCEEDED: "Finished with no output.",',
        new='    Ending.SUCCEEDED: "",',
        tests=(BOUND + "test_every_automation_that_started_leaves_a_closure_that_people_see",),
    ),
    Break(
        rule="3.6",
        how="a failure tells people the exception",
        file="sessions_app/turns/kinds.py",
        old='error=result.error_text or "an internal error."',
        new='error=result.error_detail or "an internal error."',
        tests=(BOUND + "test_every_automation_that_started_leaves_a_closure_that_people_see",),
    ),
    Break(
        rule="4.11",
        how="a session with automations is deleted without asking",
        file="automations/jobs/bindings.py",
        old="        return tuple(Blocker(id=job.pk, name=job.name, enabled=job.enabled) for job in jobs)",
        new="        return ()",
        tests=(BOUND + "test_a_session_with_automations_is_deleted_in_two_steps",),
    ),
    Break(
        rule="4.11",
        how="a disabled automation is not in the way",
        file="automations/jobs/bindings.py",
        old='        jobs = CronJob.objects.filter(_of_session(session_id)).order_by("created_at", "id")',
        new='        jobs = CronJob.objects.filter(_of_session(session_id), enabled=True).order_by("created_at", "id")',
        tests=(DELETE + "test_disabled_automations_block_deletion_and_queued_runs_are_deleted",),
    ),
    Break(
        rule="4.11",
        how="a job bound after the look is deleted without asking",
        file="sessions_app/sessions/delete.py",
        old="            if ids and not with_dependents:",
        new="            if ids and with_dependents is None:",
        tests=(RACES + "test_a_job_bound_after_the_look_blocks_the_delete",),
    ),
    Break(
        rule="4.11",
        how="a delete that gives up opens what another is deleting",
        file="sessions_app/sessions/delete.py",
        old="Session.objects.filter(pk__in=session_ids, deleting_since=since)",
        new="Session.objects.filter(pk__in=session_ids)",
        tests=(RACES + "test_a_timed_out_delete_does_not_undo_another_delete",),
    ),
    Break(
        rule="4.11",
        how="a delete that was taken for dead goes on",
        file="sessions_app/sessions/delete.py",
        old="    if any(session.state != SessionState.DELETING for session in sessions):",
        new="    if not sessions:",
        tests=(RACES + "test_a_delete_presumed_dead_deletes_nothing_when_it_resumes",),
    ),
    Break(
        rule="4.11",
        how="the clocks of an agent's legacy jobs are locked after its sessions",
        file="automations/jobs/bindings.py",
        old="        if agent_id is not None:  # its legacy and system jobs, too",
        new="        if agent_id == -1:",
        tests=(RACES + "test_an_agent_delete_removes_legacy_jobs_even_while_beat_fires",),
    ),
    Break(
        rule="4.11",
        how="a turn that was being claimed while the session closed is not asked to end",
        file="sessions_app/sessions/delete.py",
        old="                _cancel_running("
        "Turn.objects.filter(session_id=session_id, cancel_requested_at__isnull=True))",
        new="                connection.close()",
        tests=(
            "tests/sessions_app/sessions/test_delete_at_work.py::test_a_turn_claimed_while_the_session_closes_is_also_stopped",
        ),
    ),
    Break(
        rule="4.11",
        how="a delivery that was not sent waits for ever",
        file="sessions_app/deliveries/outbox.py",
        old='    deliveries.close("session_deleted")',
        new='    deliveries.none().close("session_deleted")',
        tests=(RACES + "test_deliveries_outlive_their_session_and_what_was_not_sent_is_closed",),
    ),
    Break(
        rule="4.10",
        how="what is said in a thread stays there",
        file="sessions_app/turns/receive.py",
        old="    if entered.target_id == entered.session.pk and not exclusive:",
        new="    if not exclusive:",
        tests=(UNIFIED + "test_thread_messages_run_in_the_primary_and_answer_the_thread",),
    ),
    Break(
        rule="4.10",
        how="the answer goes where the primary session was opened",
        file="sessions_app/turns/receive.py",
        old="given.route or entered.session.own_route",
        new="given.route or session.own_route",
        tests=(UNIFIED + "test_thread_messages_run_in_the_primary_and_answer_the_thread",),
    ),
    Break(
        rule="4.10",
        how="a thread shows its own automations only",
        file="automations/selectors.py",
        old="    return automations(user).filter(session_id__in={session_id, shown_id(user, session_id)})",
        new="    return automations(user).filter(session_id=session_id)",
        tests=(UNIFIED + "test_threads_show_the_primarys_content_only_in_unified_mode",),
    ),
    Break(
        rule="4.10",
        how="an automation made in a thread is bound to it",
        file="automations/jobs/edit.py",
        old="        return create_job(replace(given, session_id=enter(given.session_id).target_id))",
        new="        return create_job(replace(given, session_id=enter(given.session_id).session.pk))",
        tests=(UNIFIED + "test_new_thread_automations_bind_to_the_primary_older_ones_stay",),
    ),
    Break(
        rule="4.10",
        how="the automations of the primary session are in the way of deleting a thread",
        file="sessions_app/sessions/dependents.py",
        old="    return tuple(\n"
        "        blocker\n"
        "        for dependent in _dependents\n"
        "        for blocker in dependent.blockers(session_id, with_agent=with_agent)\n",
        new="    from sessions_app.turns.threads import behind\n\n"
        "    return tuple(\n"
        "        blocker\n"
        "        for dependent in _dependents\n"
        "        for each in {session_id, *behind([session_id]).values()}\n"
        "        for blocker in dependent.blockers(each, with_agent=with_agent)\n",
        tests=(UNIFIED + "test_deleting_a_thread_checks_and_removes_only_its_own_automations",),
    ),
    Break(
        rule="4.10",
        how="a Telegram chat is unified, too",
        file="sessions_app/turns/threads.py",
        old="        channel=WEB,\n",
        new="",
        tests=(UNIFIED + "test_sessions_of_other_channels_stay_their_own",),
    ),
    Break(
        rule="4.10",
        how="a key is forgotten by a toggle",
        file="sessions_app/turns/receive.py",
        old="Turn.objects.filter(said_here | said_behind)",
        new="Turn.objects.filter(said_here)",
        tests=(UNIFIED + "test_a_repeated_message_is_one_turn_despite_mode_toggles",),
    ),
    Break(
        rule="4.10",
        how="what one thread said is taken for what another says",
        file="sessions_app/turns/receive.py",
        old='    return f"{entered_id.hex}:{hashlib.sha256(key.encode()).hexdigest()}"',
        new="    return hashlib.sha256(key.encode()).hexdigest()",
        tests=(UNIFIED + "test_two_threads_of_one_session_may_use_the_same_keys",),
    ),
    Break(
        rule="4.10",
        how="an open stream looks where it points only when it is told of a toggle",
        file="sessions_app/streams/hub.py",
        old="        self._follow([each for group in groups for each in group])",
        new="        self._follow([each for group in groups for each in group if each.behind])",
        tests=("tests/api/test_hub.py::test_primary_events_since_the_toggle_are_not_skipped_for_threads",),
    ),
    Break(
        rule="4.12",
        how="a run runs what the job says now",
        file="automations/turn_kinds/slot.py",
        old="        content=f\"Scheduled automation triggered: {about['automation_name']}\\n\\n{turn.content}\",",
        new="        content=f\"Scheduled automation triggered: {about['automation_name']}\\n\\n\"\n"
        "        + runs.RunRecord.objects.get(pk=turn.origin_run).job.message,",
        tests=(BOUND + "test_an_edit_is_not_retroactive",),
    ),
    Break(
        rule="4.5",
        how="a skip reads the clock without a lock, beside firing",
        file="automations/jobs/edit.py",
        old="    clock = JobClock.objects.select_for_update(no_key=True).filter(job_id=job_id).first()",
        new="    clock = JobClock.objects.filter(job_id=job_id).first()",
        tests=(SKIP + "test_each_slot_is_either_skipped_or_run_when_both_race",),
    ),
    Break(
        rule="4.5",
        how="a new plan forgets what a person has skipped",
        file="automations/jobs/clock.py",
        old="    ends = (accounted_to(clock.last_slot, now), clock.skipped_to, pause)",
        new="    ends = (accounted_to(clock.last_slot, now), pause)",
        tests=(SKIP + "test_no_new_plan_brings_a_skipped_slot_back",),
    ),
    Break(
        rule="4.5",
        how="paused_until does not hold back the next slot",
        file="automations/jobs/clock.py",
        old="    pause = clock.paused_until and clock.paused_until - TICK",
        new="    pause = None",
        tests=("tests/automations/jobs/test_clock.py::test_a_pause_ends_with_the_first_slot_after_it",),
    ),
    Break(
        rule="4.5",
        how="an edit forgets the slots that had come",
        file="automations/jobs/clock.py",
        old="    record_gap(job, gap_between(plan.slots, first, last, GapReason.EDITED))",
        new="    assert last",
        tests=(EDIT + "test_slots_due_before_an_edit_are_recorded_as_skipped",),
    ),
    Break(
        rule="4.5",
        how="slots that are caught up are counted from the wrong end",
        file="automations/jobs/clock.py",
        old="    after = now if last is None else max(now, last)",
        new="    after = last or now",
        tests=(PROPERTY,),
    ),
    Break(
        rule="1.4",
        how="a stale worker may end a turn",
        file="sessions_app/turns/commit_statement.py",
        old='            _turn.c.claim == sa.bindparam("claim", type_=sa.Uuid()),\n',
        new="",
        tests=("tests/sessions_app/turns/test_claim.py::test_a_stale_worker_writes_nothing",),
    ),
    Break(
        rule="1.2",
        how="a worker that stops keeps the locks of its claim",
        file="sessions_app/turns/claim.py",
        old="LARGEST_CONTEXT = 50_000",
        new="LARGEST_CONTEXT = 500_000_000",
        tests=(
            "tests/sessions_app/turns/test_claim.py::test_a_claim_is_committed_though_its_worker_reads_no_answer",
        ),
    ),
    Break(
        rule="1.2",
        how="a resumed turn is prepared from what was stored before its claim waited for a pending write",
        file="sessions_app/turns/claim.py",
        old="claimed.c.attempt == 1, ",
        new="",
        tests=(
            "tests/sessions_app/turns/test_claim.py::test_a_resumed_turn_reads_what_its_lost_worker_wrote",
        ),
    ),
    Break(
        rule="1.4",
        how="a turn that has ended is ended again by its own claim",
        file="sessions_app/turns/commit_statement.py",
        old="            _turn.c.state == sa.literal_column(f\"'{TurnState.RUNNING}'\"),\n            sa.or_(~alone",
        new="            sa.or_(~alone",
        tests=("tests/sessions_app/turns/test_claim.py::test_a_turn_ends_once_though_its_claim_stays",),
    ),
    Break(
        rule="4.7",
        how="a run that waits for a retry does not give way",
        file="automations/firing/job_batch.py",
        old="        if runs and row.retrying:",
        new="        if runs and row.retrying > 9:",
        tests=("tests/automations/firing/test_retries.py::test_the_next_slot_cancels_a_pending_retry",),
    ),
    Break(
        rule="4.1",
        how="what waits in a deleted internal session waits for ever",
        file="automations/jobs/bindings.py",
        old="RunRecord.objects.filter(session_id__in=session_ids)",
        new="RunRecord.objects.filter(session_id__in=[])",
        tests=(LEGACY + "test_the_next_run_replaces_a_deleted_internal_session",),
    ),
    Break(
        rule="4.1",
        how="what is not worth telling is delivered",
        file="automations/turn_kinds/legacy.py",
        old='                withheld="" if result.verdict.notify else result.verdict.reason,',
        new='                withheld="",',
        tests=(DELIVERY + "test_an_answer_with_nothing_new_is_withheld_with_a_reason",),
    ),
    Break(
        rule="4.1",
        how="a judge in trouble keeps the answer back",
        file="agent_core/turn/judge.py",
        old="    return Verdict(notify=True,",
        new="    return Verdict(notify=False,",
        tests=(DELIVERY + "test_a_judge_in_trouble_keeps_nothing_back",),
    ),
    Break(
        rule="4.1",
        how="the answers of automations are judged, too",
        file="sessions_app/turns/kinds.py",
        old='        """Return the task against which the reply is judged before the commit;'
        ' None: it is not judged."""',
        new="        return turn.content",
        tests=(DELIVERY + "test_answers_of_automations_and_people_are_neither_judged_nor_delivered",),
    ),
    Break(
        rule="9.3",
        how="a failed or silent run is judged, too",
        file="automations/turn_kinds/legacy.py",
        old="        answered = result.ending is Ending.SUCCEEDED and result.reply.strip()",
        new="        answered = True",
        tests=(DELIVERY + "test_nothing_is_judged_or_handed_over_when",),
    ),
    Break(
        rule="6.8",
        how="a dream writes over a person's edit",
        file="automations/turn_kinds/dream.py",
        old=', revision=basis["revision"])',
        new=")",
        tests=(DREAM + "test_a_persons_concurrent_edit_wins_and_nothing_is_lost",),
    ),
    Break(
        rule="6.8",
        how="any answer replaces MEMORY.md",
        file="automations/turn_kinds/dream.py",
        old="        check_new_memory(text, before.content.strip())",
        new="        pass",
        tests=(DREAM + "test_an_unusable_answer_leaves_memory_unchanged",),
    ),
    Break(
        rule="6.8",
        how="an answer that refuses replaces MEMORY.md",
        file="automations/turn_kinds/dream.py",
        old="    if _REFUSAL.match(text) and not _REFUSAL.match(before):",
        new="    if not text:",
        tests=(DREAM + "test_answers_that_refuse_shrink_or_change_marks_are_rejected",),
    ),
    Break(
        rule="6.8",
        how="an answer may change the marks of MEMORY.md",
        file="automations/turn_kinds/dream.py",
        old="    if not set(had) <= set(has) or len(has) > len(had):",
        new="    if not text:",
        tests=(DREAM + "test_answers_that_refuse_shrink_or_change_marks_are_rejected",),
    ),
    Break(
        rule="6.8",
        how="an answer may leave out most of MEMORY.md",
        file="automations/turn_kinds/dream.py",
        old="    if len(text) < len(before) * LEAST_KEPT:",
        new="    if not text:",
        tests=(DREAM + "test_answers_that_refuse_shrink_or_change_marks_are_rejected",),
    ),
    Break(
        rule="6.8",
        how="a dream is told to work like a job",
        file="automations/turn_kinds/dream.py",
        old="    strategy = strategies.DREAM",
        new='    strategy = ""',
        tests=(DREAM + "test_task_states_go_into_memory_and_the_next_turns_prompt",),
    ),
    Break(
        rule="6.8",
        how="what MEMORY.md said before is gone",
        file="sessions_app/agents/documents.py",
        old="    document_revisions.keep_revision(document)\n",
        new="",
        tests=(DREAM + "test_earlier_revisions_of_a_document_can_be_read_and_restored",),
    ),
    Break(
        rule="6.8",
        how="a dream reads its own history",
        file="automations/turn_kinds/dream.py",
        old="    trigger_only = True",
        new="    trigger_only = False",
        tests=(DREAM + "test_a_dream_gets_no_history_and_no_tools",),
    ),
    Break(
        rule="4.1",
        how="two imports at once do not wait for each other",
        file="automations/nanobot_import/import_store.py",
        old="            agent = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()",
        new="            agent = Agent.objects.filter(pk=agent_id).first()",
        tests=(IMPORT + "test_an_import_waits_for_another_one_of_its_agent",),
    ),
    Break(
        rule="4.1",
        how="a job with a channel is bound all the same",
        file="automations/nanobot_import/store_job.py",
        old="    legacy = any(set_fields) or ",
        new="    legacy = ",
        tests=(IMPORT + "test_the_category_follows_the_rule",),
    ),
    Break(
        rule="10.0",
        how="the slots of an inactive owner are fired",
        file="automations/firing/job_batch.py",
        old="    if not facts.owner_is_active:",
        new="    if False:",
        tests=(INACTIVE + "test_every_kind_of_job_is_skipped_with_the_reason",),
    ),
    Break(
        rule="10.0",
        how="what runs for an inactive owner goes on",
        file="sessions_app/worker/sweep.py",
        old="            stopped = CANCEL_INACTIVE.all(without_model=kinds_without_model())\n",
        new="",
        tests=(INACTIVE + "test_running_turns_are_cancelled_and_queued_ones_resume_on_reactivation",),
    ),
    Break(
        rule="10.0",
        how="beat looks ten times a second at what nobody may have done",
        file="automations/firing/inline_routines.py",
        old="default=INACTIVE_OWNERS_WAIT",
        new="default=SHORTEST_WAIT",
        tests=(INACTIVE + "test_an_inline_routine_stays_due_without_beat_looping",),
    ),
    Break(
        rule="10.0",
        how="claims of one user do not wait for one another",
        file="sessions_app/migrations/0001_initial.py",
        old="  PERFORM pg_advisory_xact_lock(hashtextextended('rondo:share:' || owner, 0));\n",
        new="",
        tests=(SHARES + "test_claims_that_race_never_go_beyond_the_bound",),
    ),
    Break(
        rule="1.7",
        how="a message behind another one in a long transaction sends no hint",
        file="sessions_app/turns/receive.py",
        old="    if connection.in_atomic_block or not turn.is_behind:\n",
        new="    if not turn.is_behind:\n",
        tests=("tests/sessions_app/test_hints.py::test_a_message_behind_another_one_sends_no_hint",),
    ),
    Break(
        rule="1.7",
        how="a message behind an injected one sends no hint",
        file="sessions_app/turns/enqueue_statements.py",
        old="        ahead.c.host_id.is_(None),\n",
        new="",
        tests=("tests/sessions_app/test_hints.py::test_a_message_behind_another_one_sends_no_hint",),
    ),
    Break(
        rule="10.0",
        how="a refused turn is not marked",
        file="sessions_app/turns/next_lane.py",
        old="    .values(share_of=owner_of_session())\n",
        new="    .values(share_of=sa.null())\n",
        tests=(SHARES + "test_a_refused_claim_wakes_nobody_until_there_is_room",),
    ),
)
