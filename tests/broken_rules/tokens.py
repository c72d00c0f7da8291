"""How tokens may be broken. As in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

MATRIX = "tests/api/test_token_matrix.py::"
ATTACKS = "tests/api/test_tokens.py::"
STREAMS = "tests/api/test_token_streams.py::"
MCP_TOKENS = "tests/automations/mcp_server/test_tokens.py::"
HIDES = (MATRIX + "test_a_limit_hides_everything_else",)
NEEDS = (MATRIX + "test_an_operation_needs_its_scope",)

TOKENS = (
    Break(
        rule="10.6",
        how="an operation that declares no scope is for every token",
        file="sessions_app/api/scopes.py",
        old="if scope is None or not token.allows(scope):",
        new="if scope is not None and not token.allows(scope):",
        tests=(MATRIX + "test_an_operation_without_a_scope_is_for_no_token",),
    ),
    Break(
        rule="10.6",
        how="a token that reads may talk",
        file="sessions_app/models/api_token.py",
        old="return scope == TokenScope.READ or",
        new="return scope in {TokenScope.READ, TokenScope.TALK} or",
        tests=NEEDS,
    ),
    Break(
        rule="10.6",
        how="a limited token uses what belongs to no agent",
        file="sessions_app/api/scopes.py",
        old="if token.is_limited and not view.kwargs and",
        new="if False and",
        tests=(MATRIX + "test_a_limited_token_makes_nothing_elsewhere",),
    ),
    *(
        Break(
            rule="10.6",
            how=f"a limited token finds {what} elsewhere",
            file=file,
            old=old,
            new=new,
            tests=HIDES,
        )
        for what, file, old, new in (
            (
                "sessions",
                "sessions_app/tokens/limits.py",
                "return bool(session.pk == limit.session_id)",
                "return True",
            ),
            (
                "executions",
                "sessions_app/selectors.py",
                "ExecutionState.objects.filter(limits.in_sessions(user), ",
                "ExecutionState.objects.filter(",
            ),
            (
                "deliveries",
                "sessions_app/sessions/deliveries.py",
                "Delivery.objects.filter(_reached(user), session__",
                "Delivery.objects.filter(session__",
            ),
            (
                "turns",
                "sessions_app/selectors.py",
                "found is not None and limits.reaches_contents(user, found.session_id)",
                "found is not None",
            ),
            (
                "turns of all sessions",
                "sessions_app/sessions/history.py",
                "Turn.objects.filter(in_sessions(user), ",
                "Turn.objects.filter(",
            ),
            (
                "questions",
                "sessions_app/turns/question_reads.py",
                "ConsentQuestion.objects.filter(in_sessions(user), ",
                "ConsentQuestion.objects.filter(",
            ),
            (
                "runs",
                "automations/selectors.py",
                "    if not limit:\n        return Q()\n    of_jobs",
                "    if True:\n        return Q()\n    of_jobs",
            ),
            (
                "routines",
                "automations/routines/reads.py",
                ".filter(in_agents(user)).first()",
                ".first()",
            ),
            ("connections", "sessions_app/connections/reads.py", ".filter(in_account(user))", ""),
        )
    ),
    Break(
        rule="10.6",
        how="a limited token sends messages to any session",
        file="sessions_app/api/turns.py",
        old="if limit_of(self.user):",
        new="if False:",
        tests=(MATRIX + "test_a_limited_token_makes_nothing_elsewhere",),
    ),
    Break(
        rule="10.6",
        how="an idempotency key shows what another token made",
        file="sessions_app/api/base.py",
        old='limit_of(self.user).own(f"{self.request.method} {self.request.path}")',
        new='f"{self.request.method} {self.request.path}"',
        tests=(ATTACKS + "test_an_idempotency_key_does_not_show_what_another_token_made",),
    ),
    Break(
        rule="10.6",
        how="a token that expires makes one that does not",
        file="sessions_app/api/tokens.py",
        old="if end is None or end > used.expires_at:",
        new="if end is not None and end > used.expires_at:",
        tests=(ATTACKS + "test_a_token_makes_none_with_more_than_it_has",),
    ),
    Break(
        rule="10.6",
        how="every token sees and revokes the others",
        file="sessions_app/api/tokens.py",
        old="or used.manages_account else",
        new="or True else",
        tests=(ATTACKS + "test_only_a_token_that_manages_everything_sees_the_others",),
    ),
    Break(
        rule="10.6",
        how="an expired token is accepted",
        file="sessions_app/tokens/issue.py",
        old="filter(in_time, user__is_active=True)",
        new="filter(user__is_active=True)",
        tests=(
            ATTACKS + "test_a_token_that_has_expired_or_whose_user_is_inactive_is_refused",
            ATTACKS + "test_a_ticket_of_an_expired_token_opens_nothing",
        ),
    ),
    Break(
        rule="10.6",
        how="a revocation is not told to open streams",
        file="sessions_app/streams/hub.py",
        old="            self._access.recheck()\n",
        new="",
        tests=(STREAMS + "test_what_is_open_ends_within_a_second_of_the_revocation",),
    ),
    Break(
        rule="10.6",
        how="a stream that begins just after the revocation goes on",
        file="sessions_app/streams/hub.py",
        old="            self._access.expect(subscription)\n",
        new="",
        tests=(STREAMS + "test_a_stream_that_joins_after_the_revocation_was_told_ends_too",),
    ),
    Break(
        rule="10.6",
        how="a stream outlives the end of its token",
        file="sessions_app/streams/access.py",
        old="self._next_check = min(next_check, _first_expiry(readers))",
        new="self._next_check = next_check",
        tests=(STREAMS + "test_a_stream_ends_when_its_token_expires",),
    ),
    Break(
        rule="10.6",
        how="a ticket opens as many streams as one likes",
        file="sessions_app/tokens/tickets.py",
        old="DELETE FROM sessions_app_streamticket WHERE ticket_sha256 = %s AND expires_at > now() RETURNING token_id",
        new="SELECT token_id FROM sessions_app_streamticket WHERE ticket_sha256 = %s AND expires_at > now()",
        tests=(
            STREAMS + "test_of_many_connections_with_one_ticket_one_is_served",
            ATTACKS + "test_a_ticket_is_for_streams_and_dies_with_its_token",
        ),
    ),
    Break(
        rule="10.6",
        how="a ticket works for ever",
        file="sessions_app/tokens/tickets.py",
        old=" AND expires_at > now() RETURNING",
        new=" RETURNING",
        tests=(ATTACKS + "test_a_ticket_is_for_streams_and_dies_with_its_token",),
    ),
    Break(
        rule="10.6",
        how="the log has the tickets",
        file="config/logs.py",
        old="(/enter/+|[?&]ticket=)",
        new="(/enter/+)",
        tests=(STREAMS + "test_of_many_connections_with_one_ticket_one_is_served",),
    ),
    Break(
        rule="10.6",
        how="the events of an agent name other sessions to a token that is limited to one",
        file="sessions_app/api/streams.py",
        old="for item in items if not self._is_elsewhere(item)",
        new="for item in items",
        tests=(STREAMS + "test_a_stream_of_a_limited_token_names_no_other_session",),
    ),
    Break(
        rule="10.6",
        how="the MCP server runs every tool for every token",
        file="automations/mcp_server/server.py",
        old="if not _caller(context).allows(tool.scope):",
        new="if False:",
        tests=(MCP_TOKENS + "test_a_token_is_offered_and_allowed_the_tools_of_its_scopes",),
    ),
    Break(
        rule="10.6",
        how="a token that reads answers questions through get_answer",
        file="automations/mcp_server/asking.py",
        old="if not client.caller.allows(TALK):",
        new="if False:",
        tests=(MCP_TOKENS + "test_a_token_that_reads_answers_no_question_by_the_way",),
    ),
)
