"""The ASGI application: Django with bounded bodies and thread pools. A request takes a thread, an open stream does not.

Django's own handler keeps a thread for each request until its response is closed, so one for each open stream. Here
middleware and view run together in one thread, which keeps no database connection afterwards. A response that
continues (a stream, or one with `later`) does so on the event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from django.conf import settings
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.exception import response_for_exception
from django.db import connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import set_script_prefix
from prometheus_client import Counter, Histogram

from interfaces.http.errors.problems import plain_text, problem, server_busy
from interfaces.http.server.bodies import Bodies, Body, Refused
from interfaces.http.server.headers import path_in
from interfaces.protocols import API, is_for_programs
from sessions_app.exceptions import NoThreadFree
from sessions_app.postgres.connection import count_wait, time_limit

T = TypeVar("T")

PATIENCE = 5.0  # seconds that a request waits for a thread
REQUEST_SECONDS = 8.0  # that a request waits for the database, so that it is answered within 10 (rule 10.0)
QUICK_SECONDS = 1.0  # shorter waits do not count: a request may send many statements
STREAM_THREADS = 4  # that open streams: after a restart all clients reconnect at once
WATCHER_THREADS = {"/healthz": 1, "/readyz": 4, "/metrics": 2}  # so that they never wait for other requests
RETRY_AFTER = (1, 6)  # seconds, at random, so that refused clients do not all return at once
STOPS = Refused(
    503,
    "unavailable",
    "The server is being stopped. What was sent may have been stored: ask again, with the same Idempotency-Key.",
)

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE = "none"  # an address that leads nowhere, or a request that no thread took: clients choose no labels
REQUESTS = Counter(
    "rondo_http_requests", "Answered HTTP requests of this process.", ["method", "route", "status"]
)
DURATION = Histogram(
    "rondo_http_request_duration_seconds",
    "Seconds until the head of an answer was ready. Streams and waits by Prefer go on after it.",
    ["method", "route"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)


class Handler(ASGIHandler):
    """Django's ASGI application with our limits. `begin` and `end` run in a thread when the server begins and ends."""

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self.load_middleware(is_async=False)
        self._begin, self._end = begin, end
        self._bodies = Bodies()
        options: Any = settings.DATABASES["default"]["OPTIONS"]
        self._requests = RequestThreads("request", 2 * options["pool"]["max_size"])
        self._streams = RequestThreads("opening", STREAM_THREADS)
        self._watchers = {path: RequestThreads(path[1:], count) for path, count in WATCHER_THREADS.items()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request, or the life of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        has_begun = False

        async def noted(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._read_and_answer(scope, receive, noted)
        except asyncio.CancelledError:  # the server stops: uvicorn cancels what has not ended within its time
            if has_begun:
                raise
            await self.send_response(_refusal(path_in(scope), STOPS), send)

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.to_thread(self._begin)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.to_thread(self._end)
        await send({"type": "lifespan.shutdown.complete"})

    async def _read_and_answer(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            body = await self._bodies.read(scope, receive)
        except RequestAborted:
            return
        except Refused as refused:
            await self.send_response(_refusal(path_in(scope), refused), send)
            return
        try:
            await self._answer_unless_left(scope, body, receive, send)
        finally:
            body.release()

    async def _answer_unless_left(self, scope: Any, body: Body, receive: Any, send: Any) -> None:
        """Handle a request until it is answered or its client disconnects."""
        answering = asyncio.create_task(self._handle(scope, body, send))
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.wait({answering, leaving})
        if not answering.cancelled():
            answering.result()

    async def _handle(self, scope: Any, body: Body, send: Any) -> None:
        request, refusal = self.create_request(scope, body)
        if request is None:
            if refusal is not None:
                await self.send_response(refusal, send)
            return
        # `/readyz` shares a check with all who came before it began
        request.came_at = came_at = time.monotonic()  # type: ignore[attr-defined]
        threads, bounded = self._threads(request), partial(time_limit, REQUEST_SECONDS, free=QUICK_SECONDS)
        try:
            with bounded():  # includes the wait for a thread
                response = await threads.run(partial(self._answer, scope, request), undo=_close)
        except NoThreadFree:
            response = server_busy(request, random.randint(*RETRY_AFTER))  # noqa: S311 - not for security
        _count(request, response.status_code, time.monotonic() - came_at)
        try:
            _release(request, body)
            if later := getattr(response, "later", None):
                try:
                    with suppress(NoThreadFree), bounded():  # without a thread the response stays as it is
                        await later(threads.run)
                except Exception as error:  # noqa: BLE001 - a bug; it is logged as one of a view
                    _close(response)
                    response = response_for_exception(request, error)
            await self.send_response(response, send)
        finally:
            _close(response)

    def _threads(self, request: HttpRequest) -> RequestThreads:
        path = request.path_info
        if path.startswith(API) and path.endswith("/events/"):
            return self._streams
        return self._watchers.get(path, self._requests)

    def _answer(self, scope: Any, request: HttpRequest) -> Any:
        """Run middleware and view, in a thread. Only a response that continues is still open afterwards."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        response: Any = self.get_response(request)
        response._handler_class = self.__class__  # noqa: SLF001 - as Django's handlers do
        if response.streaming and not response.is_async:
            response.streaming_content = _iterate(list(response.streaming_content))  # a file, read here
        if not response.streaming and not hasattr(response, "later"):
            _close(response)
        return response


class RequestThreads:
    """A pool of `threads` threads; further requests wait in order, for at most PATIENCE."""

    def __init__(self, name: str, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"rondo-{name}")
        self._free = asyncio.Semaphore(threads)

    async def run(self, work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
        """The result of `work`, run in a thread. Raises NoThreadFree.

        A thread that has begun continues when the caller is cancelled, and is busy until it ends; its result then
        goes to `undo`.
        """
        came_at = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._free.acquire()
        except TimeoutError:
            raise NoThreadFree from None
        count_wait(time.monotonic() - came_at)
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        done = loop.run_in_executor(self._pool, context.run, _run_and_close, work)
        done.add_done_callback(lambda _: self._free.release())
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if undo is not None:
                done.add_done_callback(lambda given: given.exception() or undo(given.result()))
            raise


def _run_and_close(work: Callable[[], T]) -> T:
    try:
        return work()
    finally:
        connections.close_all()  # back to the pool; this thread may be idle for long


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _iterate(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _release(request: Any, body: Body) -> None:
    """Free the memory of the request's body: the response may continue for hours."""
    body.release()
    body.close()
    request.close()
    request.__dict__.pop("_body", None)


def _close(response: HttpResponseBase) -> None:
    if not response.closed:
        response.close()


def _refusal(path: str, refused: Refused) -> HttpResponse:
    """The response to a request that Django does not see."""
    response = plain_text(refused.status, refused.text)
    if is_for_programs(path):
        response = problem(refused.status, refused.code, refused.text)
    response["Connection"] = "close"  # more of the body may arrive
    if refused.status == 503:
        response["Retry-After"] = random.randint(*RETRY_AFTER)  # noqa: S311 - not for security
    return response


def _count(request: HttpRequest, status: int, seconds: float) -> None:
    match = getattr(request, "resolver_match", None)
    route = f"/{match.route}" if match is not None and match.route is not None else NO_ROUTE
    method = request.method if request.method in METHODS else "other"
    REQUESTS.labels(method, route, f"{status // 100}xx").inc()
    DURATION.labels(method, route).observe(seconds)
