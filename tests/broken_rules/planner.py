"""How the rules of planning and memory may be broken, and which tests must see it: as in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

RUN = "tests/planner/test_run.py::"
TURNS = "tests/planner/test_turns.py::"
CONSENT = "tests/core/test_consent.py::"
WORDS = "tests/core/test_whose_words.py::"
COMPRESS = "tests/core/test_compress.py::"

PLANNER = (
    Break(
        rule="question",
        how="a planner that is down on a reply takes the question with it",
        file="agent_core/planner/run.py",
        old="        return self._work.execution.to(status, **changes) if self._work.is_ours else None",
        new="        return self._work.execution.to(status, **changes)",
        tests=(RUN + "test_a_planner_that_is_down_on_a_reply_leaves_the_question_standing",),
    ),
    Break(
        rule="question",
        how="what was written before a question counts as its answer",
        file="sessions_app/executions.py",
        old="status__in=WAITING, asked_at__lt=turn.queued_at)",
        new="status__in=WAITING)",
        tests=(TURNS + "test_what_was_written_before_the_question_is_no_answer_to_it",),
    ),
    Break(
        rule="consent",
        how="a yes is for whatever the tool has become",
        file="agent_core/planner/steps.py",
        old="    return not (step.consented and step.consent == version_of([spec]))",
        new="    return not step.consented",
        tests=(RUN + "test_a_yes_is_for_the_tool_as_it_was",),
    ),
    Break(
        rule="consent",
        how="a refused call passes when it is made again",
        file="sessions_app/consent.py",
        old='    is_yes = is_persons(turn) and words.is_whole("yes", said)',
        new="    is_yes = is_persons(turn)",
        tests=(CONSENT + "test_anything_but_a_plain_yes_is_none",),
    ),
    Break(
        rule="consent",
        how="a yes that was on its way is one to whatever was asked meanwhile",
        file="sessions_app/consent.py",
        old=" and not _was_on_its_way(turn)",
        new="",
        tests=(WORDS + "test_a_yes_that_was_on_its_way_is_no_consent_to_what_a_post_made_the_model_ask",),
    ),
    Break(
        rule="person",
        how="what another system posts counts as a person's",
        file="sessions_app/kinds.py",
        old='    return turn.kind == TurnKind.MESSAGE and (via is None or via.get("as_person", False))',
        new="    return turn.kind == TurnKind.MESSAGE and (via is None or bool(via))",
        tests=(
            WORDS + "test_only_a_persons_post_says_where_a_person_last_wrote_and_what_the_session_is_called",
            WORDS + "test_a_yes_is_consent_only_if_a_person_says_it",
            WORDS + "test_a_post_is_a_request_of_its_own_and_leaves_a_waiting_question_alone",
            WORDS + "test_clear_is_a_persons_command",
        ),
    ),
    Break(
        rule="plan",
        how="a plan goes on for ever",
        file="agent_core/planner/run.py",
        old="        elif execution.iterations >= MOST_ITERATIONS:",
        new="        elif execution.iterations >= 100 * MOST_ITERATIONS:",
        tests=(RUN + "test_endless_replanning_ends_with_an_answer",),
    ),
    Break(
        rule="plan",
        how="what a look at the plan decides is done before it is stored",
        file="agent_core/planner/planning.py",
        old='    if made.action != "continue":',
        new='    if made.action == "replace_remaining":',
        tests=(RUN + "test_what_a_look_at_the_plan_decides_is_stored_before_it_is_done",),
    ),
    Break(
        rule="live",
        how="memory has its say in a request for live state",
        file="sessions_app/planning.py",
        old='        memory="" if concerned else _held(prepared),',
        new="        memory=_held(prepared),",
        tests=(TURNS + "test_live_state_is_read_anew_and_memory_has_no_say_in_it",),
    ),
    Break(
        rule="memory",
        how="a compression writes over what a person corrected meanwhile",
        file="sessions_app/memory.py",
        old="    mine = TaskState.objects.filter(session_id=session_id, revision=instead_of)",
        new="    mine = TaskState.objects.filter(session_id=session_id)",
        tests=(COMPRESS + "test_what_a_person_corrects_meanwhile_holds",),
    ),
    Break(
        rule="memory",
        how="a cleared conversation is shown what was said before",
        file="sessions_app/memory.py",
        old='.update(window_from_seq=F("last_seq") + 1)',
        new='.update(window_from_seq=F("window_from_seq"))',
        tests=(TURNS + "test_clear_begins_anew_beside_another_person",),
    ),
)
