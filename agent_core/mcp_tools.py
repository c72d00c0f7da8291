"""The tools of an agent's MCP servers: what a turn is offered of them, and the calling of one.

A listing is kept a short while for all turns of the process, so that most turns ask no server for it; one that
fails is remembered for a shorter while, so that a server that hangs costs a turn its time now and then only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, Final

from agent_core import loop
from agent_core.addresses import Reach
from agent_core.control import Signal, TurnControl
from agent_core.exceptions import ServerFailed, ToolFailed
from agent_core.mcp_listed import Listed, Listing
from agent_core.mcp_schema import readable
from agent_core.mcp_server import McpServer
from agent_core.strategies import MissingTools
from agent_core.tools import SEPARATOR, Effect, Tool

LIST_SECONDS: Final = 5.0  # for all servers of a turn together
FRESH_SECONDS: Final = 60.0
MISSING_SECONDS: Final = 20.0
MOST_TOOLS: Final = 40  # of one server
LONGEST_TOOLS: Final = 60_000  # characters of all descriptions and parameters of one server
LONGEST_DESCRIPTION: Final = 1_500
_MOST_KEPT: Final = 500  # listings
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME: Final = 64
_LEAST_SECONDS: Final = 0.01

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """What the servers of an agent give to one turn."""

    tools: tuple[Tool, ...] = ()
    missing: tuple[MissingTools, ...] = ()


NOTHING: Final = Offer()


@dataclass(kw_only=True, slots=True)
class _Kept:
    """A listing that is being made, or was. On the loop's thread only."""

    task: asyncio.Task[Listing | str]
    until: float | None = None


_kept: dict[tuple[McpServer, Reach], _Kept] = {}
os.register_at_fork(after_in_child=_kept.clear)


def offer(servers: Sequence[McpServer], reach: Reach, tool_seconds: float) -> Offer:
    """The tools of these servers, by name. Takes LIST_SECONDS at most, whatever a server does."""
    if not servers:
        return NOTHING
    from agent_core import mcp_wire  # noqa: F401 - imported here, for it takes a second, and the loop waits for nobody

    found = loop.submit(_listings(servers, reach)).result()
    tools: list[Tool] = []
    missing: list[MissingTools] = []
    for server, listing in sorted(zip(servers, found, strict=True), key=lambda each: each[0].name):
        if isinstance(listing, str):
            missing.append(MissingTools(server=server.name, reason=listing))
        else:
            tools += _tools(server, listing, reach, tool_seconds)
    return Offer(tools=tuple(tools), missing=tuple(missing))


def forget() -> None:
    """Forget every listing."""
    loop.submit(_forget_all()).result()


async def _forget_all() -> None:
    _kept.clear()


async def _listings(servers: Sequence[McpServer], reach: Reach) -> list[Listing | str]:
    return await asyncio.gather(*(_listing(server, reach) for server in servers))


async def _listing(server: McpServer, reach: Reach) -> Listing | str:
    """The listing that is kept, or a new one that all who want it at once share."""
    key, now = (server, reach), time.monotonic()
    kept = _kept.get(key)
    if kept is None or (kept.until is not None and kept.until < now):
        kept = _kept[key] = _Kept(task=asyncio.create_task(_listed(server, reach)))
        while len(_kept) > _MOST_KEPT:
            del _kept[next(iter(_kept))]
    found = await asyncio.shield(kept.task)
    if kept.until is None:
        kept.until = time.monotonic() + (MISSING_SECONDS if isinstance(found, str) else FRESH_SECONDS)
    return found


async def _listed(server: McpServer, reach: Reach) -> Listing | str:
    from agent_core import mcp_wire

    try:
        return await mcp_wire.listed(server, reach, LIST_SECONDS)
    except TimeoutError:
        reason = f"it did not answer within {LIST_SECONDS:.0f} s"
    except ServerFailed as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - whatever a stranger brought the client to; a turn goes on without it
        reason = f"its answer cannot be read ({type(error).__name__})"
    log.warning("mcp_server_missing", extra={"server": server.name, "reason": reason})
    return reason


def _tools(server: McpServer, listing: Listing, reach: Reach, seconds: float) -> list[Tool]:
    """The tools that can be offered, in the order of their names; what is too much is left out."""
    found: dict[str, Tool] = {}
    room = LONGEST_TOOLS
    for listed in sorted(listing.tools, key=lambda each: each.name):
        tool = _tool(server, listed, listing.mode, reach, seconds)
        size = 0 if tool is None else len(tool.description) + len(str(tool.parameters))
        if tool is None or tool.name in found or len(found) == MOST_TOOLS or size > room:
            continue
        found[tool.name] = tool
        room -= size
    if len(found) < len(listing.tools):
        log.info(
            "mcp_tools_left_out", extra={"server": server.name, "count": len(listing.tools) - len(found)}
        )
    return [found[name] for name in sorted(found)]


def _tool(server: McpServer, listed: Listed, mode: str, reach: Reach, seconds: float) -> Tool | None:
    name = f"{server.name}{SEPARATOR}{_NOT_IN_A_NAME.sub('_', listed.name)}"
    parameters = readable(listed.parameters)
    if parameters is None or not listed.name or len(name) > _LONGEST_NAME:
        return None
    words = json.dumps(parameters, ensure_ascii=False)
    if server.without_secrets(words) != words:
        return None
    description = server.without_secrets(listed.description).encode(errors="replace").decode()
    call = _Call(server=server, tool=listed.name, mode=mode, reach=reach, seconds=seconds)
    return Tool(
        name=name,
        description=description.replace("\x00", "")[:LONGEST_DESCRIPTION],
        parameters=parameters,
        run=call,
        effect=_effect(server, listed),
        idempotent=server.trusted and (listed.idempotent or listed.read_only),
    )


def _effect(server: McpServer, listed: Listed) -> Effect:
    """What a stranger says of its tools counts only where the owner of the agent trusts it."""
    if not server.trusted or (listed.destructive and not listed.read_only):
        return Effect.DANGEROUS
    return Effect.READ if listed.read_only else Effect.WRITE


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """Calls one tool of a server."""

    server: McpServer
    tool: str
    mode: str
    reach: Reach
    seconds: float

    def __call__(self, context: Any, arguments: dict[str, Any]) -> str:
        """The tool's words. ToolFailed."""
        control: TurnControl | None = getattr(context, "control", None)
        seconds = self.seconds
        if control is not None and control.tool_deadline is not None:
            seconds = min(seconds, control.tool_deadline - time.monotonic())
        try:
            text, failed = self._made(arguments, max(seconds, _LEAST_SECONDS), control)
        except TimeoutError:
            raise ToolFailed(f"no answer within {seconds:.3g} s; {_UNKNOWN}") from None
        except CancelledError:
            raise ToolFailed(f"the call was broken off; {_UNKNOWN}") from None
        except ServerFailed as error:
            self._relist()
            more = f": {error.said}" * bool(error.said) + f"; {_UNKNOWN}" * error.unsure
            raise ToolFailed(f"the server {self.server.name} failed: {error}{more}") from None
        text = self.server.without_secrets(text)
        if failed:
            self._relist()
            raise ToolFailed(text or "the tool failed and did not say why")
        return text

    def _made(
        self, arguments: dict[str, Any], seconds: float, control: TurnControl | None
    ) -> tuple[str, bool]:
        from agent_core import mcp_wire

        asked = (self.tool, arguments)
        future = loop.submit(
            mcp_wire.called(self.server, self.reach, seconds, self.mode, asked, self._forget)
        )
        if control is None:
            return future.result()
        with control.waking(lambda: _break_off(control, future.cancel)):
            return future.result()

    def _relist(self) -> None:
        """The next turn asks what there is: the tool may be gone."""
        loop.submit(self._forget_soon()).result()

    async def _forget_soon(self) -> None:
        self._forget()

    def _forget(self) -> None:
        _kept.pop((self.server, self.reach), None)


_UNKNOWN: Final = "whether it took effect is unknown: check before you repeat it"


def _break_off(control: TurnControl, cancel: Callable[[], bool]) -> None:
    """A worker that stops lets a call finish; a person who stops the turn does not wait for it."""
    if control.signal in (Signal.CANCEL, Signal.LOSE):
        cancel()
