"""An HTTP transport that connects to allowed addresses only, for addresses that users give."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, cast

import httpx2

from agent_core.addresses import NoAddress, Reach, resolve_host_on_loop, trust

LOOK_UP_SECONDS: Final = 5.0
LIMITS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=20)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects each request, redirected ones too, to a checked address; Host and TLS keep the server's name.

    A response of more than ``most_bytes``, or a compressed one, raises: a small one can unpack to any size. ``refused``
    says why an address was refused.
    """

    def __init__(self, reach: Reach, most_bytes: int, limits: httpx2.Limits = LIMITS) -> None:
        self._reach = reach
        self._most_bytes = most_bytes
        self._inner = httpx2.AsyncHTTPTransport(verify=trust(), trust_env=False, limits=limits)
        self.refused: str | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request to the first address that can be connected to."""
        url = request.url
        host = url.raw_host.decode("ascii")
        port = url.port or (443 if url.scheme == "https" else 80)
        failed: Exception = httpx2.ConnectError("no address")
        for address in await self._addresses(host, port):
            there = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,  # they include Host
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                response = await self._inner.handle_async_request(there)
            except httpx2.ConnectError as error:
                failed = error
                continue
            return await self._bounded(response)
        raise failed

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()

    async def _addresses(self, host: str, port: int) -> list[str]:
        is_allowed = self._reach.address_check(host.strip("[]"), port)
        try:
            return await resolve_host_on_loop(host.strip("[]"), is_allowed, LOOK_UP_SECONDS, self._reach.user)
        except NoAddress as error:
            self.refused = str(error)
            raise httpx2.ConnectError(str(error)) from error

    async def _bounded(self, response: httpx2.Response) -> httpx2.Response:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is compressed, although that was not asked for")
        response.stream = _BoundedStream(cast("httpx2.AsyncByteStream", response.stream), self._bound())
        return response

    def _bound(self) -> Bound:
        """The bound of a response."""
        return Bound(self._most_bytes)


class Bound:
    """How many bytes may come, of one response or of several."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._size = 0

    def take(self, size: int) -> None:
        """Count some bytes. Raises httpx2.RemoteProtocolError beyond the bound."""
        self._size += size
        if self._size > self._most_bytes:
            raise httpx2.RemoteProtocolError(f"the answer has more than {self._most_bytes:,} bytes")


class _BoundedStream(httpx2.AsyncByteStream):
    """A response body that raises beyond its bound."""

    def __init__(self, inner: httpx2.AsyncByteStream, bound: Bound) -> None:
        self._inner = inner
        self._bound = bound

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._bound.take(len(piece))
            yield piece

    async def aclose(self) -> None:
        """Close the body."""
        await self._inner.aclose()
