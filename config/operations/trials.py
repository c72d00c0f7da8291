"""Tests database and broker as a turn uses them (write a row, pass a message), and names the cause of a fault."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import psycopg
from psycopg import errors

from agent_core.exceptions import causes
from agent_core.text.redact import redact
from config.installation import COMMAND
from sessions_app import hints
from sessions_app.postgres.rows import fetch

BROKER_SECONDS = 0.9  # /readyz answers within 2 s, the database's share included
USED_WITH = ("redis", "amqp")  # with other kinds of brokers, a queue of its own for each check costs too much
AMQP = ("amqp://", "amqps://", "pyamqp://")
CHECK_QUEUE = "rondo.check"
# RabbitMQ keeps each connection that it has blocked, so another message is sent after these
BLOCKED_SECONDS = 60.0
LONGEST_REASON = 200
_WRITE = """
INSERT INTO sessions_app_counter AS c (name, labels, value) VALUES ('readiness_checks', '{}', 1)
ON CONFLICT (name, labels) DO UPDATE SET value = c.value + 1, changed_at = now()"""

_DATABASE: tuple[tuple[type[psycopg.Error], str, str], ...] = (  # error, fault, cure; the first match
    (
        errors.ReadOnlySqlTransaction,
        "PostgreSQL is read-only: a replica, or default_transaction_read_only is on",
        "point DATABASE_URL to the primary server, or turn that setting off",
    ),
    (errors.DiskFull, "PostgreSQL's disk is full", "free space on the disk of its data folder"),
    (
        errors.InsufficientPrivilege,
        "the account of DATABASE_URL may not write to the tables",
        "use the account that owns them, or grant it the rights",
    ),
    (errors.UndefinedTable, "the tables are missing", f"run `{COMMAND} migrate`"),
    (errors.UndefinedColumn, "the tables are those of another version", f"run `{COMMAND} migrate`"),
)
_CONNECTING = (  # errors of connecting have no class of their own: pattern of the text, fault, cure; the first match
    (
        r"too many clients|connection slots are reserved|too many connections",
        "all connections of PostgreSQL are taken",
        "raise its max_connections, or the limit of the account or database",
    ),
    (
        r"authentication failed|no password supplied|no pg_hba\.conf entry|role \".*\" does not exist",
        "PostgreSQL refuses the account",
        "correct user and password in DATABASE_URL, or pg_hba.conf",
    ),
    (
        r"database \".*\" does not exist",
        "PostgreSQL has no such database",
        "create it, or correct DATABASE_URL",
    ),
    (
        r"starting up|shutting down|recovery mode",
        "PostgreSQL is starting or shutting down",
        "wait until it has started; its log has the reason",
    ),
)
_BROKER = (  # pattern of an error's class and text, fault, cure; the first match
    (
        r"OutOfMemoryError|\bOOM\b|maxmemory",
        "the broker is at its memory limit and refuses messages",
        "raise its limit (Redis, Valkey: maxmemory), or remove what else it holds",
    ),
    (
        r"ReadOnlyError|READONLY|read only replica",
        "the broker is a read-only replica and refuses messages",
        "point CELERY_BROKER_URL to the primary server",
    ),
    (
        r"MISCONF|No space left",
        "the broker cannot write to its disk and refuses messages",
        "free space on its disk; its log has the reason",
    ),
    (
        r"^Blocked",
        "the broker is short of memory or disk and takes no messages",
        f"free some; `rabbitmq-diagnostics alarms` names which. It is tried again every {BLOCKED_SECONDS:.0f} s",
    ),
    (
        r"NOREPLICAS|NoReplicas",
        "the broker has too few replicas and refuses messages",
        "start its replicas, or lower min-replicas-to-write",
    ),
    (
        r"NOAUTH|WRONGPASS|NOPERM|NoPermission|AuthenticationError|AccessRefused|invalid username-password",
        "the broker refuses the account",
        "correct user, password and rights in CELERY_BROKER_URL and at the broker",
    ),
    (
        r"max number of clients|connection limit|too many connections",
        "all connections of the broker are taken",
        "raise its limit (Redis, Valkey: maxclients)",
    ),
    (
        r"MASTERDOWN|MasterDown",
        "the broker is a replica whose primary is down",
        "start its primary, or point CELERY_BROKER_URL to another server",
    ),
    (r"LOADING|BusyLoading", "the broker is still loading its data", "wait until it has"),
)


_blocked_until = float("-inf")


class Lost(Exception):
    """The broker took the message and did not give it back."""


class Blocked(Exception):
    """The broker has stopped to read what it is sent."""


def write_row() -> None:
    """Commit a row, as each turn does."""
    fetch(_WRITE)


def database_fault(error: Exception) -> tuple[str, str]:
    """Return what is wrong with the database, and the cure."""
    for each in causes(error):
        for kind, fault, cure in _DATABASE:
            if isinstance(each, kind):
                return fault, cure
    said = "\n".join(map(str, causes(error)))
    unknown = f"the database does not answer, or reports an error ({_reason(error)})"
    cure = f"start it and run `{COMMAND} migrate`, or correct DATABASE_URL"
    return _known(said, _CONNECTING) or (unknown, cure)


def pass_message() -> None:
    """Send a message through the broker and fetch it. Raises TimeoutError, Lost, Blocked or an error of its client."""
    if time.monotonic() < _blocked_until:
        raise Blocked
    with hints.celery_app().connection_for_write() as link:
        _ = link.transport  # imports the broker's client, which is not the broker's time
    with_limit = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rondo-broker-check")
    passed = with_limit.submit(_pass_message)
    with_limit.shutdown(wait=False)  # each of its calls has a limit, so the thread ends soon
    wait([passed], BROKER_SECONDS)
    if time.monotonic() < _blocked_until:
        raise Blocked
    if not passed.done():
        raise TimeoutError(f"no answer within {BROKER_SECONDS} s")
    passed.result()


def broker_fault(error: Exception) -> tuple[str, str]:
    """Return what is wrong with the broker, and the cure."""
    if isinstance(error, Lost):
        return "the broker loses messages", "look for its limits on queues and memory, and into its log"
    said = "\n".join(f"{type(each).__name__}: {each}" for each in causes(error))
    unknown = f"the broker does not answer ({_reason(error)})"
    return _known(said, _BROKER) or (unknown, "start it, or correct CELERY_BROKER_URL")


def _known(said: str, faults: Iterable[tuple[str, str, str]]) -> tuple[str, str] | None:
    return next(((fault, cure) for pattern, fault, cure in faults if re.search(pattern, said)), None)


def _pass_message() -> None:
    from kombu import Exchange, Queue

    # transports have different names for their timeouts; all get the same short one
    app = hints.celery_app()
    options: dict[str, Any] = {
        name: BROKER_SECONDS if "timeout" in name else value
        for name, value in app.conf.broker_transport_options.items()
    }
    if app.conf.broker_url.startswith(AMQP):
        options |= {"read_timeout": BROKER_SECONDS, "on_blocked": _note_blocked}
    with app.connection_for_write(connect_timeout=BROKER_SECONDS, transport_options=options) as link:
        link.ensure_connection(max_retries=0, timeout=1)
        if link.transport.driver_type not in USED_WITH:
            return
        name = f"{CHECK_QUEUE}.{uuid.uuid4().hex}"
        with link.channel() as channel:
            queue = Queue(name, Exchange(""), name, durable=False, exclusive=True, auto_delete=True)
            bound = queue(channel)
            bound.queue_declare()
            link.Producer(channel).publish(name, routing_key=name, delivery_mode=1, retry=False)
            try:
                message = bound.get(no_ack=True)
            finally:
                bound.delete()
            if message is None or message.payload != name:
                raise Lost


def _note_blocked(_reason: str) -> None:
    """Note that the broker is blocked. The wait for its answer then ends by its limit."""
    global _blocked_until  # noqa: PLW0603 - one for the process: each message costs the broker a connection
    _blocked_until = time.monotonic() + BLOCKED_SECONDS


def _reason(error: Exception) -> str:
    """Class and first line of an error, without secrets."""
    line = next(iter(str(error).splitlines()), "")
    return redact(f"{type(error).__name__}: {line}" if line else type(error).__name__)[:LONGEST_REASON]
