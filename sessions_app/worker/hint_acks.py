"""Hints from Redis or Valkey are taken without being stored until they are acknowledged.

For each message that a worker takes, kombu stores a copy in the broker, in one transaction, and deletes it in another,
so that it can be delivered again. A hint need not be: whatever becomes of it, the sweep sends it again. RabbitMQ keeps
its messages itself until they are acknowledged, which costs the worker next to nothing.
"""

from __future__ import annotations

from kombu.transport import redis, virtual


class UnstoredHints(redis.QoS):
    """Counts the messages that are at work, for the limit of messages taken ahead, and stores none of them."""

    restore_at_shutdown = False  # there is nothing to restore from
    append = virtual.QoS.append
    ack = virtual.QoS.ack


def store_no_hints() -> None:
    """Take hints this way in all connections of this process to Redis or Valkey that are opened from now on."""
    redis.Channel.QoS = UnstoredHints
