"""Reads the updates of bots in a worker process: each bot in one process at a time, by an advisory lock.

A process that dies loses its locks with its connection, and another one goes on. Updates that it had stored and
not confirmed come again, and have no second effect. Errors are waited out; every wait has an end.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.db.models.functions import Now

from agent_core import process
from interfaces.telegram.updates import NotServed, Reply, handle
from sessions_app.exceptions import UnreadableSecret
from sessions_app.models import TelegramBot, TelegramChat, Turn, TurnKind, TurnState
from sessions_app.postgres.connection import connect_directly
from sessions_app.telegram.bots import note_state, token_of
from sessions_app.telegram.client import POLL, ApiError, Client, client_of, is_installed

log = structlog.get_logger(__name__)

MOST_BOTS = 1_000  # that one process looks at
THREADS = 4  # that store updates
LONGEST_BACKOFF = 60.0  # seconds
TYPING_EVERY = 4.5  # seconds; Telegram shows the sign for five
SHORTEST_POLL = 1.0  # seconds; an empty answer that comes sooner is an error
LONGEST_TYPING = timedelta(minutes=5)  # after which a turn that still runs shows nothing
MOST_TYPING = 100  # chats at a time
TRIES = 3  # of an update that fails for another reason than the database
_TRY = "SELECT key, pg_try_advisory_lock(key) FROM unnest(%s::bigint[]) AS key"
_SERVER = {"idle_session_timeout": "60s"}  # a stopped process loses its locks after this time


@dataclass(frozen=True, kw_only=True)
class Served:
    """A bot whose updates are read here."""

    agent_id: int
    revision: int
    token: str = field(repr=False)


def lock_key(agent_id: int) -> int:
    """The advisory lock key of the bot: 64 bits, signed."""
    digest = hashlib.blake2b(f"rondo:telegram:{agent_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


class Pollers:
    """The polls of one worker process. Call `keep` again and again, and `stop` at the end, from one thread."""

    def __init__(self) -> None:
        self._polls: dict[int, tuple[Served, Future[None]]] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._typing = TypingSigns()
        self._next_look = 0.0

    def keep(self) -> None:
        """Start and end polls as the stored bots say. Without bots it costs one query every few seconds."""
        if self._polls and not self._has_locks():
            self._end_all()
            self._next_look = 0.0
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + settings.RONDO_SWEEP_SECONDS
            self._adjust(_wanted())
        if self._polls:
            self._typing.show({each: served.token for each, (served, _) in self._polls.items()})

    def stop(self) -> None:
        """End all polls, and release the locks."""
        self._end_all()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _adjust(self, wanted: dict[int, int]) -> None:
        for agent_id, (served, poll) in list(self._polls.items()):
            if wanted.get(agent_id) != served.revision or poll.done():
                self._end(agent_id)
        for agent_id in self._take_locks(wanted.keys() - self._polls.keys()):
            self._begin(agent_id, wanted[agent_id])
        if not wanted:
            self._disconnect()

    def _begin(self, agent_id: int, revision: int) -> None:
        served = _served(agent_id, revision)
        if served is None:
            self._unlock(agent_id)
            return
        self._threads = self._threads or ThreadPoolExecutor(THREADS, thread_name_prefix="rondo-telegram")
        self._polls[agent_id] = (served, process.submit(Poll(served, self._threads).run()))
        log.info("telegram_poll_began", agent=agent_id)

    def _end(self, agent_id: int) -> None:
        _, poll = self._polls.pop(agent_id)
        poll.cancel()
        self._unlock(agent_id)
        log.info("telegram_poll_ended", agent=agent_id)

    def _end_all(self) -> None:
        for agent_id in list(self._polls):
            self._end(agent_id)
        self._disconnect()

    def _take_locks(self, agent_ids: Iterable[int]) -> list[int]:
        """Try the locks of these bots; returns the bots whose locks are ours now."""
        by_key = {lock_key(agent_id): agent_id for agent_id in agent_ids}
        if not by_key:
            return []
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect_directly(settings.DATABASE_LOCK_URL, "rondo telegram", _SERVER)
            rows = self._connection.execute(_TRY, [list(by_key)]).fetchall()
        except psycopg.Error as error:
            log.warning("telegram_lock_failed", error=type(error).__name__)
            return []
        return [by_key[key] for key, is_locked in rows if is_locked]

    def _unlock(self, agent_id: int) -> None:
        try:
            if self._connection is not None:
                self._connection.execute("SELECT pg_advisory_unlock(%s)", [lock_key(agent_id)])
        except psycopg.Error:
            log.debug("unlock_on_a_lost_connection", agent=agent_id)  # the lock died with it

    def _has_locks(self) -> bool:
        """Whether the connection with the locks lives. A lost one means that another process may poll already."""
        try:
            if self._connection is None:
                return False
            self._connection.execute("SELECT 1")
        except psycopg.Error as error:
            log.warning("telegram_locks_lost", error=type(error).__name__)
            return False
        return True

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _wanted() -> dict[int, int]:
    """The bots that are on, of active owners, with their revisions."""
    if not is_installed():
        return {}
    rows = TelegramBot.objects.filter(enabled=True, agent__owner__is_active=True).order_by("pk")
    return dict(rows.values_list("pk", "revision")[:MOST_BOTS])


def _served(agent_id: int, revision: int) -> Served | None:
    """The bot with its token. None if it cannot be read, or the bot has changed."""
    row = TelegramBot.objects.filter(pk=agent_id, revision=revision).first()
    if row is None:
        return None
    try:
        return Served(agent_id=agent_id, revision=revision, token=token_of(row))
    except UnreadableSecret:
        note_state(agent_id, revision, "its token cannot be read, because SECRET_KEY has changed")
        return None


class Poll:
    """The poll of one bot: ask for updates, store each, confirm them with the next question."""

    def __init__(self, served: Served, threads: ThreadPoolExecutor) -> None:
        self._served, self._threads = served, threads
        self._offset: int | None = None
        self._failures = 0
        self._noted: str | None = None

    async def run(self) -> None:
        """Poll until it is cancelled, or the bot is not served any more."""
        client = client_of(self._served.token)
        wait = 0  # the first answer comes at once, so that it is known whether the bot is read
        while True:
            try:
                asked_at = time.monotonic()
                updates = await client.updates(self._offset, wait)
                await self._note("")
                if wait and not updates and time.monotonic() - asked_at < SHORTEST_POLL:
                    await self._wait()  # a server between us and Telegram does not wait for updates
                    continue
                wait = POLL
                for update in updates:
                    await self._take(client, update)
                self._failures = 0
            except NotServed:
                return
            except ApiError as error:
                await self._note(str(error))
                await self._wait(error.wait)
            except (OperationalError, InterfaceError) as error:  # it comes again, since it was not confirmed
                log.warning("telegram_update_waits", error=type(error).__name__)
                await self._wait()
            except Exception:  # of the library; logs hide the token that its text may contain
                log.exception("telegram_poll_failed")
                await self._note("an update cannot be read")
                await self._wait()

    async def _take(self, client: Client, update: Any) -> None:
        """Store one update, then send the person the reply, if there is one."""
        reply = None
        for number in range(1, TRIES + 1):
            try:
                reply = await self._in_thread(handle, self._served.agent_id, update)
                break
            except (NotServed, OperationalError, InterfaceError):
                raise
            except Exception as error:
                if number == TRIES:  # one update must not hold up those behind it for ever
                    log.exception("telegram_update_skipped", update=update.update_id)
                else:
                    log.warning("telegram_update_failed", update=update.update_id, error=type(error).__name__)
        self._offset = update.update_id + 1
        if reply is not None:
            await _tell(client, reply)

    async def _note(self, error: str) -> None:
        if error == self._noted:
            return
        try:
            await self._in_thread(note_state, self._served.agent_id, self._served.revision, error)
            self._noted = error
        except (OperationalError, InterfaceError):
            log.warning("telegram_state_not_noted", error=error)

    async def _in_thread(self, run: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _and_close, run, *arguments)

    async def _wait(self, least: float = 0.0) -> None:
        """Wait longer after each failure in a row, and at least as long as Telegram asks."""
        self._failures += 1
        backoff = min(2.0 ** min(self._failures - 1, 10), LONGEST_BACKOFF)
        await asyncio.sleep(max(backoff * random.uniform(0.8, 1.2), least))  # noqa: S311 - no secret


def _and_close(run: Any, *arguments: Any) -> Any:
    try:
        return run(*arguments)
    finally:
        connection.close()


async def _tell(client: Client, reply: Reply) -> None:
    """Send a reply to the person. If that fails, the reply is dropped."""
    try:
        if reply.press_id:
            await client.answer_press(reply.press_id, reply.text)
            if reply.message_id:
                await client.remove_buttons(reply.chat_id, reply.message_id)
        elif reply.is_typing:
            await client.show_typing(reply.chat_id)
        else:
            await client.send(reply.chat_id, reply.text)
    except ApiError as error:
        log.info("telegram_reply_left_out", error=str(error))


class TypingSigns:
    """Shows in Telegram that answers are being written. At most one round of such signs is on its way."""

    def __init__(self) -> None:
        self._next = 0.0
        self._running: list[Future[None]] = []

    def show(self, tokens: Mapping[int, str]) -> None:
        """Show the signs that are due, for the bots of these agents."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + TYPING_EVERY
        self._running = [each for each in self._running if not each.done()]
        if self._running:
            return
        for agent_id, chat_id in _writing(list(tokens)):
            sign = client_of(tokens[agent_id]).show_typing(chat_id)
            self._running.append(process.submit(_quietly(sign)))


def _writing(agent_ids: list[int]) -> list[tuple[int, int]]:
    """Agents and connected chats in which the turn of a message runs."""
    running = Turn.objects.filter(
        state=TurnState.RUNNING,
        kind=TurnKind.MESSAGE,
        session__channel="telegram",
        session__agent__in=agent_ids,
        started_at__gt=Now() - LONGEST_TYPING,
    )
    pairs = set(running.values_list("session__agent_id", "session__chat_id")[:MOST_TYPING])
    chats = TelegramChat.objects.filter(
        bot__in=[agent for agent, _ in pairs],
        chat_id__in=[int(chat) for _, chat in pairs if chat.isdigit()],
        blocked_at=None,
    )
    known = chats.values_list("bot_id", "chat_id") if pairs else ()
    return [(agent, chat) for agent, chat in known if (agent, str(chat)) in pairs]


async def _quietly(call: Coroutine[Any, Any, None]) -> None:
    try:
        await call
    except ApiError as error:
        log.debug("typing_not_shown", error=str(error))


def run_until(ended: threading.Event, stopping: threading.Event, tick: float) -> None:
    """Keep the polls of this process until one of the events is set."""
    pollers = Pollers()
    while not stopping.is_set() and not ended.wait(tick):
        try:
            pollers.keep()
        except Exception:  # the database is away, or a bug: the loop must go on
            log.exception("telegram_polls_failed")
        finally:
            connection.close()
    pollers.stop()
