"""How the rules of deliveries may be broken, and which tests must see it: as in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

SENDING = "tests/sessions_app/deliveries/test_send.py::"
EVENTS = "tests/sessions_app/deliveries/test_system_events.py::"

DELIVERIES = (
    Break(
        rule="9.3",
        how="what waits for another attempt is overtaken",
        file="sessions_app/deliveries/send.py",
        old=".order_by(row.c.id)",
        new=".order_by(row.c.next_attempt_at.nulls_first(), row.c.id)",
        tests=(SENDING + "test_a_failed_delivery_retries_in_order_with_the_same_key",),
    ),
    Break(
        rule="9.3",
        how="a sender whose time is over settles all the same",
        file="sessions_app/models/delivery.py",
        old="        return self.filter(pk=delivery.pk, claim=delivery.claim, state=DeliveryState.SENDING)",
        new="        return self.filter(pk=delivery.pk)",
        tests=(SENDING + "test_a_stale_sender_settles_nothing",),
    ),
    Break(
        rule="9.3",
        how="what a dead sender claimed stays so for ever",
        file="sessions_app/deliveries/send.py",
        old='        next_attempt_at=sa.func.now() + sa.bindparam("lease", type_=sa.Interval()),',
        new="        next_attempt_at=sa.func.now() + sa.literal_column(\"interval '1 day'\"),",
        tests=(SENDING + "test_a_delivery_keeps_its_key_when_its_worker_dies_sending",),
    ),
    Break(
        rule="9.3",
        how="one place may have every thread",
        file="sessions_app/deliveries/dispatcher.py",
        old="if group == _SLOW else self._share)",
        new="if group == _SLOW else self._threads)",
        tests=(SENDING + "test_a_place_that_hangs_holds_up_nobody_else",),
    ),
    Break(
        rule="9.3",
        how="an answer that was cut off counts as taken",
        file="sessions_app/channels/webhook.py",
        old="        if answer.broken:",
        new="        if answer.broken and answer.status >= 300:",
        tests=(SENDING + "test_a_failed_delivery_retries_in_order_with_the_same_key",),
    ),
    Break(
        rule="9.3",
        how="who was taken along is not answered where they wrote",
        file="sessions_app/turns/commit.py",
        old='[end.route, *(guest.metadata.get("route") for guest in guests)]',
        new="[end.route]",
        tests=(SENDING + "test_an_injected_message_is_answered_at_its_origin_too",),
    ),
    Break(
        rule="9.3",
        how="webhooks go wherever a name leads",
        file="sessions_app/channels/webhook.py",
        old="Reach(hosts=frozenset(host.lower() for host in settings.RONDO_WEBHOOK_HOSTS))",
        new='Reach(hosts=frozenset(["127.0.0.1"]))',
        tests=(SENDING + "test_private_addresses_are_refused_unless_the_operator_named_them",),
    ),
    Break(
        rule="9.3",
        how="an event that was lost is reported by another event",
        file="sessions_app/deliveries/system_events.py",
        old=" or delivery.event is not None",
        new="",
        tests=(EVENTS + "test_the_loss_of_an_event_is_no_event_and_it_can_be_sent_again",),
    ),
)
