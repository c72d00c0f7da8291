"""The official client of the OpenAI API, on a web process and a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import openai
import pytest
from django.contrib.auth.models import User

from sessions_app.models import Session, Turn
from tests.api.conftest import Site, processes, site
from tests.tokens import token_of

__all__ = ["processes", "site"]


@dataclass(kw_only=True)
class Chatter:
    """A user with an agent `demo` on the model server, and the official client with their token."""

    site: Site
    user: User
    token: str
    client: openai.OpenAI

    def say(self, *said: Any, chat: str = "", heard: str = "(as shown)", **more: Any) -> Any:
        """Send a history of the person's messages with `heard` as the answers; `chat`: the program's id of the chat."""
        messages: list[Any] = []
        for text in said:
            messages += [{"role": "user", "content": text}, {"role": "assistant", "content": heard}]
        return self.send(messages[:-1], chat=chat, **more)

    def send(self, messages: list[Any], *, chat: str = "", **more: Any) -> Any:
        """Send a history as it is."""
        headers = {"X-OpenWebUI-Chat-Id": chat} if chat else {}
        more["extra_headers"] = headers | more.get("extra_headers", {})
        return self.client.chat.completions.create(model="demo", messages=messages, **more)

    def hear(self, *said: Any, **more: Any) -> str:
        """The text of the answer."""
        return str(self.say(*said, **more).choices[0].message.content)

    @property
    def once(self) -> Chatter:
        """With a client that repeats nothing."""
        return replace(self, client=self.client.with_options(max_retries=0))

    def api(self, method: str, path: str, **more: Any) -> Any:
        """What our own API answers."""
        with self.site.client(self.token) as http:
            answer = http.request(method, f"/api/{path}", **more)
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

    def sessions(self) -> list[Session]:
        """The sessions of chats, the oldest first."""
        return list(Session.objects.filter(client_chat__isnull=False).order_by("created_at"))

    def said(self, session: Session) -> list[str]:
        """What the person said in it."""
        return list(session.messages.filter(role="user").order_by("seq").values_list("content", flat=True))


@pytest.fixture
def ada(site: Site) -> Iterator[Chatter]:
    """Somebody with an agent `demo`."""
    yield from _chatter(site, "ada")


@pytest.fixture
def bob(site: Site) -> Iterator[Chatter]:
    """Somebody else with an agent `demo`."""
    yield from _chatter(site, "bob")


def _chatter(site: Site, name: str) -> Iterator[Chatter]:
    user = User.objects.create_user(name)
    token = token_of(user)
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key=token, timeout=60) as client:
        chatter = Chatter(site=site, user=user, token=token, client=client)
        chatter.api("POST", "agents/", json={"name": "demo", "model": "openai-chat:test"})
        yield chatter


def turns() -> int:
    """How many turns there are."""
    return Turn.objects.count()
