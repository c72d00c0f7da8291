from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.types import Entry, Role, ToolCall, ToolOutcome, ToolResult, Usage
from tests.agent_core.fakes import user

words = st.text(max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=5,
)
objects = st.dictionaries(words, values, max_size=2)
tool_calls = st.builds(ToolCall, id=words, name=words, arguments=objects, unparsed=st.none() | words)
tool_results = st.builds(
    ToolResult, id=words, name=words, output=words, outcome=st.sampled_from(ToolOutcome), error_class=words
)
entries = st.builds(
    Entry,
    role=st.sampled_from(Role),
    content=words,
    calls=st.lists(tool_calls, max_size=2).map(tuple),
    results=st.lists(tool_results, max_size=2).map(tuple),
    partial=st.booleans(),
)


@settings(max_examples=30)
@given(entries)
def test_an_entry_survives_json(entry: Entry) -> None:
    assert Entry.from_json(json.loads(json.dumps(entry.to_json()))) == entry


def test_keys_of_a_newer_version_are_ignored() -> None:
    newer = {"role": "user", "content": "hi", "mood": "good"}
    assert Entry.from_json(newer) == user("hi")
    assert Usage.from_json({"input_tokens": 3, "cached": 2}) == Usage(input_tokens=3)
