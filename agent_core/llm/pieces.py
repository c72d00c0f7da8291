"""Puts the streamed pieces of a reply together where servers send them in ways that the client does not expect."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai._parts_manager import ModelResponsePartsManager
from pydantic_ai.messages import ModelResponseStreamEvent, ToolCallPart
from pydantic_ai.models import StreamedResponse


@dataclass(eq=False)
class Pieces(ModelResponsePartsManager):
    """The client's own collection of pieces, with these differences.

    A call belongs to its id, not only to its index: a piece with another id and a name begins another call, and one
    without an id or without a name goes on with the last call of its index. A name that repeats the one so far is not
    appended to it. Tags of reasoning are left in the text, for ``thinking.py``: the client knows them only as pieces of
    their own, anywhere in the text.
    """

    _keys: dict[tuple[Hashable | None, str], Hashable | None] = field(default_factory=dict, init=False)
    _last: dict[Hashable | None, Hashable | None] = field(default_factory=dict, init=False)

    def handle_text_delta(
        self, *, thinking_tags: tuple[str, str] | None = None, **more: Any
    ) -> Iterator[ModelResponseStreamEvent]:
        """Add a piece of text."""
        del thinking_tags
        return super().handle_text_delta(thinking_tags=None, **more)

    def handle_tool_call_delta(
        self,
        *,
        vendor_part_id: Hashable | None,
        tool_name: str | None = None,
        tool_call_id: str | None = None,
        **more: Any,
    ) -> ModelResponseStreamEvent | None:
        """Add a piece of a tool call."""
        key = self._key_of(vendor_part_id, tool_call_id, begins=bool(tool_name))
        number = self._vendor_id_to_part_index.get(key) if key is not None else None
        so_far = self._parts[number] if number is not None else None
        if isinstance(so_far, ToolCallPart):
            tool_call_id = None  # the id of the first piece stays
            if tool_name == so_far.tool_name:
                tool_name = None
        elif so_far is None and key is not None:
            tool_name = tool_name or ""  # a call without a name is refused; the client would drop it
        return super().handle_tool_call_delta(
            vendor_part_id=key, tool_name=tool_name, tool_call_id=tool_call_id, **more
        )

    def _key_of(self, index: Hashable | None, call_id: str | None, *, begins: bool) -> Hashable | None:
        """Return the key of the call that a piece belongs to."""
        last = self._last.get(index)
        if not call_id:
            return index if last is None else last
        if (index, call_id) not in self._keys:
            is_same = last is not None and not begins
            is_first = last is None and index is not None
            self._keys[index, call_id] = last if is_same else index if is_first else (index, call_id)
        self._last[index] = key = self._keys[index, call_id]
        return key


def use_pieces(stream: StreamedResponse) -> None:
    """Have a stream that was not read yet collect its reply in this way."""
    collected = stream._parts_manager  # noqa: SLF001 - there is no public way
    made = Pieces(model_request_parameters=stream.model_request_parameters)
    vars(made).update(vars(collected))
    stream._parts_manager = made  # noqa: SLF001
