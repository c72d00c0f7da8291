"""Files in the chat: chosen, shown, taken out and sent; a message that is sent again; jumping by Ctrl-K."""

import pytest
from playwright.sync_api import FilePayload, expect

from sessions_app.memory.files import MOST_FILES, files_of, ids_in
from sessions_app.models import Attachment, Turn
from tests.browser import IN_BROWSER, Visitor, say, serious
from tests.openai_api.test_images import PNG

pytestmark = [*IN_BROWSER, pytest.mark.full]


def named(name: str, content: bytes = b"the text", kind: str = "text/plain") -> FilePayload:
    return {"name": name, "mimeType": kind, "buffer": content}


def test_files_are_shown_taken_out_and_sent(visitor: Visitor) -> None:
    page = visitor.conversation()
    chosen = page.locator("#files")
    chosen.set_input_files([named("a.txt"), named("b.png", PNG, "image/png")])
    chosen.set_input_files([named("c.txt")])
    expect(page.locator("#attached > li")).to_have_count(3)
    page.get_by_role("button", name="Remove a.txt").click()
    assert serious(page) == []
    chosen.set_input_files([named(f"{n}.txt") for n in range(MOST_FILES)])
    expect(page.locator("#alert")).to_contain_text(str(MOST_FILES))
    expect(page.locator("#attached > li")).to_have_count(2)
    page.get_by_label("Send").click()
    said = page.locator("#messages .entry.person")
    expect(said.locator("img, .file bdi")).to_have_count(2)
    expect(said.locator(".said")).to_have_count(0)
    expect(page.locator("#attached > li")).to_have_count(0)
    assert {each.name for each in Attachment.objects.all()} == {"b.png", "c.txt"}


def test_a_failed_message_is_sent_again_and_an_edited_one_is_new(visitor: Visitor) -> None:
    session = visitor.person.session()
    page = visitor.conversation(session)
    page.locator("#files").set_input_files([named("b.png", PNG, "image/png")])
    say(page, "[[fail:400]] look")
    again = page.get_by_role("button", name="Try again")
    expect(again).to_be_visible()
    page.reload()
    again.click()
    expect(page.locator(".entry.failure")).to_have_count(2)
    expect(again).to_have_count(1)  # below the last answer
    first, second = Turn.objects.order_by("pk")
    assert second.content == first.content
    assert files_of(second) == files_of(first) != ()
    [row] = Attachment.objects.filter(pk__in=ids_in(first.input.message))
    mine = page.locator(".entry.person").last
    mine.hover()
    mine.get_by_role("button", name="Edit").click()
    box = page.get_by_label("Message", exact=True)
    expect(box).to_have_value("[[fail:400]] look")
    expect(page.locator("#attached img")).to_have_attribute("alt", row.name)
    say(page, "[[reply:Seen.]] look")
    expect(page.locator(".entry.agent .text").last).to_have_text("Seen.")
    expect(page.locator(".entry.person")).to_have_count(3)
    expect(again).to_have_count(0)


def test_control_k_jumps_by_typing_or_by_pointer(visitor: Visitor) -> None:
    session = visitor.person.session(title="Trip to Lisbon")
    page = visitor.conversation()
    page.keyboard.press("Control+k")
    where = page.get_by_role("combobox", name="Jump to")
    expect(where).to_be_focused()
    page.keyboard.type("lisb")
    chosen = page.locator("#jump [role=option][aria-selected=true]")
    expect(chosen).to_contain_text("Trip to Lisbon")
    assert serious(page) == []
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/sessions/{session.pk}/")
    page.get_by_role("button", name="Jump to").click()
    where.fill("zzz")
    expect(page.locator("#jump-found")).to_have_text("Nothing found")
    where.fill("")
    page.locator("#jump [role=option]", has_text="Upcoming").click()
    page.wait_for_url("**/upcoming/")
