"""How the protocol doors may be broken. As in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

AG_UI = "tests/api/test_ag_ui.py::"

CHATS = "tests/sessions_app/sessions/test_client_chats.py::"
CONNECTIONS = "tests/sessions_app/connections/test_connections.py::"
OPENAI = "tests/openai_api/test_answers.py::"
IMAGES = "tests/openai_api/test_images.py::"
DOORS = (
    Break(
        rule="9.4",
        how="what automations said is lost when the answer after it fails",
        file="sessions_app/sessions/client_answers.py",
        old="    found = _untold(of_chat)\n",
        new="    found: list[int] = []\n",
        tests=(OPENAI + "test_an_automations_answer_is_told_although_the_next_answer_failed",),
    ),
    Break(
        rule="7.1",
        how="a model is shown the images of another user",
        file="sessions_app/memory/images.py",
        old=", session__agent_id=agent.pk)",
        new=")",
        tests=(IMAGES + "test_images_of_another_user_are_not_shown",),
    ),
    Break(
        rule="10.0",
        how="a message may have any number of images",
        file="sessions_app/openai_api/requests.py",
        old="    if len(message.urls) > MOST_IMAGES:\n",
        new="    if len(message.urls) > 1_000:\n",
        tests=(IMAGES + "test_what_is_no_image_is_refused_and_nothing_is_fetched",),
    ),
    Break(
        rule="4.9",
        how="saving says nothing of answers that leave nowhere",
        file="automations/api/automations.py",
        old='        "warnings": list(explain(user, job_id).warnings)\n',
        new='        "warnings": []\n',
        tests=("tests/automations/jobs/test_explain.py::test_saving_warns_of_what_explain_warns_of",),
    ),
    Break(
        rule="3.5",
        how="AG-UI: something like a yes in a payload gives consent",
        file="sessions_app/ag_ui/threads.py",
        old="    approved: StrictBool\n",
        new="    approved: bool\n",
        tests=(AG_UI + "test_only_a_payload_of_the_schema_gives_consent",),
    ),
    Break(
        rule="3.5",
        how="AG-UI: a thread answers the questions of other threads",
        file="sessions_app/ag_ui/threads.py",
        old="        _must_be_here(session, question.session_id)\n",
        new="",
        tests=(AG_UI + "test_nobody_answers_the_question_of_another_thread_or_user",),
    ),
    Break(
        rule="1.3",
        how="AG-UI: a run that is sent again is a second turn",
        file="sessions_app/ag_ui/threads.py",
        old='program_message(text, idempotency_key=f"ag-ui:{said.id}")',
        new="program_message(text)",
        tests=(AG_UI + "test_a_run_that_is_sent_again_is_the_same_turn",),
    ),
    Break(
        rule="1.3",
        how="AG-UI: an edited history is mixed in",
        file="sessions_app/ag_ui/threads.py",
        old="    _compare(user, session, run)\n",
        new="",
        tests=(AG_UI + "test_a_history_that_another_window_left_behind_is_refused",),
    ),
    Break(
        rule="1.8",
        how="AG-UI: a text that is said anew is left as it was",
        file="sessions_app/ag_ui/run_events.py",
        old="                self.needs_history = True\n",
        new="",
        tests=(
            AG_UI + "test_a_worker_that_is_killed_in_the_middle_is_replaced",
            AG_UI + "test_a_broken_try_is_followed_by_the_history",
        ),
    ),
    Break(
        rule="9.4",
        how="a chat without an id is looked for among all that began alike",
        file="sessions_app/sessions/client_chats.py",
        old='    likely = rows.filter(turn__in=heard_here.values("turn"))[:MOST_ALIKE]\n',
        new="    likely = rows\n",
        tests=(CHATS + "test_a_chat_is_found_among_many_that_began_alike_at_the_same_cost",),
    ),
    Break(
        rule="3.6",
        how="a model that somebody made up breaks the server's connection for all",
        file="agent_core/connections.py",
        old="    if error.code == NOT_FOUND and connection.reach is None and model not in connection.models:\n",
        new="    if False:\n",
        tests=(CONNECTIONS + "test_a_model_that_somebody_made_up_says_nothing_of_the_servers_connection",),
    ),
)
