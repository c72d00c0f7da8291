"""What a token of one agent or one session learns, uses and takes of its owner's."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.connections.edit import add_connection
from sessions_app.models import Agent
from tests.api.conftest import Caller, problem
from tests.tokens import new_token

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.6")]

AGENT = "/api/agents/demo/"


def limited(ada: Caller, *scopes: str, **limits: Any) -> Caller:
    limits = limits or {"agent": Agent.objects.get(name="demo", owner=ada.user)}
    return Caller(user=ada.user, token=new_token(ada.user, *scopes, **limits))


@pytest.mark.parametrize("setting", ["model", "fallback_model"])
def test_a_limited_token_uses_and_learns_no_other_connection(ada: Caller, setting: str) -> None:
    for name in ("secret-conn", "used-conn", "spare-conn"):
        add_connection(ada.user, name, {"provider": "openai-chat", "base_url": "https://models.example/v1"})
    add_connection(None, "servers-conn", {"provider": "openai-chat", "base_url": "https://models.example/v1"})
    used = {"model": "used-conn:small", "fallback_model": "spare-conn:small"}
    assert ada.patch(AGENT, used).status_code == 200
    mine = limited(ada, "manage")
    for model in ("secret-conn:gpt-4o", "servers-conn:gpt-4o", "nix:zz"):
        text = problem(mine.patch(AGENT, {setting: model}), 400, f"bad_{setting}")["detail"]
        prefix = model.partition(":")[0]
        assert f"there is no connection {prefix!r} that this token reaches" in text
        others = {"secret-conn", "servers-conn", "used-conn", "spare-conn"} - {prefix}
        assert not [name for name in others if name in text]
    assert mine.get(AGENT).json()[setting] == used[setting]
    swapped = {"model": "spare-conn:large", "fallback_model": "used-conn:large"}
    assert mine.patch(AGENT, swapped).status_code == 200
    assert ada.patch(AGENT, {setting: "secret-conn:gpt-4o"}).status_code == 200
    assert "spare-conn" in problem(ada.patch(AGENT, {setting: "nix:zz"}), 400, f"bad_{setting}")["detail"]
