"""The Celery app of workers and beats: `celery -A config worker`, `celery -A config beat`.

Celery carries hints ("this session has work") and nothing else; the truth is in PostgreSQL. So hints are
acknowledged early, have no results, and a broker that hangs may cost a second, never a turn.
"""

import logging.config
import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging
from django.conf import settings
from kombu import Exchange, Queue

from config.env import all_queues

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

REDIS_SCHEMES = ("redis://", "rediss://", "valkey://", "valkeys://", "unix://")
BROKER_SECONDS = 1.0  # longest wait for a broker that does not answer (a default publish waited over 12 s)


def _queue(name: str) -> Queue:
    # The exchange Celery would make for an undeclared queue, so every process declares the same thing.
    return Queue(name, Exchange(name, type="direct"), routing_key=name)


def _transport_options(broker_url: str) -> dict[str, Any]:
    once: dict[str, Any] = {
        "max_retries": 0
    }  # a publish to a dead broker fails at once; workers reconnect all the same
    if broker_url.startswith(REDIS_SCHEMES):
        return {**once, "socket_timeout": BROKER_SECONDS, "socket_connect_timeout": BROKER_SECONDS}
    if broker_url.startswith(("amqp://", "amqps://", "pyamqp://")):
        return {**once, "connect_timeout": BROKER_SECONDS, "write_timeout": BROKER_SECONDS}
    return {}


app = Celery("rondo", set_as_current=True)
app.set_default()  # threads without a current app get this one too
app.conf.update(
    broker_url=settings.CELERY_BROKER_URL,
    broker_connection_timeout=BROKER_SECONDS,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,  # a broker that comes back is found again, however long it was away
    broker_transport_options=_transport_options(settings.CELERY_BROKER_URL),
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=False,
    task_publish_retry=False,
    task_default_queue="turns.any",
    task_queues=[_queue(name) for name in settings.TURN_QUEUES or all_queues(settings.TURN_SHARDS)],
    task_create_missing_queues=True,
    worker_pool="threads",
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=settings.CELERY_BROKER_URL.startswith(REDIS_SCHEMES),
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_send_task_events=False,
    worker_cancel_long_running_tasks_on_connection_loss=True,  # of late-acknowledged tasks, so none; unset, it warns
    beat_scheduler="automations.beat:Scheduler",
    timezone="UTC",
    enable_utc=True,
)
app.autodiscover_tasks()


@setup_logging.connect(weak=False)
def _keep_our_logging(**_: Any) -> None:
    """A receiver on this signal keeps Celery from setting up logging of its own."""
    logging.config.dictConfig(settings.LOGGING)
