"""A question to a turn's own model, beside its talk: without history and tools, and nobody sees the answer come."""

from __future__ import annotations

from agent_core.exceptions import AgentCoreError
from agent_core.exchange import Exchange, Watch
from agent_core.models import ModelCall, ModelReply
from agent_core.types import Entry, Role, TurnRequest


def ask(request: TurnRequest, watch: Watch, *, system_prompt: str, message: str) -> ModelReply:
    """Return the reply. Raises what an exchange raises."""
    story = Exchange(
        model=request.model,
        call=ModelCall(system_prompt=system_prompt, entries=(Entry(role=Role.USER, content=message),)),
        policy=request.policy,
        watch=watch,
        labels={},
    ).run()
    while True:
        try:
            next(story)
        except StopIteration as end:
            if isinstance(end.value, ModelReply):
                return end.value
            raise AgentCoreError("the exchange ended without a reply") from None
