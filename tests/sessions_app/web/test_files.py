"""Files in the chat: chosen, shown, taken out and sent; fetched by their owner only; a message sent again."""

import pytest
from playwright.sync_api import FilePayload, expect

from sessions_app.memory.files import MOST_FILES
from sessions_app.models import Attachment
from tests.browser import IN_BROWSER, Visitor, serious
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
