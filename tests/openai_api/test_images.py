"""Images in messages: they reach a model that sees, also in later turns, and are refused where nobody would look."""

from base64 import b64encode
from typing import Any

import openai
import pytest

from sessions_app.memory.files import LARGEST_IMAGE, MOST_FILES
from sessions_app.memory.images import MOST_SHOWN
from sessions_app.models import Attachment, Message, Turn
from tests.api.conftest import for_each
from tests.openai_api.conftest import Chatter, turns

pytestmark = pytest.mark.processes

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"


def url(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{b64encode(content).decode()}"


def shown(text: str, *urls: str) -> list[dict[str, Any]]:
    """A message of parts."""
    images = [{"type": "image_url", "image_url": {"url": each}} for each in urls]
    return [{"type": "text", "text": text}, *images]


def seen_by_the_model(chatter: Chatter) -> list[str]:
    """The images of the last request to the model, in order."""
    messages = chatter.site.model.requests[-1].body["messages"]
    parts = [part for each in messages if isinstance(each["content"], list) for part in each["content"]]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def test_an_image_reaches_the_model_and_stays_in_the_chat(ada: Chatter) -> None:
    dog, cat = url(PNG + b"dog"), url(JPEG + b"cat", "jpeg")
    first = shown("[[reply:A dog and a cat.]]What are they?", dog, cat)
    assert ada.hear(first, chat="c") == "A dog and a cat."
    assert seen_by_the_model(ada) == [dog, cat]
    assert ada.hear(first, "[[reply:Brown.]]Of which colour?", chat="c") == "Brown."
    assert seen_by_the_model(ada) == [dog, cat]
    [session] = ada.sessions()
    assert ada.said(session)[0] == "[[reply:A dog and a cat.]]What are they?\n\n[2 images]"


def test_an_image_alone_is_a_message_and_the_front_ends_list_of_files_is_left_out(ada: Chatter) -> None:
    ada.say([{"type": "image_url", "image_url": {"url": url(PNG)}}], chat="alone")
    assert Turn.objects.get().content == "[image]"
    files = '<attached_files>\n<file type="file" id="1" name="red.png"/>\n</attached_files>\n\n'
    ada.say(shown(f"{files}what is it?", url(PNG)), chat="c")
    assert Turn.objects.latest("pk").content == "what is it?\n\n[image]"


def test_a_branch_shows_the_images_before_it_and_another_image_begins_one(ada: Chatter) -> None:
    dog, cat = (shown("[[reply:x]]what?", url(PNG + name)) for name in (b"dog", b"cat"))
    ada.say(dog, chat="c")
    for said in ("first", "edited"):
        ada.say(dog, said, chat="c")
    assert seen_by_the_model(ada) == [url(PNG + b"dog")]
    ada.say(cat, "and?", chat="c")
    _, _, other = ada.sessions()
    assert ada.said(other) == ["[[reply:x]]what?\n\n[image]", "and?"]


def test_only_the_newest_images_are_shown_again(ada: Chatter) -> None:
    said: list[Any] = []
    for number in range(4):
        said.append(shown("[[reply:x]]what?", *(url(PNG + b"%d" % (10 * number + n)) for n in range(3))))
        ada.say(*said, chat="c")
    assert len(seen_by_the_model(ada)) == MOST_SHOWN
    assert seen_by_the_model(ada)[-1] == url(PNG + b"32")


def test_a_model_that_refuses_an_image_is_not_shown_it_again(ada: Chatter) -> None:
    with pytest.raises(openai.InternalServerError) as refused:
        ada.say(shown("[[fail:400]]what?", url(PNG)), chat="c")
    turn = Turn.objects.latest("pk")
    assert refused.value.code == turn.error_code == "model_refused"
    assert turn.error.rstrip(".") in refused.value.message
    assert ada.hear(shown("[[fail:400]]what?", url(PNG)), "[[reply:Well.]]so?", chat="c") == "Well."
    assert seen_by_the_model(ada) == []


@pytest.mark.parametrize(
    "changes", [{"model": "offline"}, {"engine": "planner"}, {"model_settings": {"images": False}}]
)
def test_an_agent_that_sees_nothing_refuses_them(ada: Chatter, changes: dict[str, Any]) -> None:
    ada.api("PATCH", "agents/demo/", json=changes)
    with pytest.raises(openai.BadRequestError) as refused:
        ada.say(shown("what is it?", url(PNG)), chat="c")
    assert refused.value.code == "no_images"
    assert turns() == Attachment.objects.count() == len(ada.sessions()) == 0


def test_large_images_of_earlier_messages_make_room_for_newer_ones(ada: Chatter) -> None:
    large = [url(PNG + b"%d" % number + b"x" * (LARGEST_IMAGE - 100)) for number in range(3)]
    for number, each in enumerate(large):  # chats of their own: a body has a bound, too
        ada.say(shown("[[reply:x]]what?", each), chat=str(number))
    last = ada.sessions()[-1]
    Attachment.objects.update(session=last)
    ids = [str(pk) for pk in Attachment.objects.order_by("-created_at").values_list("pk", flat=True)]
    Message.objects.filter(session=last, role="user").update(metadata={"images": ids})
    ada.say(shown("[[reply:x]]what?", large[-1]), "[[reply:y]]and?", chat="2")
    assert len(seen_by_the_model(ada)) == 2


@pytest.mark.rule("10.0")
def test_what_is_no_image_is_refused_and_nothing_is_fetched(ada: Chatter) -> None:
    def check(given: list[str]) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            ada.say(shown("what is it?", *given), chat="c")
        assert refused.value.param == "messages[0].content"
        assert len(str(refused.value)) < 500
        assert turns() == 0

    for_each(
        [
            ["https://example.org/dog.png"],
            ["http://169.254.169.254/latest/meta-data"],
            ["data:image/png;base64,!!!"],
            ["data:text/html;base64,PGI+"],
            [url(b"<svg onload=alert(1)>", "svg+xml")],
            [url(b"<html>", "png")],
            [url(PNG + b"x" * LARGEST_IMAGE)],
            [url(PNG)] * (MOST_FILES + 1),
            ["x" * 1_000_000],
        ],
        check,
    )


@pytest.mark.rule("7.1")
def test_images_of_another_user_are_not_shown(ada: Chatter, bob: Chatter) -> None:
    ada.say(shown("[[reply:x]]what?", url(PNG + b"hers")), chat="c")
    bob.say("[[reply:x]]hi", chat="c")
    stolen = str(Attachment.objects.get().pk)
    Message.objects.filter(session__owner=bob.user, role="user").update(metadata={"images": [stolen]})
    bob.say("[[reply:x]]hi", "and?", chat="c")
    assert seen_by_the_model(bob) == []


def test_images_go_with_their_session(ada: Chatter) -> None:
    ada.say(shown("[[reply:x]]what?", url(PNG)), chat="c")
    [session] = ada.sessions()
    ada.api("DELETE", f"sessions/{session.pk}/")
    assert not Attachment.objects.exists()
