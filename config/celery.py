"""The Celery app of workers and beats: `celery -A config worker`, `celery -A config beat`.

Celery carries only hints ("this session has work"); all state is in PostgreSQL. So tasks are acknowledged early and
have no results, and a broker that hangs delays work by a second at most and never loses a turn.
"""

import logging.config
import os
import socket
from typing import Any

from celery import Celery
from celery.signals import celeryd_init, setup_logging
from django.conf import settings
from kombu import Exchange, Queue

from config.env import queues_of

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# Celery would run Django's system checks in each worker, ignore what they find, and load the whole web side for them
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

REDIS_SCHEMES = ("redis://", "rediss://", "valkey://", "valkeys://", "unix://")
BROKER_SECONDS = 1.0  # longest wait for a broker that does not answer (with Celery's defaults over 12 s)
SILENCE_SECONDS = 5  # a consumer reconnects after about twice as long without a word from the broker
KEEPALIVE = {
    socket.TCP_KEEPIDLE: 5,  # seconds
    socket.TCP_KEEPINTVL: 2,  # seconds
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 15_000,  # milliseconds
}


def _queue(name: str) -> Queue:
    # the exchange that Celery makes for an undeclared queue, so that all processes declare the same one
    return Queue(name, Exchange(name, type="direct"), routing_key=name)


def _transport_options(broker_url: str) -> dict[str, Any]:
    # publishing to a dead broker fails at once; workers reconnect all the same
    once: dict[str, Any] = {"max_retries": 0}
    if broker_url.startswith(REDIS_SCHEMES):
        return once | {
            # a hint need not be stored again until it is acknowledged, by two transactions: the sweep sends a lost one
            "ack_emulation": False,
            "socket_timeout": BROKER_SECONDS,
            "socket_connect_timeout": BROKER_SECONDS,
            "socket_keepalive": True,
            "socket_keepalive_options": KEEPALIVE,
            "health_check_interval": SILENCE_SECONDS,
        }
    if broker_url.startswith(("amqp://", "amqps://", "pyamqp://")):
        return once | {"connect_timeout": BROKER_SECONDS, "write_timeout": BROKER_SECONDS}
    return {}


app = Celery("rondo", set_as_current=True)
_queues = queues_of(settings.TURN_QUEUES, settings.TURN_SHARDS) or settings.ALL_QUEUES

app.set_default()  # also for threads without a current app
app.conf.update(
    broker_url=settings.CELERY_BROKER_URL,
    broker_connection_timeout=BROKER_SECONDS,
    broker_heartbeat=2 * SILENCE_SECONDS,  # AMQP only, where both sides send heartbeats
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,  # reconnect however long the broker was away
    broker_transport_options=_transport_options(settings.CELERY_BROKER_URL),
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=False,
    task_publish_retry=False,
    task_default_queue="turns.any",
    task_queues=[_queue(name) for name in _queues],
    task_create_missing_queues=True,
    worker_pool="threads",
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=settings.CELERY_BROKER_URL.startswith(REDIS_SCHEMES),
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_send_task_events=False,
    # unused; its exclusive queue also ends a worker that reconnects before RabbitMQ has closed the old connection
    worker_enable_remote_control=False,
    worker_cancel_long_running_tasks_on_connection_loss=True,  # there are no such tasks; unset, Celery warns
    beat_scheduler="automations.beat:Scheduler",
    timezone="UTC",
    enable_utc=True,
)
app.autodiscover_tasks()


@celeryd_init.connect(weak=False)
def _print_no_banner(instance: Any, **_: Any) -> None:
    """With `LOG_FORMAT=json`, standard output and error hold nothing but lines of JSON."""
    if settings.LOG_FORMAT == "json":
        from celery.apps import worker

        instance.quiet = True
        worker.safe_say = lambda *_: None  # type: ignore[attr-defined]  # "worker: Warm shutdown"; our own line says so
        logging.captureWarnings(True)


@setup_logging.connect(weak=False)
def _keep_our_logging(**_: Any) -> None:
    """Use our logging configuration; without a receiver of this signal Celery sets up its own."""
    logging.config.dictConfig(settings.LOGGING)
