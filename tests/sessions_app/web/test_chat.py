"""A conversation in a real browser: answers as they are made, waiting, stopping, questions, several windows."""

import re
from datetime import timedelta

import pytest
from django.db.models.functions import Now
from playwright.sync_api import expect

from agent_core.llm.protocol import ModelReply
from agent_core.types import ToolCall
from automations.jobs.edit import update_job
from automations.models import CronJob
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.models import Delivery, Engine, Message, ReadMark, Session, Turn
from sessions_app.postgres.notify import Try, publisher
from tests.browser import IN_BROWSER, Visitor, say, serious, use_engine
from tests.fleet import until

pytestmark = IN_BROWSER


def test_a_message_is_answered_and_marked_as_read(visitor: Visitor) -> None:
    session = visitor.person.session()
    page = visitor.conversation(session)
    expect(page.get_by_role("heading", name="What would you like to do?")).to_be_visible()
    say(page, "My cat is called **Tom** [[reply:A *fine* name, `Tom`]]")
    answer = page.locator(".entry.agent:not(.live) .text")
    expect(answer).to_have_text("A fine name, Tom")
    assert answer.locator("em").inner_text() == "fine"
    assert "**Tom**" in page.locator(".entry.person .said").inner_text()  # as it was written
    expect(page.locator(".conversation[aria-current]")).to_contain_text("My cat")
    expect(page.locator(".dot.new")).to_have_count(0)
    until(lambda: ReadMark.objects.filter(pk=session.pk, seq=2).exists(), what="the mark")


def test_an_answer_is_rendered_while_it_is_made(visitor: Visitor) -> None:
    page = visitor.conversation()
    text = (
        "A **bold** word and\n\n- one\n- two\n\n<img src=x onerror=window.ran=1> <javascript:window.ran=1>"
        " and *then* some more words that come after the pause, which is at the half of it, and then its *end*"
    )
    say(page, f"[[pause:mid]] [[reply:{text}]]")
    live = page.locator("#live .text")
    expect(live.locator("strong")).to_have_text("bold")
    expect(live.locator("li")).to_have_count(2)
    expect(live.locator("img, a")).to_have_count(0)
    assert "end" not in live.inner_text()
    page.evaluate(
        "document.body.dispatchEvent(new Event('refresh'))"
    )  # the server's part of the page is empty
    expect(live.locator("li")).to_have_count(2)
    page.reload()
    expect(live.locator("li")).to_have_count(2)
    expect(live.locator("strong")).to_have_text("bold")
    visitor.model.release("mid")
    expect(page.locator(".entry.agent:not(.live) .text em").last).to_have_text("end")
    assert page.evaluate("window.ran") is None


def test_a_piece_after_a_space_is_not_glued_to_what_was_rendered(visitor: Visitor) -> None:
    page = visitor.conversation()
    say(page, "שלום! [[hold:glue]]")
    live = page.locator("#live .text")
    expect(live).to_be_attached()
    turn = Turn.objects.get()
    of = Try(str(turn.session_id), turn.pk, turn.attempt)
    with page.expect_response("**/sessions/rendered/"):
        publisher().delta(of, "One `two` ")
    expect(live.locator("code")).to_have_text("two")
    page.route("**/sessions/rendered/", lambda route: route.abort())
    publisher().delta(of, "three")
    expect(live).to_have_text("One two three")
    expect(page.locator(".entry.person .said")).to_have_css("direction", "rtl")
    visitor.model.release("glue")


def test_what_a_turn_planned_is_a_card_with_its_buttons(visitor: Visitor) -> None:
    made = {"action": "add", "name": "Stand up", "message": "Stand up.", "cron_expr": "30 8 * * 1-5"}
    visitor.model.answer_with(
        ModelReply(text="", calls=(ToolCall(id="c1", name="cron", arguments=made),)), ModelReply(text="Done.")
    )
    page = visitor.conversation()
    say(page, "every weekday at 8:30 remind me to stand up")
    card = page.get_by_role("region", name="Stand up")
    expect(card).to_contain_text("weekdays at 08:30")
    assert serious(page) == []
    expect(page.locator(".calls > summary")).to_have_text("Added an appointment")
    card.get_by_role("link", name="Why? Stand up").click()
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="Stand up")).to_be_visible()
    panel.get_by_role("link", name="← Appointments").click()
    card.get_by_role("button", name="Pause Stand up").click()
    expect(panel.get_by_role("button", name="Resume Stand up")).to_be_visible()
    assert not CronJob.objects.get(name="Stand up").enabled
    panel.get_by_role("button", name="Resume Stand up").click()  # the card hears of it
    expect(card.get_by_role("button", name="Pause Stand up")).to_be_visible()
    update_job(CronJob.objects.get(name="Stand up").pk, {"enabled": False})  # another window does
    page.evaluate("document.body.dispatchEvent(new Event('appointments-due'))")
    expect(card.get_by_role("button", name="Resume Stand up")).to_be_visible()
    panel.get_by_role("button", name="Resume Stand up").focus()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


def test_one_button_leads_to_the_newest_message(visitor: Visitor) -> None:
    page = visitor.conversation(viewport={"width": 390, "height": 500})
    newest = page.get_by_role("button", name="Jump to the newest message")
    say(page, "[[reply:" + "A line\n\n" * 40 + "the end]]")
    end = page.locator(".entry.agent:not(.live)").get_by_text("the end")
    expect(end).to_be_in_viewport()
    page.locator("#scroll").evaluate("it => { it.scrollTop = 0; }")
    newest.click()
    expect(end).to_be_in_viewport()
    expect(newest).to_be_hidden()


@pytest.mark.full
def test_pieces_are_shown_while_the_server_renders_nothing(visitor: Visitor) -> None:
    page = visitor.conversation()
    page.route("**/sessions/rendered/", lambda route: route.abort())
    say(page, "[[pause:raw]] [[reply:A **bold** word and more words that come after the pause]]")
    expect(page.locator("#live .text")).to_contain_text("A **bold**")
    visitor.model.release("raw")
    expect(page.locator(".entry.agent:not(.live) strong")).to_have_text("bold")
    expect(page.locator("#live")).to_have_count(0)


def test_a_question_of_a_plan_is_answered_where_it_stands(visitor: Visitor) -> None:
    use_engine(visitor.person, Engine.PLANNER)
    page = visitor.conversation()
    say(page, "think about paint, then ask me which colour, then paint the door")
    question = page.get_by_role("region", name="A question for you")
    expect(question).to_contain_text("Which colour?")
    plan = page.get_by_role("region", name="Plan")
    expect(plan.locator("li.done")).to_have_count(1)
    expect(question.locator(".asked")).to_have_class("asked hidden")  # it stands above as a message
    assert serious(page) == []
    question.get_by_label("Your answer").fill("blue")
    with page.expect_response(re.compile("/updates/")):  # what comes meanwhile leaves the answer as it is
        page.evaluate("document.body.dispatchEvent(new Event('refresh'))")
    expect(question.get_by_label("Your answer")).to_be_focused()
    expect(question.get_by_label("Your answer")).to_have_value("blue")
    question.get_by_role("button", name="Answer").click()
    expect(question).to_have_count(0)
    expect(plan).to_have_count(0)
    expect(page.locator(".entry.person .said").last).to_have_text("blue")
    page.locator(".did > summary").click()  # what it did can still be read
    expect(page.locator(".did li.done").first).to_be_visible()


@pytest.mark.full
@pytest.mark.parametrize("status", [None, 503])  # None: it never arrives
def test_what_was_read_is_marked_by_the_next_page_if_the_person_leaves_at_once(
    visitor: Visitor, status: int | None
) -> None:
    first = visitor.person.session(title="First")
    page = visitor.conversation(first)
    page.route(
        f"**/sessions/{first.pk}/read/",
        lambda route: route.fulfill(status=status) if status else route.abort(),
    )
    with page.expect_request("**/read/"):
        say(page, "hello")
        expect(page.locator(".entry.agent:not(.live)")).to_have_count(1)
    page.goto("/agents/")
    expect(page.locator(".conversation.unread", has_text="First")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")
    page.goto("/agents/")
    expect(page.locator(".conversation", has_text="First").locator(".dot")).to_have_count(0)
    assert ReadMark.objects.get(pk=first.pk).seq == 2


@pytest.mark.full
def test_a_page_works_where_the_browser_stores_nothing(visitor: Visitor) -> None:
    session = visitor.person.session()
    page = visitor.window()
    page.add_init_script(
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new Error('off'); } })"
    )
    page.goto(f"/sessions/{session.pk}/")
    say(page, "hello")
    expect(page.locator(".entry.agent:not(.live)")).to_have_count(1)
    until(lambda: ReadMark.objects.filter(pk=session.pk, seq=2).exists(), what="the mark")


@pytest.mark.full
def test_an_answer_names_the_background_updates_it_was_told(visitor: Visitor) -> None:
    session = visitor.person.session()
    page = visitor.conversation(session)
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    deposit(session.pk, NewUpdate(event_type="job_completed", summary="The <b>backup</b> is done."))
    expect(page.locator(".updates summary")).to_contain_text("1 background update waits.")
    page.locator(".updates summary").click()
    page.evaluate("document.body.dispatchEvent(new Event('refresh'))")
    expect(page.locator(".updates time")).to_be_visible()
    expect(page.get_by_role("heading", name="What would you like to do?")).to_be_visible()
    say(page, "hello")
    expect(page.locator(".entry.agent:not(.live) .chip")).to_have_text(
        "Background update: The <b>backup</b> is done."
    )
    expect(page.locator(".updates")).to_have_count(0)
    say(page, "hello again")
    expect(page.locator(".entry.agent:not(.live)")).to_have_count(2)
    expect(page.locator(".chip")).to_have_count(1)


@pytest.mark.full
@pytest.mark.usefixtures("telegram")
def test_the_state_of_a_delivery_changes_in_an_open_window(visitor: Visitor) -> None:
    session = visitor.person.session(channel="telegram", address="42")
    message = Message.objects.create(session=session, seq=1, role="assistant", content="Good morning")
    Session.objects.filter(pk=session.pk).update(last_seq=1)
    to = {"session": session, "session_key": session.key, "channel": "telegram", "address": "42"}
    later = Now() + timedelta(hours=1)
    Delivery.objects.create(message=message, idempotency_key="message:1", next_attempt_at=later, **to)
    page = visitor.conversation(session)
    chip = page.locator(".chip.delivery")
    expect(chip).to_have_text("telegram: pending")
    Delivery.objects.update(next_attempt_at=Now(), hinted_at=None)
    expect(chip).to_have_text("telegram: sent", timeout=40_000)
    expect(page.locator(".entry")).to_have_count(1)
