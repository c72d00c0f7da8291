"""A plugin for the measured workers: a model that answers at once, one that streams, and a task that does nothing.

With a file in BENCH_ASKED the model that answers at once appends a line to it for each request: the time
(`time.monotonic`, which all processes of a machine share) and the first line of the message. The one that streams
has the time of its first piece (`time.time`, as browsers count) in that piece. With BENCH_ONE_BY_ONE the worker does
not go on with a session after a turn.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

from celery import shared_task, signals
from kombu.transport import redis, virtual

from agent_core import models
from agent_core.llm.protocol import ModelCall, ModelReply

MODEL = "instant"
STREAMING = "streaming"
STREAM_SECONDS = 0.4  # between its first piece and its last
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


class StreamingModel:
    """Answers with the time in milliseconds, then with one more word."""

    async def stream(self, _call: ModelCall) -> AsyncIterator[str | ModelReply]:
        first = f"At {time.time() * 1000:.1f} ms "
        yield first
        await asyncio.sleep(STREAM_SECONDS)
        yield "done."
        yield ModelReply(text=f"{first}done.")


@shared_task(name=NOOP, ignore_result=True)
def noop(_session_id: str, _lane: str) -> None:
    """Do nothing; the arguments are those of a hint."""


class AcknowledgedNoops(redis.QoS):
    """No-op tasks as Celery takes tasks by default, stored until they are acknowledged; hints as Rondo takes them."""

    def append(self, message: Any, delivery_tag: str) -> None:
        taken = redis.QoS if message.headers["task"] == NOOP else virtual.QoS
        taken.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        message = self._delivered.get(delivery_tag) if self._delivered else None
        taken = redis.QoS if message is not None and message.headers["task"] == NOOP else virtual.QoS
        taken.ack(self, delivery_tag)


@signals.celeryd_after_setup.connect(weak=False)
def _set_up_worker(conf: Any, **_: Any) -> None:
    if conf.broker_transport_options.pop("ack_emulation", True) is False:
        redis.Channel.QoS = AcknowledgedNoops


models.register(MODEL, InstantModel)
models.register(STREAMING, StreamingModel)
