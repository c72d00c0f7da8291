"""How a question for consent looks and what counts as its answer: five tricks and more for each rule (rule 3.5)."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from html.parser import HTMLParser
from typing import Any

import pytest

from agent_core.execution import new_id
from agent_core.llm.protocol import ModelReply
from agent_core.planner.decide import plain_answer
from agent_core.turn.consent import shown_value
from interfaces.web.rendering import render, render_growing
from sessions_app.agents.edit import update_agent
from sessions_app.channels import base as channels
from sessions_app.hooks.edit import NewHook, add_hook, token_of
from sessions_app.hooks.inbound import Proof, authenticate, check_post, post
from sessions_app.models import PRIMARY_KEY, ChatType, ConsentQuestion, Delivery, Hook, Message, Session, Turn
from tests.agent_core.planner.plans import RESPOND, plan, revision, says, tool
from tests.automations.web.test_addresses import signed_in
from tests.inside import Inside, Reply, call, makes
from tests.mcp_servers import Docs
from tests.plugins import FileChannel
from tests.talk import fresh, last_said

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.5")]


class _Text(HTMLParser):
    """The text that a reader sees of HTML, and its elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags = "", set[str]()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(inside: Inside, session: Session) -> str:
    return signed_in(inside.person).get(f"/sessions/{session.pk}/", secure=True).content.decode()


NAMES = (
    "[/tmp/cache](https://x.invalid/prod)",
    "/data/*/logs/*",
    "__init__.py",
    "&amp;lt;b&gt; &copy;",
    "`a` ``` b ~~~ c",
    "~~/prod~~ <s>x</s>",
    "a | b\n|---|---|\n\n# c",
    r"\*.\[x\]",
    "www.x.invalid <https://x.invalid>",
    "two  spaces at the end  ",
)
BEFORE = (
    "I would like to.",
    "```\nrm -rf /",
    "~~~~",
    "> May I?\n> ",
    "1. one\n   - two",
    "a | b\n|---|---|",
    "[x]: https://x.invalid\n\n*",
    "<details>\n<pre>",
    "    code",
    "a\\",
)


@pytest.mark.parametrize("engine", ["chat", pytest.param("planner", marks=pytest.mark.full)])
def test_what_is_asked_is_shown_to_the_letter(inside: Inside, engine: str) -> None:
    if engine == "planner":
        inside.planner()
    for name, before in zip(NAMES, BEFORE, strict=True):
        session = inside.person.session()
        replies: list[ModelReply] = [makes(call("erase", name=name)), says(before)]
        inside.model.answer_with(*replies if engine == "chat" else [plan(tool("erase", name=name), RESPOND)])
        inside.say(session, "Tidy up.")
        words = f"erase with {shown_value({'name': name})}"
        said = last_said(session)
        assert words in said, name
        closed, _, growing = render_growing(said)
        # what clients do, and the page
        page = page_of(inside, session)
        for html in (render(said), f"{closed}{growing}", page):
            assert words in _Text(html).text, (name, before)
        message = Message.objects.filter(session=session, role="assistant").latest("seq")
        assert said[message.metadata["asked_from"] :].splitlines()[2].strip() == words
        below = page.rpartition("May I use this tool?")[2].partition("</p>")[0]
        assert not _Text(below).tags, below


def test_the_box_with_the_button_hides_nothing(inside: Inside) -> None:
    for hidden in ("\u202e", "\u2066", "\u200b", "\u3164", "\u00ad", "\ufe0f", "\u00a0"):
        session = inside.person.session()
        erase = makes(call("erase", name=f"a{hidden}b", **{f"n{hidden}": {"deep": [hidden]}}))
        inside.say(session, "Tidy up.", erase, says("I would like to."))
        box = page_of(inside, session).partition('class="question"')[2]
        assert "Allow erase" in box
        assert hidden not in box, ascii(hidden)
        assert box.count(f"\\u{ord(hidden):04x}") >= 3, "in the value, the name and the list"


def bridge(session: Session, name: str = "bridge") -> Hook:
    """A hook whose messages are people's."""
    return add_hook(NewHook(agent_id=session.agent_id, session_id=session.pk, name=name, as_person=True))


def from_hook(
    inside: Inside, hook: Any, text: str, sender: str = "", *, before: float = -1, **more: Any
) -> Turn:
    """A post to a hook, answered; it is stamped so many seconds before it comes, by default one after it."""
    stamp = int(datetime.now(UTC).timestamp() - before)
    proof = Proof(token=token_of(hook), message_id=new_id(), timestamp=str(stamp), signature="", body=b"")
    caller = authenticate(hook.pk, proof)
    check_post(caller)
    turn = post(caller, text, sender=sender, **more)
    inside.run(Session.objects.get(pk=turn.session_id))
    return turn


def asked(inside: Inside, say: Callable[[str], object], engine: str = "chat") -> ConsentQuestion:
    in_chat: list[Reply] = [makes(call("erase", name="disk")), says("I would like to.")]
    inside.model.replies = in_chat if engine == "chat" else [plan(tool("erase", name="disk"), RESPOND)]
    say("Tidy up.")
    return ConsentQuestion.objects.latest("asked_at")


def try_call(inside: Inside, engine: str) -> None:
    """The model makes the call if it may, whoever speaks."""
    inside.model.replies = (
        [makes(call("erase", name="disk")), says("Well.")]
        if engine == "chat"
        else [revision("finish", answer="Well."), says("Well.")]
    )


@pytest.mark.parametrize("engine", ["chat", pytest.param("planner", marks=pytest.mark.full)])
def test_in_a_group_only_who_was_asked_or_the_owner_allows(inside: Inside, engine: str) -> None:
    if engine == "planner":
        inside.planner()
    group = inside.person.session(chat_type=ChatType.GROUP)
    hook, other = bridge(group), bridge(group, "other bridge")
    asks = partial(from_hook, inside, hook, sender="ada")
    question = asked(inside, asks, engine)
    tricks: list[tuple[str, Any, str]] = [
        ("ok", hook, "eve"),
        ("ok", hook, "eve"),  # the server asked again because of the first one
        (f"yes #{question.pk}", hook, "eve"),
        ("Tidy up.", hook, "eve"),  # the same call, asked for by somebody else while the question is open
        ("ok", hook, "eve"),
        ("ok", hook, ""),
        ("ok", other, "ada"),
        ("ok", hook, "ADA"),
        (f"yes #{question.pk}", hook, "ada:"),
    ]
    for text, by, sender in (
        tricks if engine == "chat" else [each for each in tricks if each[0] != "Tidy up."]
    ):
        try_call(inside, engine)
        from_hook(inside, by, text, sender)
        assert (inside.did("disk"), fresh(question).state) == (0, "open"), (text, sender)
    try_call(inside, engine)
    from_hook(inside, hook, "ok", "ada")
    assert inside.did("disk") == 1
    asked(inside, asks, engine)
    try_call(inside, engine)
    inside.say(group, "ok")  # the owner, on the page
    assert inside.did("disk") == 2


def test_a_group_hook_that_names_no_sender_allows_nothing(inside: Inside) -> None:
    for chat_type, done in ((ChatType.GROUP, 0), (ChatType.PRIVATE, 1)):
        session = inside.person.session(chat_type=chat_type)
        hook = bridge(session)
        asked(inside, partial(from_hook, inside, hook))
        try_call(inside, "chat")
        from_hook(inside, hook, "ok")
        assert inside.did("disk") == done, chat_type


def test_a_yes_that_was_written_before_the_question_is_none(inside: Inside) -> None:
    chat = {"channel": "telegram", "chat_id": "42", "meta": {}}
    session = inside.person.session()
    hook = bridge(session)

    def on_telegram(number: int) -> None:
        inside.say(session, "ok", route=chat, number_at_channel=number)

    def delivered(number: int | None) -> None:
        """The newest question has arrived."""
        new = Delivery.objects.exclude(state="sent")
        new.update(state="sent", ended_at=datetime.now(UTC), number_at_channel=number)

    asks = partial(inside.say, session, route=chat)
    question = asked(inside, asks)

    def since_asked() -> float:
        return (datetime.now(UTC) - question.asked_at).total_seconds()

    tricks: list[tuple[str, Callable[[], object]]] = [
        ("200 s before", lambda: from_hook(inside, hook, "ok", before=200)),
        ("in the same second", lambda: from_hook(inside, hook, "ok", before=since_asked())),
        ("before it on Telegram", lambda: on_telegram(99)),
        ("before it was sent again", lambda: on_telegram(100)),
        ("to a chat that it did not reach", lambda: inside.say(session, "ok", route=chat | {"chat_id": "7"})),
        ("while its number is not known", lambda: on_telegram(500)),
    ]
    for what, say in tricks:
        delivered(None if "not known" in what else 100)
        try_call(inside, "chat")
        say()
        assert (inside.did("disk"), fresh(question).state) == (0, "open"), what
    delivered(100)
    try_call(inside, "chat")
    from_hook(inside, hook, f"yes #{question.pk}", before=200)  # who names it has read it
    assert inside.did("disk") == 1
    asked(inside, asks)
    delivered(200)
    try_call(inside, "chat")
    on_telegram(201)
    assert inside.did("disk") == 2


def test_a_yes_that_is_struck_out_is_none() -> None:
    struck = (
        "~~yes~~",
        "~yes~",
        "\uff5eyes\uff5e",
        " ~~ok~~ ",
        "(~~yes~~)",
        "~~yes~~ #abcd2345",
        "~\u662f~",
        "y\u0336e\u0336s\u0336",
    )
    assert [text for text in struck if plain_answer(text)[0]] == []
    assert plain_answer("yes~") == ("yes", "")


def test_a_yes_is_for_no_other_server_of_the_name_and_no_other_account(inside: Inside, settings: Any) -> None:
    settings.RONDO_MCP_HOSTS = ("127.0.0.1",)
    session, docs, there = inside.person.session(), Docs(), Docs()
    erase = makes(call("docs__erase", text="all"))
    with docs.serving() as url, there.serving() as elsewhere:
        first = {"url": url, "trusted": True, "headers": {"Authorization": "Bearer first-account"}}
        update_agent(session.agent_id, {"mcp_servers": {"docs": first}})
        inside.say(session, "Tidy up.", erase, says("I would like to."))
        others: tuple[dict[str, Any], ...] = (
            {"url": elsewhere},
            {"headers": {"Authorization": "Bearer second-account"}},
            {"headers": {"Authorization": "Bearer first-account", "X-Tenant": "two"}},
            {"headers": {"X-Authorization": "Bearer first-account"}},
            {"headers": {}},
        )
        for other in others:
            update_agent(session.agent_id, {"mcp_servers": {"docs": first | other}})
            inside.model.answer_with(erase, says("I must ask again."))
            inside.say(session, f"yes #{ConsentQuestion.objects.earliest('asked_seq').pk}")
            assert docs.calls == there.calls == [], other
        update_agent(session.agent_id, {"mcp_servers": {"docs": first}})
        inside.say(session, "Now as before.", erase, says("I must ask again."), erase, says("Erased."))
        inside.say(session, "yes")
        assert docs.calls == ["note all"]


class Slack(FileChannel):
    name = "slack"


def test_a_group_is_one_in_unified_mode_too(inside: Inside) -> None:
    group = inside.person.session(chat_type=ChatType.GROUP)
    hook = bridge(group)
    update_agent(group.agent_id, {"unified_session": True})
    primary = Session.objects.get(agent=group.agent_id, key=PRIMARY_KEY)
    question = asked(inside, partial(inside.say, primary))
    for text in ("ok", f"yes #{question.pk}"):
        try_call(inside, "chat")
        from_hook(inside, hook, text)
        assert (inside.did("disk"), fresh(question).state) == (0, "open"), text
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
    asked(inside, partial(from_hook, inside, hook))
    Delivery.objects.update(state="sent", ended_at=datetime.now(UTC))
    try_call(inside, "chat")
    from_hook(inside, hook, "ok", before=-3)
    assert inside.did("disk") == done
