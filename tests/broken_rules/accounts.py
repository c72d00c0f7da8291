"""How signing in may be broken. As in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

ENTER = "tests/config/accounts/test_enter.py::"
LINKS = "config/accounts/sign_in_links.py"

ACCOUNTS = (
    Break(
        rule="10.4",
        how="a sign-in link works twice",
        file=LINKS,
        old="AND l.used_at IS NULL AND",
        new="AND",
        tests=(
            ENTER + "test_a_used_link_says_what_to_do",
            ENTER + "test_two_at_once_give_one_session_and_no_log_has_the_token",
        ),
    ),
    Break(
        rule="10.4",
        how="a sign-in link works for ever",
        file=LINKS,
        old=" AND l.expires_at > now()",
        new="",
        tests=(ENTER + "test_a_link_expires_after_ten_minutes",),
    ),
    Break(
        rule="10.4",
        how="a sign-in link works for an inactive user",
        file=LINKS,
        old=" AND u.is_active",
        new="",
        tests=(ENTER + "test_an_inactive_user_is_not_signed_in",),
    ),
    Break(
        rule="10.4",
        how="reading the page of a sign-in link uses it up",
        file="config/accounts/enter.py",
        old='    elif request.method == "POST":',
        new="    elif True:",
        tests=(ENTER + "test_reading_the_page_does_not_use_the_link_up",),
    ),
    Break(
        rule="10.4",
        how="a sign-in link works on every machine",
        file="config/accounts/enter.py",
        old="    if not is_on_this_machine(request):",
        new="    if False:",
        tests=(ENTER + "test_only_this_machine_without_a_proxy_redeems",),
    ),
    Break(
        rule="10.4",
        how="the access log has the tokens of sign-in links",
        file="config/logs.py",
        old=' | {"filters": ["secret_addresses"]}',
        new="",
        tests=(ENTER + "test_two_at_once_give_one_session_and_no_log_has_the_token",),
    ),
    Break(
        rule="10.4",
        how="requests of the page name the sign-in link",
        file="config/accounts/enter.py",
        old='"strict-origin"',
        new='"unsafe-url"',
        tests=(ENTER + "test_another_page_can_neither_post_nor_frame_the_form",),
    ),
)
