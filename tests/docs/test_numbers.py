"""The bounds that the pages of planning, memory, mailbox and background work name are those of the code."""

from __future__ import annotations

import pytest

from agent_core import strategies
from agent_core.memory import task_state
from agent_core.planner import live, plan, run, state
from agent_core.turn import compress
from agent_core.turn.consent import LONGEST_IN_FULL
from automations.heartbeats import briefing, readiness
from automations.heartbeats.readiness import WaitReason
from automations.jobs import removed_routines
from automations.routines import heartbeat_document, heartbeat_md, mode
from automations.runs import record
from automations.turn_kinds import dream, heartbeat, isolated, recollection
from sessions_app import permits
from sessions_app.agents import document_revisions
from sessions_app.mailbox import bounds, updates
from sessions_app.memory import history
from sessions_app.models import ConsentState
from sessions_app.sessions import delete
from sessions_app.turns import question_reads, receive
from tests.docs.pages import page, section

MINUTES = [int(delay.total_seconds() // 60) for delay in record.RETRY_AFTER]
CLAIMS = {  # by page, or by page and section
    "planner": (
        f"A plan has at most {plan.MOST_STEPS}; after {run.MOST_ITERATIONS} steps",
        f"Results share {state.LONGEST:,} characters",
        f"up to {state._LONGEST_ARGUMENTS:,} characters",
        f"at most {question_reads.MOST_WAITING}, what was asked last first",
    ),
    "sessions/Memory": (
        f"shown at most {history.WINDOW} messages",
        f"It has {compress.LONGEST_SECONDS:.0f} s",
        f"as many as fit in {compress.LONGEST_SHOWN:,} characters",
        f"At most {task_state.MOST_ITEMS} items of {task_state.LONGEST_ITEM} characters",
        f"{live.LONGEST_UNASKED:,} characters for each kind",
        f"up to {live.LONGEST:,} characters",
    ),
    "tools": (
        f"in full up to {LONGEST_IN_FULL:,} characters",
        f"to {permits.MOST_ALLOWED} names",
        f"state (`{'`, `'.join(ConsentState.values)}`)",
    ),
    "sessions/Mailbox": (
        f"more than {bounds.MOST_OF_A_SOURCE} unread updates of one type and source",
        f"more than {bounds.MOST_UNREAD} unread updates in one mailbox",
        f"At most {updates.MOST_EVENTS} updates and {updates.MOST_CHARACTERS:,} characters",
        f"Of more than {updates.MOST_ARTIFACTS} artifacts",
        f"for more than {updates.STALE_AFTER.total_seconds() // 3600:.0f} hours",
    ),
    "background": (
        f"task states](sessions.md#memory) of up to {recollection.MOST_CONVERSATIONS} conversations",
        f"the newest {removed_routines.MOST_KEPT} of an agent",
        f"{heartbeat.HeartbeatKind.policy['timeout_seconds']} s, unless the agent's policy",
        f"up to {isolated.MOST_TURNS}; the result is",
        f"({heartbeat.MOST_ROUTINES} of them, what is enabled first)",
        f"at most {briefing.MOST_SESSIONS} conversations and {briefing.MOST_JOBS} appointments",
        f"at most {briefing.LONGEST_LINE} characters",
        f"the newest {briefing.NEWEST}",
        *(f"`{reason}`" for reason in WaitReason),
    ),
    "automations/Routines": (
        f"at most {heartbeat_document.MOST_CHANGED} routines",
        f"{heartbeat_md.MOST_FOREIGN} different names",
        f"more than {mode.INLINE_TIMEOUT} s was given",
        f"more than {mode.INLINE_DESCRIPTION} characters",
        f"`max_retry` {heartbeat_md.MAX_RETRY}",
    ),
    "sessions": (
        f"within {delete.LOCK_WAIT:.0f} s leaves everything",
        f"undoes the delete {delete.ABANDONED_AFTER.total_seconds():.0f} s after",
    ),
    "automations": (
        f"up to {dream.MOST_STATES} task states",
        f"at most {dream.LONGEST_MEMORY:,} characters",
        f"last {document_revisions.KEPT} revisions",
        f"{MINUTES[0]}, then {MINUTES[1]}, then {MINUTES[2]} minutes later",
    ),
    "channels/Inbound webhooks": (f"| {receive.MOST_OF_STRANGERS} | {receive.MOST_WAITING}, together",),
}


@pytest.mark.parametrize("place", CLAIMS)
def test_the_bounds_of_a_page_are_those_of_the_code(place: str) -> None:
    name, _, heading = place.partition("/")
    text = section(f"{name}.md", heading) if heading else page(f"{name}.md")
    for claim in CLAIMS[place]:
        assert claim in text, claim


def test_the_longest_model_rest_is_six_hours_as_documented() -> None:
    assert readiness.LONGEST_BACKOFF.total_seconds() == 6 * 3600
    assert "the pause before the next doubles, up to six hours" in page("background.md")


def test_the_instructing_document_names_match_the_page() -> None:
    text = page("tools.md")
    assert " and ".join(sorted(strategies.INSTRUCTING)) == "AGENTS.md and SKILLS.md"
    assert "AGENTS.md, SKILLS.md and the prose of HEARTBEAT.md" in text
