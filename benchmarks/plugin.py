"""A plugin for the measured workers: a model that answers at once, and a Celery task that does nothing.

With a file in BENCH_ASKED the model appends a line to it for each request: the time (`time.monotonic`, which all
processes of a machine share) and the first line of the message.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator

from celery import shared_task

from agent_core import models
from agent_core.llm.protocol import ModelCall, ModelReply

MODEL = "instant"
NOOP = "benchmarks.noop"
ASKED = "BENCH_ASKED"


class InstantModel:
    """Answers with one word in one piece."""

    def __init__(self) -> None:
        path = os.environ.get(ASKED)
        self._asked = path and os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def stream(self, call: ModelCall) -> AsyncIterator[str | ModelReply]:
        now = time.monotonic()
        if self._asked:
            os.write(self._asked, f"{now} {call.entries[-1].content.splitlines()[0]}\n".encode())
        yield "Done."
        yield ModelReply(text="Done.")


@shared_task(name=NOOP, ignore_result=True)
def noop(_session_id: str, _lane: str) -> None:
    """Do nothing; the arguments are those of a hint."""


models.register(MODEL, InstantModel)
