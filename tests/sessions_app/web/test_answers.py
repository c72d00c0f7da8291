"""What pages answer without a browser: refusals, searches, markdown that would take long."""

import re
from datetime import timedelta
from html import unescape
from itertools import product
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from agent_core.offline.sentences import SUFFIX
from interfaces.web import rendering, transcript
from interfaces.web.rendering import LANGUAGES, LONGEST_CODE, plain, render, render_growing
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.models import ConsentQuestion, Message, Session, SessionType
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.open import archive_session
from sessions_app.worker.process import WorkerProcess
from tests.automations.jobs.made import new
from tests.automations.messages import claimed, finish, later
from tests.automations.web.test_addresses import signed_in
from tests.conftest import Person, new_person
from tests.conversations.stage import Stage
from tests.yardstick import processor_seconds, yardstick

pytestmark = pytest.mark.django_db
GROWING = (
    "One\n\nTwo *words*",
    "# Head\n- a\n- b\n\n- c\n\ntext\n\n```python\nx = 1\n\ny = 2\n```\n\n| a | b |\n|-|-|\n| c | d |\nend",
    "Set\n===\n\n> quote\n> more\n\n1. one\n2. two\n\n   in it\n\n***\n\nend\u00e9 \U0001f600",
    "<script>alert(1)</script>\n\n<b>x</b>\n\n[x](javascript:alert(1))\n\n![x](//x)",
)


@pytest.fixture
def ada(person: Person) -> Client:
    return signed_in(person)


def test_highlighting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some lexers take time that grows with the square of the length."""
    assert "hl-" in render("```java\n" + "int a = 1;\n" * 20 + "```")
    assert "hl-" not in render("```java\n" + "a b " * 4700 + "\n```")
    monkeypatch.setattr(rendering, "HIGHLIGHTING", -1.0)
    assert render("```python\nx = 'out of time'\n```") == (
        "<pre><code class=\"language-python\">x = 'out of time'\n</code></pre>\n"
    )


def test_a_table_that_would_blow_up_is_shown_as_text() -> None:
    assert render("|a|b|\n|-|-|\n|c|d|").startswith("<table tabindex")
    wide = "|" + "a|" * 60 + "\n|" + "-|" * 60 + "\n" + "a\n" * 9000
    assert render(wide) == f"<pre>{wide}</pre>"


def test_addresses_pictures_tasks_and_columns_are_rendered() -> None:
    link = '<a href="{0}" target="_blank" rel="noopener noreferrer nofollow">{1}</a>'.format
    for text, shown in (
        ("(see https://a.de/b_(c)).", f"(see {link(*['https://a.de/b_(c)'] * 2)})."),
        ("**http://a.de/?x=1&y**!", f"<strong>{link(*['http://a.de/?x=1&amp;y'] * 2)}</strong>!"),
        ("`http://a.de` javascript:http", "<code>http://a.de</code> javascript:http"),
        ("![A *cat*](//a.de)", link("//a.de", "A cat")),
        ("[![](/b) http://c](/d)", link("/d", "Picture http://c")),
    ):
        assert render(text) == f"<p>{shown}</p>\n", text
    assert render("- [x] one\n- [ ] two").count('class="task"') == 2
    examples = "- `Say <b>`\n- `x` y\n\nEnd"
    button = '<li class="example"><button type="button" data-example>Say &lt;b&gt;</button></li>'
    assert button in render(f"{examples}{SUFFIX}")
    assert "<button" not in render(examples) + render(f"- `x` y{SUFFIX}")
    assert '<td class="right">c</td>' in render("|a|\n|-:|\n|c|")
    assert plain("# A\n\n> **b** [c](d)\n\n- ![e](f)\n").split() == ["A", "b", "c", "e"]


def test_a_growing_text_ends_as_the_same_html() -> None:
    """As a window does it: each closed block is rendered once, whatever the pieces are."""
    for text, step in product(GROWING, (1, 3, 7, 1000)):
        source, kept, growing = "", "", ""
        for end in [*range(step, len(text), step), len(text)]:
            closed, length, growing = render_growing(text[len(source) : end])
            source, kept = source + text[len(source) :][:length], kept + closed
        assert (kept + growing).replace("\n", "") == render(text).replace("\n", ""), (text, step)
        assert "<script" not in kept + growing
        assert "javascript:" not in re.sub(r">[^<]*<", "><", kept + growing)


def test_the_length_of_closed_blocks_is_that_of_a_browser() -> None:
    assert render_growing("\U0001f600\r\n\rnext")[1] == 5
    assert render_growing("one\n\n\n")[1] == 0
    assert render_growing("[a]: /b") == ("", 0, "[a]: /b")


def test_a_growing_text_is_bounded(ada: Client) -> None:
    for text in ("[" * 3000, "x" * 30_000, "|" + "a|" * 60 + "\n|" + "-|" * 60 + "\n" + "a\n" * 9000):
        answer = ada.post("/sessions/rendered/", {"text": text})
        assert answer.json()["closed"] == ""
        assert len(answer.json()["growing"]) <= rendering.LONGEST + 1
    assert ada.post("/sessions/rendered/", {"text": ""}).json()["growing"] == ""
    assert ada.post("/sessions/rendered/", {"text": "<i>\x00"}).json()["growing"].startswith("<p>&lt;i&gt;")
    assert Client().post("/sessions/rendered/", {"text": "x"}).status_code == 302


def test_a_conversation_says_how_many_updates_come_with_the_next_message(ada: Client, person: Person) -> None:
    session = person.session()
    address = f"/sessions/{session.pk}/"
    for number in range(2):
        assert (b"background update" in ada.get(address).content) == bool(number)
        deposit(session.pk, NewUpdate(event_type="job_completed", summary="Done."))
    assert b"2 background updates wait. They come with your next message." in ada.get(address).content
    for _ in range(2):  # the second takes the place of the first, which is dropped
        deposit(session.pk, NewUpdate(event_type="job_failed", summary="Bad.", dedupe_key="bad"))
    assert b"3 background updates wait." in ada.get(address).content
    receive(session.pk, MessageInput(content="hello"))
    assert all(words in ada.get(address).content for words in (b"3 background updates wait.", b"Queued"))
    turn = claimed(session)
    assert b"background update" not in ada.get(address).content  # none waits for the person while it runs
    finish(turn)
    deposit(session.pk, NewUpdate(event_type="job_completed", summary="Done."))
    assert b"1 background update waits." in ada.get(address).content
    Session.objects.filter(pk=session.pk).archive()
    assert b"background update" not in ada.get(address).content
    Session.objects.filter(pk=session.pk).unarchive()
    archive_session(session)
    assert b"background update" not in ada.get(address).content


def test_a_search_finds_titles_and_words_of_messages(ada: Client, person: Person) -> None:
    boats = person.session(title="Boats")
    person.session(title="Trains")
    Message.objects.create(session=boats, seq=1, role="user", content="the word is xylophone")
    for query, found, other in (("TRAIN", b"Trains", b"Boats"), ("xylo", b"Boats", b"Trains")):
        page = ada.get(f"/?q={query}").content
        assert found in page, query
        assert other not in page, query
    assert b"Nothing found" in ada.get("/?q=50%25_nothing").content


def test_a_new_conversation_is_the_unused_one(ada: Client, person: Person) -> None:
    first = ada.post("/sessions/new/", {"agent": person.agent.name}).headers["Location"]
    assert ada.post("/sessions/new/", {"agent": person.agent.name}).headers["Location"] == first
    ada.post(f"{first}messages/", {"content": "hello", "key": "a\x00b"})
    second = ada.post("/sessions/new/", {"agent": person.agent.name}).headers["Location"]
    assert second != first
    new(Session.objects.latest("created_at"))
    third = ada.post("/sessions/new/", {"agent": person.agent.name}).headers["Location"]
    assert third != second, "it has an automation"
    later(Session.objects.latest("created_at"))
    assert ada.post("/sessions/new/", {"agent": person.agent.name}).headers["Location"] != third
    assert Session.objects.filter(agent=person.agent, type=SessionType.SUB).count() == 4


def test_an_answer_of_invisible_characters_is_shown_as_an_empty_one(ada: Client, person: Person) -> None:
    session = person.session()
    for seq, text in enumerate(("hello", "\u200b\u2060\u3164"), 1):
        role = "assistant" if seq == 2 else "user"
        Message.objects.create(session=session, seq=seq, role=role, content=text)
    Session.objects.filter(pk=session.pk).update(last_seq=2)
    shown = transcript.newest(person.user, session.pk).entries
    assert [entry.text for entry in shown] == ["hello"]
    page = ada.get(f"/sessions/{session.pk}/").content.decode()
    assert '<span class="preview"><bdi>hello</bdi>' in page


def test_an_answer_to_a_question_is_no_title(person: Person) -> None:
    session = person.session()
    for number, (content, title) in enumerate((("Yes.", ""), ("Boats", ""), ("Ships", "Ships"))):
        receive(session.pk, MessageInput(content=content))
        turn = claimed(session)
        if content == "Boats":
            turn.metadata = {"question": "q"}
        finish(turn)
        session.refresh_from_db()
        assert session.title == title, number


def _follow(ada: Client, link: str) -> tuple[list[str], str, str]:
    """The titles of a part of the list, what its link to the next part says, and where it leads."""
    shown = ada.get(link, headers={"HX-Request": "true"}).content.decode()
    more = re.search(r'hx-get="([^"]+)".*<span class="note">([^<]+)</span>', shown)
    titles = re.findall(r'<span class="name"><bdi>([^<]+)<', shown)
    return titles, more[2] if more else "", unescape(more[1]) if more else ""


def test_every_conversation_is_reached_from_the_end_of_the_list(ada: Client, person: Person) -> None:
    other = new_person("eve")
    for number in range(130):
        person.session(title=f"Number {number}")
    other.session(title="Secret")
    # the same instant for many: the place is the instant and the id
    Session.objects.filter(title__endswith="5").update(updated_at=Now() - timedelta(hours=1))
    first, said, link = _follow(ada, "/sessions/")
    rest = Session.objects.filter(agent=person.agent, type__in=["primary", "sub"]).count() - 60
    assert (len(first), said) == (60, f"{rest} earlier")
    second, said, link = _follow(ada, link)
    assert (len(second), said) == (60, f"{rest - 60} earlier")
    third, said, link = _follow(ada, link)
    assert (said, link) == ("", "")
    every = first + second + third
    assert len(every) == rest + 60
    assert {f"Number {number}" for number in range(130)} <= set(every)
    assert "Secret" not in every
    # what was loaded stays when the list is loaded again, and it works without scripts
    assert _follow(ada, "/sessions/?shown=120")[0] == first + second
    page = ada.get("/").headers["Location"]
    plain = re.search(r'href="(/\?before=[^"]+)"', ada.get(page).content.decode())
    assert plain
    assert second[0].encode() in ada.get(unescape(plain[1])).content


def test_a_place_that_is_none_is_not_found(ada: Client) -> None:
    for place in ("x", "2026-01-01_x", "_", "%00", "2026-01-01T00:00:00_" + "0" * 32, "9" * 5000):
        for address in ("/", "/sessions/"):
            assert ada.get(f"{address}?before={place}").status_code == 404, place
        assert ada.get(f"/sessions/?shown={place}").status_code == 200, place


def test_an_address_of_a_form_says_so_and_wants_its_token(ada: Client, person: Person) -> None:
    answer = ada.get("/sessions/new/")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert b"not a page" in answer.content
    ada.handler.enforce_csrf_checks = True
    answer = ada.post("/sessions/new/", {"agent": person.agent.name})
    assert answer.status_code == 403
    assert b"Reload the page you came from" in answer.content


@pytest.mark.rule("3.5")
def test_a_question_shows_the_real_arguments_whatever_they_are_called(ada: Client, person: Person) -> None:
    """A template looks for a key `items` before it looks for the pairs."""
    for given in ([["name", "harmless"]], "harmless", 5, None):
        session = person.session()
        call = {
            "id": "1",
            "name": "erase",
            "arguments": {"name": "whole disk", "items": given},
            "version": "v",
        }
        ConsentQuestion.objects.create(
            id=str(session.pk)[:8], session=session, turn_id=1, text="May I?", calls=[call], asked_seq=1
        )
        for address in (f"/sessions/{session.pk}/", f"/sessions/{session.pk}/updates/"):
            page = ada.get(address).content.decode()
            assert "<dt>name</dt><dd>&quot;whole disk&quot;</dd>" in page, given
            assert "<dt>items</dt>" in page, given


def test_a_turn_that_ends_while_a_page_is_read_is_shown_once(
    ada: Client, person: Person, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(agent=person.agent, worker=worker)
    receive(stage.chat.pk, MessageInput(content="the only greeting"))
    newest = transcript.newest

    def read_later(*given: Any, **more: Any) -> Any:
        stage.run()
        return newest(*given, **more)

    monkeypatch.setattr(transcript, "newest", read_later)
    page = ada.get(f"/sessions/{stage.chat.pk}/").content.decode()
    assert page.count('class="said" dir="auto">the only greeting') == 1


SLOW = (
    "(",
    "a: ",
    "=",
    '"a',
    "'",
    "<<A\n",
    "/*",
    "\\",
    "<!--",
    "${",
    "a: |\n",
)  # for some lexers of all that exist


def seconds_of_code(language: str, body: str) -> float:
    """Processor time of a block of this language."""
    code = body * (LONGEST_CODE // len(body) - 1)
    return processor_seconds(lambda: render(f"```{language}\n{code}\x01\n```"))


@pytest.mark.rule("1.12")
def test_no_language_of_a_code_block_holds_the_process() -> None:
    for language, body in (("html+ng2", "("), ("console", "a: "), ("ini", "="), ("antlr-python", '"a')):
        assert seconds_of_code(language, body) < 8 * processor_seconds(yardstick), language
    assert "hl-" in render("```Python\nimport this\n```")


@pytest.mark.full
def test_no_highlighted_language_is_slow() -> None:
    slow = [(each, body) for each in sorted(LANGUAGES) for body in SLOW if seconds_of_code(each, body) > 1.0]
    assert slow == []
