"""The Celery task of hints, and the worker process behind it."""

from __future__ import annotations

import os
import threading
import uuid
from typing import Any

from celery import shared_task, signals
from celery.concurrency.thread import TaskPool
from celery.worker import state
from django.db import connection

from sessions_app import wake
from sessions_app.models import Lane
from sessions_app.turn import run_next_turn
from sessions_app.worker import WorkerProcess

_processes: dict[int, WorkerProcess] = {}  # by process id: a forked child starts its own
_guard = threading.Lock()


def _start(queues: list[str], slots: int) -> WorkerProcess:
    with _guard:
        if os.getpid() not in _processes:
            _processes[os.getpid()] = WorkerProcess(queues, slots)
            _processes[os.getpid()].start()
        return _processes[os.getpid()]


def _tell_loop_of_free_slots(consumer: Any) -> None:
    """Wake Celery's event loop whenever a slot is free.

    Its thread pool does not: a full worker that takes nothing in advance would look again up to a second later.
    """
    if not isinstance(consumer.pool, TaskPool):
        return  # other pools have pipes that wake the loop
    apply = consumer.pool.on_apply

    def on_apply(*args: Any, **kwargs: Any) -> Any:
        result = apply(*args, **kwargs)
        result.f.add_done_callback(lambda _: consumer.hub.call_soon(bool))  # `bool`: nothing but the waking
        return result

    consumer.pool.on_apply = on_apply  # type: ignore[method-assign]


def _told_to_stop() -> bool:
    return any(flag is not None for flag in (state.should_stop, state.should_terminate))


@signals.worker_ready.connect(weak=False)
def _ready(sender: Any, **_: Any) -> None:
    consumer = sender
    _tell_loop_of_free_slots(consumer)
    process = _start(sorted(consumer.app.amqp.queues.consume_from), consumer.pool.limit)
    process.wait_until_signed_in(_told_to_stop)


@signals.worker_shutting_down.connect(weak=False)
def _shutting_down(**_: Any) -> None:
    # a signal handler interrupts whatever the main thread holds: do the work elsewhere
    if process := _processes.get(os.getpid()):
        threading.Thread(target=process.begin_stop, name="rondo-stop").start()


@signals.worker_shutdown.connect(weak=False)
def _shutdown(**_: Any) -> None:
    if process := _processes.get(os.getpid()):
        process.end()


@shared_task(name=wake.TASK, ignore_result=True)
def run_session(session_id: str, lane: str) -> None:
    """A hint: this session has work. Twice, late or wrong is harmless."""
    process = _start(wake.shard_queues(), os.cpu_count() or 1)
    session = uuid.UUID(session_id)
    if process.stopping.is_set():
        wake.wake(session, lane)  # put back for somebody who stays
        return
    try:
        if lane == Lane.AUTO:
            _run_automation(process, session)
        else:
            run_next_turn(process, session, lane)
    finally:
        connection.close()


@shared_task(name=wake.MAINTENANCE, ignore_result=True)
def maintain() -> None:
    """A hint: there may be something to prune."""
    process = _start(wake.shard_queues(), os.cpu_count() or 1)
    if not process.stopping.is_set():
        process.begin_maintenance()


@shared_task(name=wake.POST, ignore_result=True)
def deliver(session_id: str, channel: str) -> None:
    """A hint: this session has something to send. The postman's threads do it, not this slot."""
    process = _start(wake.shard_queues(), os.cpu_count() or 1)
    process.postman.take(wake.PostLane(session_id=uuid.UUID(session_id), channel=channel))


def _run_automation(process: WorkerProcess, session: uuid.UUID) -> None:
    """Automations use only a part of the slots."""
    if not process.auto_slots.acquire(blocking=False):
        process.park(session)
        return
    try:
        run_next_turn(process, session, Lane.AUTO)
    finally:
        process.auto_slots.release()
        parked = process.unpark()
        if parked is not None:
            wake.wake(parked, Lane.AUTO)
