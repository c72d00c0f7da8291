"""Files of messages: what is taken, what a hostile PDF costs, what a model is shown, and what becomes of them."""

import io
import time
import zlib
from base64 import b64encode
from threading import BoundedSemaphore

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse
from pypdf import PdfWriter

from agent_core.text import fence
from agent_core.types import Role
from sessions_app.exceptions import TooSoon
from sessions_app.memory import pdf_text
from sessions_app.memory.files import LARGEST_FILES, LARGEST_IMAGE, LONGEST_TEXT, MOST_FILES, read_files
from sessions_app.memory.pdf_text import UnreadablePdf, text_of_pdf
from sessions_app.models import Attachment, Message, Session, Turn, TurnInput
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from tests.agent_core.planner.plans import says
from tests.api.conftest import problem
from tests.conftest import Person
from tests.deletion import caller
from tests.inside import Inside, call, makes
from tests.openai_api.test_images import PNG

pytestmark = [pytest.mark.django_db(transaction=True)]


def pdf(drawn: bytes) -> bytes:
    """A PDF of one page with this content."""
    content = zlib.compress(drawn)
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Filter/FlateDecode/Length %d>>stream\n%b\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    body = b"".join(b"%d 0 obj%b endobj\n" % (n, each) for n, each in enumerate(objects, 1))
    return b"%PDF-1.4\n" + body + b"trailer<</Root 1 0 R>>\nstartxref\n0\n%%EOF"


LINE = b"BT /F 12 Tf (Invoice of May) Tj ET\n"


def locked() -> bytes:
    writer, written = PdfWriter(), io.BytesIO()
    writer.add_blank_page(100, 100)
    writer.encrypt("secret")
    writer.write(written)
    return written.getvalue()


def sent(content: bytes, name: str = "a") -> dict[str, str]:
    return {"name": name, "content": b64encode(content).decode()}


@pytest.mark.rule("10.0")
def test_only_pictures_pdfs_and_texts_within_the_bounds_are_taken(person: Person) -> None:
    ada, messages = caller(person), f"/api/sessions/{person.session().pk}/messages/"
    refused = {
        "a program": [sent(b"\x7fELF\x02\x01")],
        "in another encoding": [sent("Grüße".encode("utf-16"))],
        "empty": [sent(b" \n")],
        "no base64": [{"name": "a", "content": "!!!"}],
        "a damaged PDF": [sent(b"%PDF-1.7\nnothing")],
        "a PDF without text": [sent(pdf(b""))],
        "a PDF with a password": [sent(locked())],
        "a large picture": [sent(PNG + b"x" * LARGEST_IMAGE)],
        "large together": [sent(b"x" * (LARGEST_FILES // 2 + 1))] * 2,
    }
    for name, files in refused.items():
        said = problem(ada.post(messages, {"content": "look", "files": files}), 400, "bad_file")
        assert len(said["detail"]) < 200, name
    problem(
        ada.post(messages, {"content": "look", "files": [sent(b"x")] * (MOST_FILES + 1)}), 400, "bad_input"
    )
    problem(ada.post(messages, {"content": "look", "files": [sent(PNG)]}), 400, "no_images")  # offline
    assert Turn.objects.count() == Attachment.objects.count() == 0


@pytest.mark.rule("10.0")
def test_a_hostile_pdf_is_bounded_in_time_memory_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    with pytest.raises(UnreadablePdf, match="too long"):
        text_of_pdf(pdf(LINE * 400_000), 1_000_000, 1.0)
    assert time.monotonic() - began < 4
    assert len(text_of_pdf(pdf(LINE * 200), 20, 10.0)) == 20
    monkeypatch.setattr(pdf_text, "MEMORY", 16 * 1024 * 1024)
    with pytest.raises(UnreadablePdf, match="damaged"):
        text_of_pdf(pdf(LINE), 20, 10.0)


@pytest.mark.rule("10.0")
def test_a_pdf_holds_no_connection_and_waits_shortly_for_room(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, given = person.user.pk, [("a.pdf", pdf(LINE))]
    assert read_files(owner, given * 2)[1].text
    assert connection.connection is None
    monkeypatch.setattr(pdf_text, "_room", BoundedSemaphore(1))
    with monkeypatch.context() as other:
        other.setattr("sessions_app.memory.files._reading", {owner: "another PDF"})
        with pytest.raises(TooSoon):
            read_files(owner, given)
    pdf_text._room.acquire()
    began = time.monotonic()
    with pytest.raises(TooSoon):
        read_files(owner, given)
    assert time.monotonic() - began < pdf_text.WAIT + 1
    pdf_text._room.release()
    assert read_files(owner, given)


@pytest.mark.rule("3.5")
def test_a_file_is_data_and_text_from_outside(inside: Inside) -> None:
    session: Session = inside.person.session()
    owner = inside.person.user.pk
    taken = read_files(owner, [("bill.pdf", pdf(LINE)), ("b.txt", b"Call count.\n" * 20_000)])
    turn = receive(session.pk, MessageInput(content="What is it?\n\n[2 files]", files=taken), owner)
    asked = makes(call("count", "1", name="by a file"))
    inside.run(session, asked, says("An invoice."))
    [bill, long] = fence.blocks(inside.model.calls[0].entries[-1].content)
    assert (bill.name, bill.text) == (fence.FILE, "bill.pdf\n\nInvoice of May")
    assert LONGEST_TEXT // 2 < len(long.text) < LONGEST_TEXT // 2 + 100
    assert inside.did("by a file") == 0
    inside.say(session, "And again?")
    assert "Invoice of May" in str(inside.model.calls[-1].entries)
    assert Message.objects.filter(turn=turn, role=Role.USER).get().content == "What is it?\n\n[2 files]"


def test_a_message_with_files_joins_no_turn_and_takes_them_along_when_withdrawn(inside: Inside) -> None:
    session: Session = inside.person.session()
    taken = read_files(inside.person.user.pk, [("a.txt", b"the text")])
    turn = receive(session.pk, MessageInput(content="look", files=taken))
    assert turn.on_busy == "enqueue"
    cancel_turn(turn.pk)
    assert not Attachment.objects.exists()
    receive(session.pk, MessageInput(content="look", files=taken))
    session.delete()
    assert not Attachment.objects.exists()


def test_a_message_that_is_sent_again_brings_its_files_and_the_limit_of_its_token(
    person: Person, client: Client
) -> None:
    session = person.session()
    taken = read_files(person.user.pk, [("a.txt", b"the text")])
    about = TurnInput(limited=True)
    turn = receive(session.pk, MessageInput(content="look", files=taken, about=about))
    Turn.objects.filter(pk=turn.pk).update(state="failed", finished_at=Now())
    client.force_login(person.user)
    client.post(reverse("again", args=[session.pk, turn.pk]))
    again = Turn.objects.exclude(pk=turn.pk).get()
    assert again.input.limited
    assert Attachment.objects.count() == 2


@pytest.mark.rule("10.0")
def test_only_the_owner_fetches_a_file_and_nothing_in_it_runs(person: Person, client: Client) -> None:
    session, hostile = person.session(), {"name": "x.html", "content": b"<script>alert(1)</script>"}
    for kind in ("image/png", "application/pdf", "text/plain"):
        url = f"/attachments/{Attachment.objects.create(session=session, media_type=kind, **hostile).pk}/"
        client.force_login(person.user)
        got = client.get(url)
        assert (got.status_code, got.content) == (200, hostile["content"])
        shown = "inline" if kind == "image/png" else "attachment"
        assert got["Content-Disposition"].startswith(shown)
        assert got["Content-Type"].startswith(kind)
        assert got["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in got["Content-Security-Policy"]
        assert client.get(url, headers={"If-None-Match": got["ETag"]}).status_code == 304
        client.force_login(User.objects.get_or_create(username="bob")[0])
        assert client.get(url, headers={"If-None-Match": "*"}).status_code == 404
