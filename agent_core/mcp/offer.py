"""Lists the tools of an agent's MCP servers for a turn, and calls them.

Listings are cached for all turns of the process. A failed listing is cached too, for a shorter time, so that a server
that hangs delays few turns.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from agent_core import process
from agent_core.addresses import Reach
from agent_core.exceptions import ServerFailed, ToolFailed
from agent_core.mcp.server import LeftOut, Listing, McpServer, Unusable, with_digest
from agent_core.strategies import MissingTools
from agent_core.text.json_values import clean_text
from agent_core.tools import SEPARATOR, Effect, Tool
from agent_core.turn.control import Signal, TurnControl

if TYPE_CHECKING:  # the import is slow: see client.py
    import mcp_types as types

    from agent_core.mcp.client import ServerConnection
    from agent_core.mcp.schema import Parameters

LIST_SECONDS: Final = 5.0  # for all servers of a turn together
FRESH_SECONDS: Final = 60.0  # for which a listing is cached
MISSING_SECONDS: Final = 20.0  # for which a failed listing is cached
MOST_TOOLS: Final = 40  # of one server
MOST_OF_ALL: Final = 80  # of all servers; OpenAI takes 128 tools, with those of this server
LONGEST_TOOLS: Final = 60_000  # characters of all descriptions and parameters of one server
LONGEST_DESCRIPTION: Final = 1_024  # OpenAI takes no longer one
_MOST_CACHED: Final = 500  # listings
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
LONGEST_NAME: Final = 64
_LEAST_SECONDS: Final = 0.01
_UNKNOWN: Final = "whether it took effect is unknown: check before you repeat it"

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """The tools that an agent's servers offer to one turn. `left_out`: tools of theirs that cannot be offered."""

    tools: tuple[Tool, ...] = ()
    missing: tuple[MissingTools, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


NOTHING: Final = Offer()


@dataclass(kw_only=True, slots=True)
class _CachedListing:
    """A listing under way, or one that is valid until an instant of time.monotonic. A text says why it failed."""

    task: asyncio.Task[Listing | str]
    until: float | None = None


_cache: dict[tuple[McpServer, Reach], _CachedListing] = {}  # only the event loop's thread adds and removes
os.register_at_fork(after_in_child=_cache.clear)


def offer_tools(servers: Sequence[McpServer], reach: Reach, tool_seconds: float) -> Offer:
    """Return the tools of these servers, sorted by name. This takes LIST_SECONDS at most."""
    if not servers:
        return NOTHING
    # slow to import, which the event loop must not wait for
    from agent_core.mcp.client import ServerConnection

    found = process.submit(_listings(servers, reach)).result()
    tools: list[Tool] = []
    missing: list[MissingTools] = []
    left_out: list[LeftOut] = []
    for server, listing in sorted(zip(servers, found, strict=True), key=lambda each: each[0].name):
        if isinstance(listing, str):
            missing.append(MissingTools(server=server.name, reason=listing))
            continue
        most = min(MOST_TOOLS, MOST_OF_ALL - len(tools))
        at = ServerConnection(server=server, reach=reach, seconds=tool_seconds, mode=listing.mode)
        usable, unusable = _tools(at, listing, most)
        tools += usable
        left_out += unusable
    return Offer(tools=tuple(tools), missing=tuple(missing), left_out=tuple(left_out))


async def _listings(servers: Sequence[McpServer], reach: Reach) -> list[Listing | str]:
    return await asyncio.gather(*(_cached_listing(server, reach) for server in servers))


async def _cached_listing(server: McpServer, reach: Reach) -> Listing | str:
    """Return the cached listing, or make one. Turns that need it at the same time share one request."""
    key, now = (server, reach), time.monotonic()
    cached = _cache.get(key)
    if cached is None or (cached.until is not None and cached.until < now):
        cached = _cache[key] = _CachedListing(task=asyncio.create_task(_list_tools(server, reach)))
        if len(_cache) > _MOST_CACHED:
            del _cache[next(iter(_cache))]
    found = await asyncio.shield(cached.task)
    if cached.until is None:
        cached.until = time.monotonic() + (MISSING_SECONDS if isinstance(found, str) else FRESH_SECONDS)
    return found


async def _list_tools(server: McpServer, reach: Reach) -> Listing | str:
    from agent_core.mcp.client import ServerConnection

    try:
        return await ServerConnection(server=server, reach=reach, seconds=LIST_SECONDS).list_tools()
    except TimeoutError:
        reason = f"it did not answer within {LIST_SECONDS:.0f} s"
    except ServerFailed as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - a server's answer can make the client raise anything
        reason = f"its answer cannot be read ({type(error).__name__})"
    log.warning("mcp_server_missing", extra={"server": server.name, "reason": reason})
    return reason


def _tools(at: ServerConnection, listing: Listing, most: int) -> tuple[list[Tool], list[LeftOut]]:
    """The tools that can be offered, sorted by name, and those that are left out, also because of the bounds."""
    server = at.server
    found: dict[str, Tool] = {}
    left_out = [replace(each, name=server.without_secrets(each.name)) for each in listing.left_out]
    room = LONGEST_TOOLS
    names = _names(server, listing)
    for listed in sorted(listing.tools, key=lambda each: each.name):
        try:
            if len(found) >= most:
                which = (
                    f"a server may have {MOST_TOOLS}" if most == MOST_TOOLS else f"all may have {MOST_OF_ALL}"
                )
                raise Unusable(f"{which} tools")
            if names[listed.name] in found:
                raise Unusable("the server lists it twice")
            tool = _tool(at, listed, names[listed.name])
            size = len(tool.description) + len(str(tool.parameters))
            if size > room:
                raise Unusable(f"the tools of a server may have {LONGEST_TOOLS:,} characters")
        except Unusable as error:
            name = server.without_secrets(listed.name)[:LONGEST_NAME]
            left_out.append(LeftOut(name=name, reason=str(error)))
        else:
            found[tool.name] = tool
            room -= size
    if left_out:
        log.info("mcp_tools_left_out", extra={"server": server.name, "count": len(left_out)})
    return [found[name] for name in sorted(found)], left_out


def _names(server: McpServer, listing: Listing) -> dict[str, str]:
    """The names of the tools for models, by the server's own. Those that would be equal or too long have a digest."""
    plain = {
        each.name: f"{server.name}{SEPARATOR}{_NOT_IN_A_NAME.sub('_', each.name)}" for each in listing.tools
    }
    uses = Counter(plain.values())
    own = {name for name in plain if plain[name] == f"{server.name}{SEPARATOR}{name}"}
    return {
        name: with_digest(given, name, LONGEST_NAME)
        if len(given) > LONGEST_NAME or (uses[given] > 1 and name not in own)
        else given
        for name, given in plain.items()
    }


def _tool(at: ServerConnection, listed: types.Tool, name: str) -> Tool:
    """The tool as models are offered it. Raises Unusable."""
    from agent_core.mcp.schema import usable_parameters  # imports pydantic, which most processes do not need

    server = at.server
    parameters = usable_parameters(listed.input_schema)
    said = json.dumps([parameters.schema, *parameters.originals.values(), name], ensure_ascii=False)
    if server.without_secrets(said) != said:
        raise Unusable("it repeats a secret that the server was sent")
    description = server.without_secrets(listed.description or listed.title or "")
    hints = listed.annotations
    is_repeatable = hints is not None and (hints.idempotent_hint is True or hints.read_only_hint is True)
    return Tool(
        name=name,
        description=clean_text(description)[:LONGEST_DESCRIPTION],
        parameters=parameters.schema,
        run=_RemoteTool(at=at, name=listed.name, parameters=parameters),
        effect=_effect(server, hints),
        foreign=not server.own,
        source=" ".join([server.fingerprint, listed.name, *parameters.originals.values()]),
        idempotent=server.trusted and is_repeatable,
    )


def _effect(server: McpServer, hints: types.ToolAnnotations | None) -> Effect:
    """The effect of a tool by the server's hints, which count only if the agent's owner trusts the server."""
    if not server.trusted:
        return Effect.DANGEROUS
    if hints is not None and hints.read_only_hint is True:
        return Effect.READ
    return Effect.DANGEROUS if hints is not None and hints.destructive_hint is True else Effect.WRITE


@dataclass(frozen=True, kw_only=True, slots=True)
class _RemoteTool:
    """Calls a tool of a server. `name` is the server's own name for it."""

    at: ServerConnection
    name: str
    parameters: Parameters

    def __call__(self, context: Any, arguments: dict[str, Any]) -> str:
        """Return the tool's output. Raises ToolFailed."""
        control: TurnControl | None = getattr(context, "control", None)
        seconds = self.at.seconds
        if control is not None and control.tool_deadline is not None:
            seconds = min(seconds, control.tool_deadline - time.monotonic())
        try:
            restored = self.parameters.restore(arguments)
            text, failed = self._call(restored, max(seconds, _LEAST_SECONDS), control)
        except TimeoutError:
            raise ToolFailed(f"no answer within {seconds:.3g} s; {_UNKNOWN}") from None
        except CancelledError:
            raise ToolFailed(f"the call was cancelled; {_UNKNOWN}") from None
        except ServerFailed as error:
            self._forget_listing()
            more = f": {error.said}" * bool(error.said) + f"; {_UNKNOWN}" * error.unsure
            raise ToolFailed(f"the server {self.at.server.name} failed: {error}{more}") from None
        text = self.at.server.without_secrets(text)
        if failed:
            self._forget_listing()
            raise ToolFailed(text or "the tool failed without a reason")
        return text

    def _call(
        self, arguments: dict[str, Any], seconds: float, control: TurnControl | None
    ) -> tuple[str, bool]:
        connection = replace(self.at, seconds=seconds, on_tools_changed=self._forget_listing)
        future = process.submit(connection.call_tool(self.name, arguments))
        if control is None:
            return future.result()
        with control.waking(lambda: _cancel_unless_stopping(control, future.cancel)):
            return future.result()

    def _forget_listing(self) -> None:
        """Have the next turn list the tools again: this one may be gone."""
        if cached := _cache.get((self.at.server, self.at.reach)):
            cached.until = 0.0


def _cancel_unless_stopping(control: TurnControl, cancel: Callable[[], object]) -> None:
    """Cancel the call when a person cancels the turn. A worker that stops waits for the call."""
    if control.signal in (Signal.CANCEL, Signal.LOSE):
        cancel()
