"""How the bounds may be broken of what clients, users and unread mail may take. As in table.py."""

from __future__ import annotations

from tests.broken_rules.table import INACTIVE, Break

CONNECTIONS = "tests/api/test_connections.py::"
STREAMS = "tests/api/test_stream_bounds.py::"
OUTAGE = "tests/api/test_outage.py::"
QUERY = "tests/api/test_query.py::"
DEPOSIT = "tests/sessions_app/mailbox/test_deposit.py::"
BUSY = "tests/sessions_app/turns/test_receive.py::"
STATEMENTS = "tests/api/test_statements.py::"
HINTS = "tests/sessions_app/test_hints.py::"
AGENTS = "tests/sessions_app/web/test_agents.py::"
ALERTS = "tests/config/operations/test_alerts.py::"

LISTS = "tests/api/test_list_pages.py::"

BOUNDS = (
    Break(
        rule="10.0",
        how="a search of the API compares every row of a user",
        file="sessions_app/postgres/search.py",
        old='    return rows.filter(**{f"{time}__gte": oldest[0]}) if oldest else rows',
        new="    return rows",
        tests=(LISTS + "test_a_search_reads_the_newest_only",),
    ),
    Break(
        rule="10.0",
        how="the page of a user's deliveries is looked for among everybody's",
        file="sessions_app/sessions/deliveries.py",
        old="    rows = Delivery.objects.filter(_reached(user), owner_id=user.pk, session__isnull=False)",
        new="    rows = Delivery.objects.filter(session__isnull=False)",
        tests=(LISTS + "test_a_list_reads_its_page_and_nothing_of_others",),
    ),
    Break(
        rule="6.6",
        how="a page applies another text than the one that was checked",
        file="sessions_app/web/agent_documents.py",
        old="elif checked != _digest(content, seen):",
        new="elif not checked:",
        tests=(AGENTS + "test_a_text_that_was_not_checked_is_not_applied",),
    ),
    Break(
        rule="6.6",
        how="the check of a document stores it",
        file="sessions_app/agents/documents.py",
        old="    transaction.set_rollback(True)\n",
        new="",
        tests=(AGENTS + "test_a_check_says_what_applying_does_and_stores_nothing",),
    ),
    Break(
        rule="7.1",
        how="a message finds the session of somebody else",
        file="sessions_app/turns/receive.py",
        old='owner_id=Coalesce(Parameter("owner"), F("owner_id"))',
        new="",
        tests=(STATEMENTS + "test_a_session_of_somebody_else_is_missing_whatever_is_sent",),
    ),
    Break(
        rule="7.1",
        how="a refused message tells whether there is such a session",
        file="sessions_app/api/turns.py",
        old="        selectors.shown_id(user, session_id)\n        raise",
        new="        raise",
        tests=(STATEMENTS + "test_a_session_of_somebody_else_is_missing_whatever_is_sent",),
    ),
    Break(
        rule="10.0",
        how="a page of sessions reads the turns of all users",
        file="sessions_app/turns/session_reads.py",
        old='.order_by("lane", "due_at", "id")',
        new=".order_by()",
        tests=(STATEMENTS + "test_a_page_of_sessions_does_not_read_what_waits_elsewhere",),
    ),
    Break(
        rule="10.0",
        how="a database that is away is a bug",
        file="config/http/problems.py",
        old="OUTAGES = OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError",
        new="OUTAGES: tuple[type[Exception], ...] = ()",
        tests=(OUTAGE + "test_a_resent_request_with_an_unconfirmed_commit_is_done_once",),
    ),
    Break(
        rule="10.0",
        how="any address takes a body",
        file="config/http/body_limit.py",
        old="if path.startswith(prefix)), 0)",
        new="if path.startswith(prefix)), 10**9)",
        tests=(CONNECTIONS + "test_a_huge_body_is_refused_at_every_address",),
    ),
    Break(
        rule="10.0",
        how="a body may take for ever",
        file="config/http/body_limit.py",
        old="asyncio.timeout(BODY_SECONDS)",
        new="asyncio.timeout(None)",
        tests=(CONNECTIONS + "test_a_body_that_does_not_come_is_answered_408",),
    ),
    Break(
        rule="10.0",
        how="a head may take for ever",
        file="config/http/connection.py",
        old="            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close_unless_in_request)",
        new="            self._head_timer = self.loop.call_later(90 * HEAD_SECONDS, self._close_unless_in_request)",
        tests=(CONNECTIONS + "test_an_endless_request_head_times_out",),
    ),
    Break(
        rule="10.0",
        how="connections have no bound",
        file="config/http/connection.py",
        old="        if self._is_one_too_many():",
        new="        if False:",
        tests=(CONNECTIONS + "test_connections_are_bounded_all_together",),
    ),
    Break(
        rule="10.0",
        how="each stream takes a thread",
        file="config/asgi.py",
        old="from config.http.handler import Handler  # noqa: E402",
        new="from django.core.handlers.asgi import ASGIHandler as Handler  # noqa: E402",
        tests=(STREAMS + "test_open_streams_take_no_thread_and_no_connection_each",),
    ),
    Break(
        rule="10.0",
        how="a user may have every stream",
        file="sessions_app/streams/rights.py",
        old="            if full is not None:",
        new="            if False:",
        tests=(STREAMS + "test_streams_are_limited_per_user",),
    ),
    Break(
        rule="10.0",
        how="who was let in once reads on",
        file="sessions_app/streams/rights.py",
        old="            user.c.is_active,\n",
        new="",
        tests=(STREAMS + "test_a_stream_ends_when_access_is_lost",),
    ),
    Break(
        rule="10.0",
        how="a turn of an inactive owner begins",
        file="sessions_app/turns/claim.py",
        old="    return sa.and_(owners.is_active(owner_of_session()), owners.has_room",
        new="    return sa.and_(sa.true(), owners.has_room",
        tests=(INACTIVE + "test_inactive_owners_turns_are_neither_claimed_nor_hinted_nor_woken",),
    ),
    Break(
        rule="10.0",
        how="what nobody knows is passed over",
        file="sessions_app/api/query.py",
        old="    if name not in takes:\n        return f",
        new='    if name not in takes:\n        return "" and f',
        tests=(QUERY + "test_every_operation_refuses_what_its_schema_does_not_name",),
    ),
    Break(
        rule="10.0",
        how="a crowded mailbox is taken for one with room",
        file="sessions_app/mailbox/deposit_statements.py",
        old="min(MOST_OF_A_SOURCE, MOST_UNREAD) - 1",
        new="min(MOST_OF_A_SOURCE, MOST_UNREAD)",
        tests=(DEPOSIT + "test_an_unread_source_keeps_its_newest_events_and_reports_drops",),
    ),
    Break(
        rule="10.0",
        how="what nobody reads piles up",
        file="sessions_app/mailbox/updates.py",
        old="            MAKE_ROOM.run(target=row.target_id)\n",
        new="            pass\n",
        tests=(DEPOSIT + "test_an_unread_source_keeps_its_newest_events_and_reports_drops",),
    ),
    Break(
        rule="10.0",
        how="a turn takes along whatever waits",
        file="sessions_app/turns/tool_calls.py",
        old="            guests = self._that_fit(guests)\n",
        new="",
        tests=(
            BUSY + "test_a_turn_injects_messages_that_fit_and_queues_the_rest",
            BUSY + "test_the_injection_limit_applies_to_the_whole_turn",
        ),
    ),
    Break(
        rule="10.0",
        how="a person's hint waits for those of automations",
        file="sessions_app/hints.py",
        old="    return isinstance(hint, Hint) and hint.lane == Lane.PEOPLE",
        new="    return False",
        tests=(HINTS + "test_a_persons_hint_does_not_wait_for_those_of_automations",),
    ),
    Break(
        rule="10.0",
        how="a hint is sent however long it has waited",
        file="sessions_app/hints.py",
        old="                if waiting.pop(hint) > stale:",
        new="                if waiting.pop(hint):",
        tests=(HINTS + "test_hints_that_waited_too_long_are_dropped",),
    ),
    Break(
        rule="7.4",
        how="an answer of the page goes to whatever question the plan asks now",
        file="sessions_app/web/actions.py",
        old="        if not question:\n            raise NotWaiting\n",
        new="",
        tests=(
            "tests/sessions_app/web/test_chat.py::test_an_answer_that_is_sent_twice_is_one_and_goes_to_no_other_question",
        ),
    ),
    Break(
        rule="10.1",
        how="a client's method becomes a label",
        file="config/http/measure.py",
        old='    method = request.method if request.method in METHODS else "other"',
        new='    method = request.method or "other"',
        tests=(ALERTS + "test_requests_are_counted_by_route_and_clients_choose_no_label",),
    ),
    Break(
        rule="10.1",
        how="a refused message is counted in the transaction that its refusal rolls back",
        file="sessions_app/turns/receive.py",
        old='        metrics.count(metrics.Counted.QUEUE_FULL, queue="session")',
        new="        pass",
        tests=(ALERTS + "test_each_condition_fires_its_alert_and_quiet_fires_none",),
    ),
)
