"""The Celery tasks that carry hints, and the worker process behind them."""

from __future__ import annotations

import gc
import os
import threading
import uuid
from collections.abc import Iterable
from typing import Any

import structlog
from celery import shared_task, signals
from celery.concurrency.thread import TaskPool
from celery.worker import state
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from agent_core.process import PerProcess
from sessions_app import hints
from sessions_app.turns.run import run_next_turn
from sessions_app.worker.process import WorkerProcess

log = structlog.get_logger(__name__)

_process: PerProcess[WorkerProcess] = PerProcess()


def _start(queues: Iterable[str], slots: int) -> WorkerProcess:
    def started() -> WorkerProcess:
        process = WorkerProcess(queues, slots)
        _process.put(process)  # before it starts: a stop signal may arrive meanwhile
        process.start()
        return process

    return _process.get(started)


def _current() -> WorkerProcess:
    """Return the worker of this process. A child of a process pool gets no signal, so its first task starts one."""
    return _start(settings.ALL_QUEUES, os.cpu_count() or 1)


def _wake_loop_for_free_slots(consumer: Any) -> None:
    """Wake Celery's event loop whenever a slot becomes free.

    Celery's thread pool does not do it: a full worker without prefetching would notice up to a second later.
    """
    if not isinstance(consumer.pool, TaskPool):
        return  # other pools have pipes that wake the loop
    apply = consumer.pool.on_apply

    def on_apply(*args: Any, **kwargs: Any) -> Any:
        result = apply(*args, **kwargs)
        result.f.add_done_callback(
            lambda _: consumer.hub.call_soon(bool)
        )  # `bool` does nothing: it only wakes
        return result

    consumer.pool.on_apply = on_apply  # type: ignore[method-assign]


def _is_stopping() -> bool:
    return any(flag is not None for flag in (state.should_stop, state.should_terminate))


@signals.worker_ready.connect(weak=False)
def _ready(sender: Any, **_: Any) -> None:
    _wake_loop_for_free_slots(sender)
    process = _start(sorted(sender.app.amqp.queues.consume_from), sender.pool.limit)
    process.wait_until_registered(_is_stopping)
    gc.collect()
    gc.freeze()  # what is loaded stays, and a full collection, which stops every turn, need not scan it


@signals.worker_shutting_down.connect(weak=False)
def _shutting_down(**_: Any) -> None:
    # a signal handler interrupts the main thread, which may hold a lock: do the work in another thread
    if process := _process.peek():
        threading.Thread(target=process.begin_stop, name="rondo-stop").start()


@signals.worker_shutdown.connect(weak=False)
def _shutdown(**_: Any) -> None:
    if process := _process.peek():
        process.end()


@shared_task(name=hints.TASK, ignore_result=True)
def run_session(session_id: str, lane: str) -> None:
    """Run the next turn of a session. A repeated, late or wrong hint is harmless."""
    process = _current()
    session = uuid.UUID(session_id)
    if process.stopping.is_set():
        hints.wake(session, lane)  # for another worker
        return
    try:
        run_next_turn(process, session, lane)
    except (OperationalError, InterfaceError) as error:
        log.warning("hint_left", session=session_id, error=type(error).__name__)  # the sweep hints again
    finally:
        connection.close()


@shared_task(name=hints.MAINTENANCE, ignore_result=True)
def start_maintenance(chore: str = "") -> None:
    """Start a round of maintenance, or one chore of it, in a thread of its own."""
    process = _current()
    if not process.stopping.is_set():
        process.begin_maintenance(chore)


@shared_task(name=hints.DELIVER, ignore_result=True)
def deliver(session_id: str, channel: str) -> None:
    """Pass a lane of deliveries to the dispatcher's threads, so that this slot is free at once."""
    _current().dispatcher.take(hints.DeliveryLane(session_id=uuid.UUID(session_id), channel=channel))
