"""How the rules of deliveries may be broken, and which tests must see it: as in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

SENDING = "tests/channels/test_sending.py::"

DELIVERIES = (
    Break(
        rule="delivery",
        how="what waits for another attempt is overtaken",
        file="sessions_app/send.py",
        old="        .order_by(row.c.id)",
        new="        .order_by(row.c.next_attempt_at.nulls_first(), row.c.id)",
        tests=(
            SENDING + "test_a_receiver_that_fails_is_tried_again_with_the_same_key_and_nothing_overtakes",
        ),
    ),
    Break(
        rule="delivery",
        how="a sender whose time is over settles all the same",
        file="sessions_app/models/delivery.py",
        old="        return self.filter(pk=delivery.pk, claim=delivery.claim, state=DeliveryState.SENDING)",
        new="        return self.filter(pk=delivery.pk)",
        tests=(SENDING + "test_a_stale_sender_settles_nothing",),
    ),
    Break(
        rule="delivery",
        how="what a dead sender claimed stays so for ever",
        file="sessions_app/send.py",
        old='        next_attempt_at=sa.func.now() + sa.bindparam("lease", type_=sa.Interval()),',
        new="        next_attempt_at=sa.func.now() + sa.literal_column(\"interval '1 day'\"),",
        tests=(SENDING + "test_a_worker_that_dies_while_it_sends_is_replaced_and_the_key_stays",),
    ),
    Break(
        rule="delivery",
        how="one place may have every thread",
        file="sessions_app/postman.py",
        old="            bounds = {place: self._share, _SLOW",
        new="            bounds = {place: self._threads, _SLOW",
        tests=(SENDING + "test_a_place_that_hangs_holds_up_nobody_else",),
    ),
    Break(
        rule="delivery",
        how="an answer that was cut off counts as taken",
        file="sessions_app/channels/webhook.py",
        old="        if answer.broken:",
        new="        if answer.broken and answer.status >= 300:",
        tests=(
            SENDING + "test_a_receiver_that_fails_is_tried_again_with_the_same_key_and_nothing_overtakes",
        ),
    ),
    Break(
        rule="delivery",
        how="who was taken along is not answered where they wrote",
        file="sessions_app/commit.py",
        old='[route, *(guest.metadata.get("route") for guest in ended[1:])]',
        new="[route, *(None for guest in ended[1:])]",
        tests=(SENDING + "test_a_message_taken_along_is_answered_where_it_came_from_too",),
    ),
    Break(
        rule="delivery",
        how="webhooks go wherever a name leads",
        file="sessions_app/channels/webhook.py",
        old="Reach(hosts=frozenset(host.lower() for host in settings.RONDO_WEBHOOK_HOSTS))",
        new='Reach(hosts=frozenset(["127.0.0.1"]))',
        tests=(SENDING + "test_private_addresses_are_refused_unless_the_operator_named_them",),
    ),
)
