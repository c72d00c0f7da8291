"""How each rule of automations in sessions may be broken, and which tests must see it.

`rule` is a row of docs/session-rules.md; those of its other tables are in background.py, planner.py and messages.py.
`old` stands exactly once in `file`; `new` breaks the rule. The tests are those that the row names.
"""

from __future__ import annotations

from dataclasses import dataclass

MAIN = "tests/core/test_main_job.py::"
TOOL = "tests/automations/test_cron_tool.py::"
BOUND = "tests/automations/test_bound.py::"
EDIT = "tests/automations/test_edit.py::"
DELETE = "tests/core/test_delete.py::"
PROPERTY = (
    "tests/properties/test_sessions_and_automations.py::"
    "test_every_invariant_holds_whatever_happens_in_whatever_order"
)
BUSY = "tests/core/test_busy.py::"
RACES = "tests/core/test_delete_races.py::"
UNIFIED = "tests/api/test_unified.py::"
LEGACY = "tests/automations/test_legacy.py::"
DELIVERY = "tests/automations/test_legacy_delivery.py::"
DREAM = "tests/automations/test_dream.py::"
IMPORT = "tests/automations/test_import.py::"
PREVIEW = "tests/api/test_previews.py::"


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
        rule="memory",
        how="an automation's turn sees no history",
        file="sessions_app/context.py",
        old="            history=() if kind.alone else _history(session),",
        new="            history=() if kind.alone or turn.origin_run else _history(session),",
        tests=(MAIN + "test_an_automation_is_a_turn_that_knows_the_session_and_that_the_session_knows",),
    ),
    Break(
        rule="turn",
        how="the answer of an automation is not kept",
        file="sessions_app/commit.py",
        old="        if entry.content.strip() or entry.calls or entry.results:\n            yield entry",
        new="        if not result.reply.strip():\n            yield entry",
        tests=(MAIN + "test_an_automation_is_a_turn_that_knows_the_session_and_that_the_session_knows",),
    ),
    Break(
        rule="category",
        how="a job with legacy fields counts as bound",
        file="automations/jobs.py",
        old="    if job.session_id is not None and not legacy:",
        new="    if job.session_id is not None:",
        tests=(BOUND + "test_the_category_of_a_job_is_decided_by_its_fields",),
    ),
    Break(
        rule="category",
        how="a job named dream is taken for a system job",
        file="automations/jobs.py",
        old="    if job.kind == JobKind.SYSTEM_EVENT or job.pk in RESERVED_IDS:",
        new="    if job.kind == JobKind.SYSTEM_EVENT or job.pk in RESERVED_IDS or job.name in RESERVED_IDS:",
        tests=(BOUND + "test_the_category_of_a_job_is_decided_by_its_fields",),
    ),
    Break(
        rule="creation",
        how="an automation may create automations",
        file="automations/slot_kind.py",
        old="    interactive = False",
        new="    interactive = True",
        tests=(TOOL + "test_only_a_persons_message_may_create_automations",),
    ),
    Break(
        rule="trigger",
        how="the prompt goes into the history",
        file="automations/slot_kind.py",
        old="    replays_model_content = False",
        new="    replays_model_content = True",
        tests=(BOUND + "test_the_history_holds_the_readable_trigger_and_never_the_prompt",),
    ),
    Break(
        rule="trigger",
        how="the trigger is not marked as one",
        file="automations/slot_kind.py",
        old='            "_automation_turn": True,\n',
        new="",
        tests=(BOUND + "test_the_history_holds_the_readable_trigger_and_never_the_prompt",),
    ),
    Break(
        rule="source",
        how="the answer does not say where it comes from",
        file="sessions_app/commit.py",
        old='        marks["source"] = prepared.trigger.source',
        new="        pass",
        tests=(BOUND + "test_the_history_holds_the_readable_trigger_and_never_the_prompt",),
    ),
    Break(
        rule="route",
        how="an automation answers where the session was opened",
        file="automations/bound.py",
        old='    last = Session.objects.values_list("last_route", flat=True).get(pk=session_id)',
        new="    last = None",
        tests=(BOUND + "test_the_answer_goes_where_a_person_last_wrote",),
    ),
    Break(
        rule="route",
        how="an automation's turn moves the route",
        file="sessions_app/commit.py",
        old="        route=json.dumps(route) if by_person and route is not None else None,",
        new='        route=json.dumps(turn.metadata.get("route", {"channel": "elsewhere"})),',
        tests=(BOUND + "test_the_answer_goes_where_a_person_last_wrote",),
    ),
    Break(
        rule="title",
        how="a session takes its title from a trigger",
        file="sessions_app/commit.py",
        old='one_line(turn.content, TITLE_LENGTH) if by_person else "",',
        new="one_line(turn.content, TITLE_LENGTH),",
        tests=(PREVIEW + "test_an_automation_gives_a_session_no_title_and_a_person_does",),
    ),
    Break(
        rule="title",
        how="a preview shows a trigger",
        file="sessions_app/selectors.py",
        old='.exclude(metadata__has_key="_automation_turn")',
        new="",
        tests=(PREVIEW + "test_a_preview_skips_triggers_and_what_people_do_not_see",),
    ),
    Break(
        rule="outcome",
        how="a run is done when its turn starts",
        file="automations/runs.py",
        old="state=RunState.RUNNING, started_at=Now()",
        new="state=RunState.SUCCEEDED, started_at=Now(), finished_at=Now()",
        tests=(BOUND + "test_a_run_is_queued_then_running_then_what_its_turn_became",),
    ),
    Break(
        rule="outcome",
        how="a failed turn is a run that succeeded",
        file="automations/runs.py",
        old="    Ending.FAILED: RunState.FAILED,",
        new="    Ending.FAILED: RunState.SUCCEEDED,",
        tests=(BOUND + "test_a_run_is_queued_then_running_then_what_its_turn_became",),
    ),
    Break(
        rule="deferred",
        how="two turns of a session at once",
        file="sessions_app/claim.py",
        old="        started.scalar_subquery(),\n        aged",
        new="        aged",
        tests=(BOUND + "test_an_automation_waits_while_its_session_is_busy_and_shows_as_pending",),
    ),
    Break(
        rule="deferred",
        how="an automation is injected into the running turn",
        file="sessions_app/tools.py",
        old="                    kind=TurnKind.MESSAGE,\n                    on_busy=OnBusy.INJECT,\n",
        new="",
        tests=(BOUND + "test_a_running_model_never_sees_an_automation_that_came_meanwhile",),
    ),
    Break(
        rule="deferred",
        how="an automation goes before a person",
        file="sessions_app/claim.py",
        old="        sa.select(people.c.id).scalar_subquery(),\n        sa.select(by_slot.c.id).scalar_subquery(),",
        new="        sa.select(by_slot.c.id).scalar_subquery(),\n        sa.select(people.c.id).scalar_subquery(),",
        tests=(BUSY + "test_people_go_first_then_slots_in_order_but_what_waited_too_long_goes_before",),
    ),
    Break(
        rule="deferred",
        how="a busy session's automation does not show",
        file="automations/selectors.py",
        old="            pending=Exists(runs.filter(state=RunState.QUEUED)),",
        new="            pending=Exists(runs.filter(state=RunState.SKIPPED)),",
        tests=(BOUND + "test_an_automation_waits_while_its_session_is_busy_and_shows_as_pending",),
    ),
    Break(
        rule="prompt",
        how="the run does not keep the prompt",
        file="automations/runs.py",
        old="        rendered_prompt=trigger.model_content,",
        new="        rendered_prompt=trigger.content,",
        tests=(BOUND + "test_the_run_keeps_the_prompt_whose_hash_the_history_has",),
    ),
    Break(
        rule="closure",
        how="an empty answer leaves nothing",
        file="sessions_app/kinds.py",
        old='    Ending.SUCCEEDED: "Finished with no output.",',
        new='    Ending.SUCCEEDED: "",',
        tests=(BOUND + "test_every_automation_that_started_leaves_a_closure_that_people_see",),
    ),
    Break(
        rule="closure",
        how="a failure tells people the exception",
        file="sessions_app/kinds.py",
        old='error=result.error_text or "an internal error."',
        new='error=result.error_detail or "an internal error."',
        tests=(BOUND + "test_every_automation_that_started_leaves_a_closure_that_people_see",),
    ),
    Break(
        rule="deletion",
        how="a session with automations is deleted without asking",
        file="automations/bound.py",
        old="        return tuple(Blocker(id=job.pk, name=job.name, enabled=job.enabled) for job in jobs)",
        new="        return ()",
        tests=(BOUND + "test_a_session_with_automations_is_deleted_in_two_steps",),
    ),
    Break(
        rule="deletion",
        how="a disabled automation is not in the way",
        file="automations/bound.py",
        old='        jobs = CronJob.objects.filter(_of_session(session_id)).order_by("created_at", "id")',
        new='        jobs = CronJob.objects.filter(_of_session(session_id), enabled=True).order_by("created_at", "id")',
        tests=(DELETE + "test_a_disabled_automation_is_in_the_way_too_and_a_queued_run_goes_along",),
    ),
    Break(
        rule="deletion",
        how="a job bound after the look is deleted without asking",
        file="sessions_app/delete.py",
        old="            if ids and not delete_automations:",
        new="            if ids and delete_automations is None:",
        tests=(RACES + "test_a_job_bound_after_the_look_blocks_the_delete",),
    ),
    Break(
        rule="deletion",
        how="a delete that gives up opens what another is deleting",
        file="sessions_app/delete.py",
        old="Session.objects.filter(pk__in=session_ids, deleting_since=since)",
        new="Session.objects.filter(pk__in=session_ids)",
        tests=(RACES + "test_a_delete_that_gives_up_does_not_open_what_another_is_deleting",),
    ),
    Break(
        rule="deletion",
        how="a delete that was taken for dead goes on",
        file="sessions_app/delete.py",
        old="    if any(session.state != SessionState.DELETING for session in sessions):",
        new="    if not sessions:",
        tests=(RACES + "test_a_delete_that_was_taken_for_dead_deletes_nothing_when_it_comes_back",),
    ),
    Break(
        rule="deletion",
        how="the clocks of an agent's legacy jobs are locked after its sessions",
        file="automations/bound.py",
        old="        if agent_id is not None:  # its legacy and system jobs, too",
        new="        if agent_id == -1:",
        tests=(
            RACES
            + "test_an_agents_legacy_jobs_go_with_it_without_being_in_the_way_also_while_beat_fires_them",
        ),
    ),
    Break(
        rule="deletion",
        how="a turn that was being claimed while the session closed is not asked to end",
        file="sessions_app/delete.py",
        old="                _ask_to_end(Turn.objects.filter(session_id=session_id, cancel_requested_at__isnull=True))",
        new="                connection.close()",
        tests=("tests/core/test_delete_at_work.py",),
    ),
    Break(
        rule="deletion",
        how="a delivery that was not sent waits for ever",
        file="sessions_app/deliver.py",
        old='    theirs.close("session_deleted")',
        new='    theirs.none().close("session_deleted")',
        tests=(RACES + "test_deliveries_outlive_their_session_and_what_was_not_sent_is_closed",),
    ),
    Break(
        rule="unified",
        how="what is said in a thread stays there",
        file="sessions_app/receive.py",
        old="    target = entered.behind if given.kind == TurnKind.MESSAGE else entered.session.pk",
        new="    target = entered.session.pk",
        tests=(
            UNIFIED
            + "test_a_message_in_a_thread_becomes_a_turn_of_the_primary_session_answered_in_the_thread",
        ),
    ),
    Break(
        rule="unified",
        how="the answer goes where the primary session was opened",
        file="sessions_app/receive.py",
        old="given.route or _route(entered.session)",
        new="given.route or _route(session)",
        tests=(
            UNIFIED
            + "test_a_message_in_a_thread_becomes_a_turn_of_the_primary_session_answered_in_the_thread",
        ),
    ),
    Break(
        rule="unified",
        how="a thread shows its own automations only",
        file="automations/selectors.py",
        old="    return automations(user).filter(session_id__in={session_id, entered(user, session_id).behind})",
        new="    return automations(user).filter(session_id=entered(user, session_id).pk)",
        tests=(
            UNIFIED
            + "test_every_thread_shows_the_primarys_history_turns_and_automations_and_its_own_when_the_mode_is_off",
        ),
    ),
    Break(
        rule="unified",
        how="an automation made in a thread is bound to it",
        file="automations/edit.py",
        old="        return create_job(replace(given, session_id=enter(given.session_id).behind))",
        new="        return create_job(replace(given, session_id=enter(given.session_id).session.pk))",
        tests=(
            UNIFIED
            + "test_an_automation_made_in_a_thread_is_bound_to_the_primary_session_and_older_ones_stay",
        ),
    ),
    Break(
        rule="unified",
        how="the automations of the primary session are in the way of deleting a thread",
        file="sessions_app/delete.py",
        old="    return tuple(blocker for bound in _bound for blocker in bound.blockers(session_id))",
        new="    from sessions_app.unified import behind\n\n"
        "    shown = behind([session_id]).get(session_id, session_id)\n"
        "    both = {session_id, shown}\n"
        "    return tuple(blocker for bound in _bound for each in both for blocker in bound.blockers(each))",
        tests=(
            UNIFIED
            + "test_deleting_a_thread_is_blocked_by_its_own_automations_only_and_takes_nothing_of_the_primary",
        ),
    ),
    Break(
        rule="unified",
        how="a Telegram chat is unified, too",
        file="sessions_app/unified.py",
        old="        channel=WEB,\n",
        new="",
        tests=(UNIFIED + "test_sessions_of_other_channels_stay_their_own",),
    ),
    Break(
        rule="unified",
        how="a key is forgotten by a toggle",
        file="sessions_app/receive.py",
        old="Turn.objects.filter(said_here | said_behind)",
        new="Turn.objects.filter(said_here)",
        tests=(UNIFIED + "test_a_message_sent_again_is_one_turn_however_often_the_mode_was_toggled_between",),
    ),
    Break(
        rule="unified",
        how="what one thread said is taken for what another says",
        file="sessions_app/receive.py",
        old='    return f"{entered_id.hex}:{hashlib.sha256(key.encode()).hexdigest()}"',
        new="    return hashlib.sha256(key.encode()).hexdigest()",
        tests=(UNIFIED + "test_two_threads_that_feed_one_session_may_use_the_same_keys",),
    ),
    Break(
        rule="unified",
        how="an open stream looks where it points only when it is told of a toggle",
        file="sessions_app/stream.py",
        old="        self._follow([each for group in groups for each in group])",
        new="        self._follow([each for group in groups for each in group if each.behind])",
        tests=("tests/api/test_hub.py::test_nothing_said_behind_a_thread_since_the_toggle_is_stepped_over",),
    ),
    Break(
        rule="edit",
        how="a run runs what the job says now",
        file="automations/slot_kind.py",
        old="        content=f\"Scheduled automation triggered: {about['automation_name']}\\n\\n{turn.content}\",",
        new="        content=f\"Scheduled automation triggered: {about['automation_name']}\\n\\n\"\n"
        "        + runs.RunRecord.objects.get(pk=turn.origin_run).job.message,",
        tests=(BOUND + "test_an_edit_is_not_retroactive",),
    ),
    Break(
        rule="slots",
        how="an edit forgets the slots that had come",
        file="automations/clocks.py",
        old="    gaps.skip(job, Gap(reason=GapReason.EDITED, slots_from=first, slots_to=last, count=count))",
        new="    assert count != 0",
        tests=(EDIT + "test_slots_that_were_due_when_the_plan_changed_are_accounted_for",),
    ),
    Break(
        rule="slots",
        how="slots that are caught up are counted from the wrong end",
        file="automations/clocks.py",
        old="    after = now if last is None else max(now, last)",
        new="    after = last or now",
        tests=(PROPERTY,),
    ),
    Break(
        rule="fence",
        how="a stale worker may end a turn",
        file="sessions_app/models/turn.py",
        old="        done = self.filter(pk=turn.pk, claim=turn.claim, state=TurnState.RUNNING).update(**ended)",
        new="        done = self.filter(pk=turn.pk, state=TurnState.RUNNING).update(**ended)",
        tests=("tests/core/test_fence.py::test_a_stale_worker_writes_nothing",),
    ),
    Break(
        rule="retry",
        how="a run that waits for a retry does not give way",
        file="automations/batch.py",
        old="        if runs and row.retrying:",
        new="        if runs and row.retrying > 9:",
        tests=("tests/automations/test_retries.py::test_what_waits_for_a_retry_gives_way_to_the_next_slot",),
    ),
    Break(
        rule="legacy",
        how="what waits in a deleted internal session waits for ever",
        file="automations/bound.py",
        old="            session_id__in=session_ids, state__in=[RunState.QUEUED, RunState.RUNNING]",
        new="            session_id__in=[], state__in=[RunState.QUEUED, RunState.RUNNING]",
        tests=(
            LEGACY + "test_a_deleted_internal_session_is_missed_by_nobody_and_the_next_run_begins_a_new_one",
        ),
    ),
    Break(
        rule="verdict",
        how="what is not worth telling is delivered",
        file="automations/legacy.py",
        old='                withheld="" if result.verdict.notify else result.verdict.reason,',
        new='                withheld="",',
        tests=(DELIVERY + "test_an_answer_that_says_nothing_new_is_withheld_with_the_reason",),
    ),
    Break(
        rule="verdict",
        how="a judge in trouble keeps the answer back",
        file="agent_core/evaluate.py",
        old="    return Verdict(notify=True,",
        new="    return Verdict(notify=False,",
        tests=(DELIVERY + "test_a_judge_in_trouble_keeps_nothing_back",),
    ),
    Break(
        rule="verdict",
        how="the answers of automations are judged, too",
        file="automations/slot_kind.py",
        old='        """Nobody judges what the kind does not ask to be judged."""',
        new="        return turn.content",
        tests=(
            DELIVERY + "test_the_answers_of_automations_and_people_are_never_judged_and_write_no_delivery",
        ),
    ),
    Break(
        rule="delivery",
        how="a failed or silent run is judged, too",
        file="automations/legacy.py",
        old="        answered = result.ending is Ending.SUCCEEDED and result.reply.strip()",
        new="        answered = True",
        tests=(DELIVERY + "test_nothing_is_judged_or_handed_over_when",),
    ),
    Break(
        rule="dream",
        how="a dream writes over a person's edit",
        file="automations/dream.py",
        old=', revision=basis["revision"])',
        new=")",
        tests=(DREAM + "test_an_edit_by_a_person_in_between_wins_and_nothing_is_lost",),
    ),
    Break(
        rule="dream",
        how="a dream reads its own history",
        file="automations/dream.py",
        old="    alone = True",
        new="    alone = False",
        tests=(DREAM + "test_a_dream_is_given_neither_its_own_history_nor_any_tool",),
    ),
    Break(
        rule="import",
        how="two imports at once do not wait for each other",
        file="automations/importing.py",
        old="            agent = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()",
        new="            agent = Agent.objects.filter(pk=agent_id).first()",
        tests=(IMPORT + "test_an_import_waits_for_another_one_of_its_agent",),
    ),
    Break(
        rule="import",
        how="a job with a channel is bound all the same",
        file="automations/store_job.py",
        old="    legacy = any(set_fields) or ",
        new="    legacy = ",
        tests=(IMPORT + "test_the_category_follows_the_rule",),
    ),
)
