"""How the rules of consent may be broken for clients of the MCP server, and which tests must see it."""

from __future__ import annotations

from tests.broken_rules.table import Break

TASKS = "tests/automations/mcp_server/test_tasks.py::"

MCP = (
    Break(
        rule="3.5",
        how="a client's answer to an earlier question answers the one that waits now",
        file="automations/mcp_server/progress.py",
        old="    response = given.get(found.question_key) if found.question else None",
        new="    response = next(iter(given.values()), None)",
        tests=(TASKS + "test_an_answer_to_an_earlier_question_does_not_answer_the_next",),
    ),
)
