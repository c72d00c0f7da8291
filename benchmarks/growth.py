"""The tokens of an automation's runs over many slots, compared with the dearest of its first ten."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from benchmarks import data
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

TARGET, FIRST = 1.2, 10
MODEL = "talkative"
STATE = json.dumps(
    {
        "current_goal": "watch",
        "active_flow": "",
        "open_loops": [],
        "important_facts": [],
        "last_decision": "",
    }
)
ANSWER = "The weather is fine, and nothing new was said about it. " * 30


class TalkativeModel:
    """Calls a tool, then answers at length. It counts the tokens of its requests, also those for task state."""

    def __init__(self) -> None:
        self.tokens = 0

    async def stream(self, call: Any) -> AsyncIterator[Any]:
        from agent_core.llm import tokens
        from agent_core.llm.protocol import ModelReply
        from agent_core.types import Role, ToolCall

        self.tokens += tokens.of_text(call.system_prompt) + sum(map(tokens.of_entry, call.entries))
        if not call.tools:  # it is asked for task state
            yield ModelReply(text=STATE)
        elif call.entries[-1].role is not Role.TOOL:
            yield ModelReply(text="", calls=(ToolCall(id="1", name="current_time", arguments={}),))
        else:
            yield ANSWER
            yield ModelReply(text=ANSWER)


def run(_servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Fire all slots of one automation, one after the other, and run their turns in this process."""
    from agent_core import models

    model = TalkativeModel()
    models.register(MODEL, lambda: model)
    [session] = data.sessions(data.person(MODEL), 1)
    job, used = _automation(session), list[int]()
    for slot in range(1, sizes.recurring + 1):
        before = model.tokens
        _run_slot(job, session)
        used.append(model.tokens - before)
        if slot % 100 == 0:
            say(f"{slot:,} slots, the last one used {used[-1]:,} tokens")
    usual, rest = max(used[:FIRST]), used[FIRST:]
    return [
        Figure(
            name="tokens of a recurring run to the dearest of the first ten",
            value=sum(rest) / len(rest) / usual,
            at_most=TARGET,
            note=f"{sizes.recurring:,} slots, at first {usual:,} tokens, the dearest {max(used):,}",
        )
    ]


def _automation(session: Any) -> Any:
    from automations.jobs.edit import NewJob, create_job

    every = {"kind": "every", "seconds": 3600}
    return create_job(NewJob(session_id=session.pk, message="What is new?", schedule=every))


def _run_slot(job: Any, session: Any) -> None:
    from datetime import timedelta

    from django.db.models import F
    from django.db.models.functions import Now

    from automations.firing.fire_jobs import fire_due_jobs
    from automations.models import JobClock
    from sessions_app.turns.claim import claim_next
    from sessions_app.turns.lock import Handle
    from sessions_app.turns.run import _finish

    earlier = F("last_slot") - timedelta(hours=2)
    JobClock.objects.filter(job=job).update(next_run_at=Now(), last_slot=earlier)
    fire_due_jobs()
    turn = claim_next(session.pk, uuid.uuid4(), auto_allowed=True)
    if turn is None:
        raise RuntimeError("the slot made no turn")
    _finish(Handle(session_id=session.pk, turn_id=turn.pk, claim=turn.claim), turn)
