"""A group that a hook bridges stays a group, whatever session takes its messages (rule 3.5)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from sessions_app.agents.edit import update_agent
from sessions_app.channels import base as channels
from sessions_app.hooks.edit import NewHook, add_hook
from sessions_app.models import PRIMARY_KEY, ChatType, Delivery, Session
from tests.inside import Inside
from tests.plugins import FileChannel
from tests.sessions_app.turns.test_consent_forms import ask_in_chat, bridge, from_hook, try_call

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.5")]


class Slack(FileChannel):
    name = "slack"


def test_a_group_is_one_in_unified_mode_too(inside: Inside) -> None:
    group = inside.person.session(chat_type=ChatType.GROUP)
    hook = bridge(group)
    update_agent(group.agent_id, {"unified_session": True})
    primary = Session.objects.get(agent=group.agent_id, key=PRIMARY_KEY)
    question = ask_in_chat(inside, lambda text: inside.say(primary, text))
    for text in ("ok", f"yes #{question.pk}"):
        try_call(inside, "chat")
        from_hook(inside, hook, text)
        question.refresh_from_db()
        assert (inside.did("disk"), question.state) == (0, "open"), text
    try_call(inside, "chat")
    inside.say(primary, "ok")
    assert inside.did("disk") == 1


@pytest.fixture
def slack() -> Iterator[None]:
    channels.register(Slack())
    yield
    channels.unregister(Slack.name)


@pytest.mark.usefixtures("slack")
@pytest.mark.parametrize(("address", "done"), [("C0123", 0), ("D0123", 1)])
def test_a_hook_whose_answers_go_to_a_group_bridges_one(inside: Inside, address: str, done: int) -> None:
    agent = inside.person.agent
    hook = add_hook(
        NewHook(agent_id=agent.pk, name="bridge", as_person=True, channel="slack", address=address)
    )
    ask_in_chat(inside, lambda text: from_hook(inside, hook, text))
    Delivery.objects.update(state="sent", ended_at=datetime.now(UTC))
    try_call(inside, "chat")
    from_hook(inside, hook, "ok", before=-3)
    assert inside.did("disk") == done
