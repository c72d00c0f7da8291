"""How each rule of scheduled messages may be broken, and which tests must see it: as in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

SENT = "tests/automations/test_scheduled_messages.py::"
TOOLS = "tests/automations/test_message_tools.py::"
LEFT = "tests/automations/test_message_deliveries.py::"

MESSAGES = (
    Break(
        rule="scheduled message",
        how="what was taken can be cancelled",
        file="automations/models/scheduled_message.py",
        old="        return self.filter(status=MessageStatus.PENDING, taken_at=None)",
        new="        return self.filter(status=MessageStatus.PENDING)",
        tests=(SENT + "test_what_is_taken_sent_or_failed_cannot_be_cancelled",),
    ),
    Break(
        rule="scheduled message",
        how="several of one session are taken at once",
        file="automations/due_messages.py",
        old="    _message.c.id == _HEAD,\n",
        new="",
        tests=(SENT + "test_messages_of_a_session_are_sent_in_the_order_of_their_times",),
    ),
    Break(
        rule="scheduled message",
        how="whether the chat is private is not looked at again",
        file="automations/message_kind.py",
        old="    if message.session.chat_type != ChatType.PRIVATE:",
        new="    if message.session is None:",
        tests=(SENT + "test_it_is_looked_at_again_at_the_moment_of_sending",),
    ),
    Break(
        rule="scheduled message",
        how="a model says it in its own words",
        file="automations/message_kind.py",
        old="        return turn.content\n",
        new="        return None\n",
        tests=(SENT + "test_its_text_is_said_word_for_word_and_no_model_is_asked",),
    ),
    Break(
        rule="scheduled message",
        how="a replacement reaches other sessions",
        file="automations/scheduled_messages.py",
        old=".waiting().filter(session_id=message.session_id).exclude(pk=message.pk)",
        new=".waiting().exclude(pk=message.pk)",
        tests=(SENT + "test_replacing_cancels_what_waits_in_this_session_only_and_names_it",),
    ),
    Break(
        rule="scheduled message",
        how="a call made again is another message",
        file="automations/scheduled_messages.py",
        old="    if given.turn_id is None or not given.tool_call_id:",
        new="    if given.turn_id or not given.tool_call_id:",
        tests=(TOOLS + "test_the_same_call_again_answers_the_same_and_makes_nothing",),
    ),
    Break(
        rule="scheduled message",
        how="it counts as sent before its channel took it",
        file="automations/message_kind.py",
        old='leaves=route["channel"] != WEB',
        new="leaves=False",
        tests=(LEFT + "test_it_is_pending_until_the_channel_took_it",),
    ),
)
