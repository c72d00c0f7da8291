"""Look-ups of host names: what users have begun leaves room for the server's own."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from agent_core.addresses import MOST, MOST_EACH, NameLookups
from tests.fleet import until
from tests.mcp_servers import resolve_by


@pytest.mark.rule("10.0")
def test_the_server_looks_up_names_while_all_users_wait_for_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), Counter[str]()

    def resolve(host: str, *_more: Any, **_named: Any) -> Any:
        asked["slow" if "slow" in host else host] += 1
        if "slow" in host:
            over.wait(60)
        return [(0, 0, 0, "", ("127.0.0.1", 0))]

    resolve_by(monkeypatch, resolve)
    lookups = NameLookups()
    names = [(f"{user}", f"{number}.slow.test") for user in range(10) for number in range(MOST_EACH)]
    slow = [lookups.ask(host, user, 60.0) for user, host in names]
    try:
        until(lambda: asked["slow"] >= MOST - MOST_EACH)
        own = [lookups.ask(f"{number}.test", "", 60.0) for number in range(MOST_EACH + 1)]
        assert [each.result(20) for each in own] == [["127.0.0.1"]] * len(own)
        assert asked["slow"] == MOST - MOST_EACH
    finally:
        over.set()
    assert [each.result(20) for each in slow] == [["127.0.0.1"]] * len(slow)
