"""How each rule of scheduled messages may be broken, and which tests must see it: as in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

SENT = "tests/automations/test_scheduled_messages.py::"
TOOLS = "tests/automations/tools/test_messages.py::"
LEFT = "tests/automations/test_message_deliveries.py::"

MESSAGES = (
    Break(
        rule="8.2",
        how="what is being sent can be cancelled",
        file="automations/models/scheduled_message.py",
        old="        return self.filter(status=MessageStatus.PENDING, taken_at=None)",
        new="        return self.filter(status=MessageStatus.PENDING)",
        tests=(SENT + "test_messages_being_sent_already_sent_or_failed_cannot_be_cancelled",),
    ),
    Break(
        rule="8.2",
        how="a cancel does not reach what waits for a busy session",
        file="automations/scheduled_messages.py",
        old='turn_id is None or not cancel_waiting(turn_id, "cancelled")',
        new="turn_id is not None",
        tests=(
            SENT + "test_cancel_reaches_a_message_queued_behind_a_busy_session",
            SENT + "test_replacing_reaches_messages_taken_by_beat_and_frees_the_limit",
        ),
    ),
    Break(
        rule="8.2",
        how="several of one session are taken at once",
        file="automations/firing/due_messages.py",
        old="    _message.c.id == _HEAD,\n",
        new="",
        tests=(SENT + "test_messages_of_a_session_are_sent_in_time_order",),
    ),
    Break(
        rule="8.2",
        how="whether the chat is private is not looked at again",
        file="automations/turn_kinds/scheduled_message.py",
        old="    if message.session.chat_type != ChatType.PRIVATE:",
        new="    if message.session is None:",
        tests=(SENT + "test_it_is_looked_at_again_at_the_moment_of_sending",),
    ),
    Break(
        rule="8.2",
        how="a model says it in its own words",
        file="automations/turn_kinds/scheduled_message.py",
        old="        return turn.content\n",
        new="        return None\n",
        tests=(SENT + "test_the_text_is_sent_verbatim_without_asking_a_model",),
    ),
    Break(
        rule="8.2",
        how="a replacement reaches other sessions",
        file="automations/scheduled_messages.py",
        old=".waiting().filter(session_id=message.session_id).exclude(pk=message.pk)",
        new=".waiting().exclude(pk=message.pk)",
        tests=(SENT + "test_replacing_cancels_and_names_only_this_sessions_waiting_messages",),
    ),
    Break(
        rule="8.2",
        how="a call made again is another message",
        file="automations/scheduled_messages.py",
        old="    if given.turn_id is None or not given.tool_call_id:",
        new="    if given.turn_id or not given.tool_call_id:",
        tests=(TOOLS + "test_the_same_call_again_answers_the_same_and_makes_nothing",),
    ),
    Break(
        rule="8.2",
        how="it counts as sent before its channel took it",
        file="automations/turn_kinds/scheduled_message.py",
        old='leaves=route["channel"] != WEB',
        new="leaves=False",
        tests=(LEFT + "test_it_is_pending_until_the_channel_took_it",),
    ),
)
