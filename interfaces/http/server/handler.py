"""Django's ASGI handler with bounded thread pools: a request takes a thread, an open stream does not.

Django's own handler keeps a thread for each request until its response is closed, so one for each open stream. Here
middleware and view run together in one thread, which keeps no database connection afterwards. A response that
continues (a stream, or one with `later`) does so on the event loop.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from django.conf import settings
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.exception import response_for_exception
from django.http import HttpRequest, HttpResponseBase
from django.urls import set_script_prefix

from interfaces.doors import API
from interfaces.http.errors.problems import QUICK_SECONDS, REQUEST_SECONDS, server_busy
from interfaces.http.server.body_limit import RELEASE_BODY
from interfaces.http.server.measure import count_request
from interfaces.http.server.threads import RequestThreads
from sessions_app.exceptions import NoThreadFree
from sessions_app.postgres.connection import time_limit

STREAM_THREADS = 4  # that open streams: after a restart all clients reconnect at once
WATCHER_THREADS = {"/healthz": 1, "/readyz": 4, "/metrics": 2}  # so that they never wait for other requests
RETRY_AFTER = (1, 6)  # seconds, at random, so that refused clients do not all return at once


class Handler(ASGIHandler):
    """Django's ASGI application with our thread pools."""

    def __init__(self) -> None:
        self.load_middleware(is_async=False)
        gc.collect()
        gc.freeze()  # loaded modules stay, so collections beside thousands of streams need not scan them
        options: Any = settings.DATABASES["default"]["OPTIONS"]
        self._requests = RequestThreads("request", 2 * options["pool"]["max_size"])
        self._streams = RequestThreads("opening", STREAM_THREADS)
        self._watchers = {path: RequestThreads(path[1:], count) for path, count in WATCHER_THREADS.items()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request until it is answered or its client disconnects."""
        if scope["type"] != "http":
            raise ValueError(f"only HTTP is supported, not {scope['type']}")
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
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

    async def _handle(self, scope: Any, body: Any, send: Any) -> None:
        request, refusal = self.create_request(scope, body)
        if request is None:
            if refusal is not None:
                await self.send_response(refusal, send)
            return
        threads, bounded = self._threads(request), partial(time_limit, REQUEST_SECONDS, free=QUICK_SECONDS)
        request.came_at = time.monotonic()  # type: ignore[attr-defined]
        try:
            with bounded():  # includes the wait for a thread
                response = await threads.run(partial(self._answer, scope, request), undo=_close)
        except NoThreadFree:
            response = server_busy(request, random.randint(*RETRY_AFTER))  # noqa: S311 - not for security
        count_request(request, response.status_code)
        try:
            _release(request, body)
            scope[RELEASE_BODY]()
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


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _iterate(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _release(request: Any, body: Any) -> None:
    """Free the memory of the request's body: the response may continue for hours."""
    body.close()
    request.close()
    request.__dict__.pop("_body", None)


def _close(response: HttpResponseBase) -> None:
    if not response.closed:
        response.close()
