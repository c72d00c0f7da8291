"""A plugin for the measured workers: a model that answers at once, and a Celery task that does nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

from celery import shared_task

from agent_core import models
from agent_core.llm.protocol import ModelCall, ModelReply

MODEL = "instant"
NOOP = "benchmarks.noop"


class InstantModel:
    """Answers with one word in one piece."""

    async def stream(self, _call: ModelCall) -> AsyncIterator[str | ModelReply]:
        yield "Done."
        yield ModelReply(text="Done.")


@shared_task(name=NOOP, ignore_result=True)
def noop(_session_id: str, _lane: str) -> None:
    """Do nothing; the arguments are those of a hint."""


models.register(MODEL, InstantModel)
