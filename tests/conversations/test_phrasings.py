"""The judge of phrasings by scripted agents: a good one passes, and each usual mistake does not (rule 11.8)."""

import pytest
from django.test import Client

from agent_core.llm.protocol import ModelReply
from automations.appointments.panel import appointments_made
from automations.models import CronJob, ScheduledMessage
from sessions_app.worker.process import WorkerProcess
from tests.agent_core.planner.plans import says
from tests.conversations.conftest import agent_of
from tests.conversations.phrasings import PHRASINGS, Phrasing, good_replies, judge, play
from tests.conversations.stage import Stage, calls
from tests.model_server import ModelServer

pytestmark = pytest.mark.rule("11.8")

HALF_AN_HOUR = PHRASINGS[0]


@pytest.fixture
def stage(scripted: ModelServer, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("OPENAI_BASE_URL", scripted.base_url)
    scripted.reset()
    return Stage(agent=agent_of("openai-chat:phrasings"), worker=worker, server=scripted)


IN_GERMAN = [pytest.param(each, marks=pytest.mark.full) for each in PHRASINGS[10:]]


@pytest.mark.parametrize("asked", [*PHRASINGS[:10], *IN_GERMAN], ids=lambda asked: asked.said[:30])
def test_a_good_agent_leaves_the_appointment_that_was_asked_for(stage: Stage, asked: Phrasing) -> None:
    play(stage, asked)


@pytest.mark.parametrize(
    "replies",
    [
        (says("I will remind you in half an hour."),),
        (calls("cron", action="add", message="Call Ada", every_seconds=1800), says("I will.")),
        (says("It is time: call Ada!"),),
    ],
)
def test_a_promise_alone_a_repetition_and_haste_are_found(
    stage: Stage, replies: tuple[ModelReply, ...]
) -> None:
    """Complaint 15."""
    stage.script(*replies)
    stage.say(HALF_AN_HOUR.said)
    with pytest.raises((AssertionError, ValueError)):
        judge(stage, HALF_AN_HOUR)


def test_what_a_turn_scheduled_stands_at_its_answer_and_a_promise_alone_has_no_card(stage: Stage) -> None:
    """Complaint 15."""
    browser = Client()
    browser.force_login(stage.chat.owner)
    stage.script(says("I will remind you in half an hour."))
    stage.say(HALF_AN_HOUR.said)
    address = f"/sessions/{stage.chat.pk}/"
    assert 'class="made"' not in browser.get(address).content.decode()
    stage.script(*good_replies(HALF_AN_HOUR))
    first = stage.say(HALF_AN_HOUR.said)
    again = calls("cron", action="add", name="Look", message="Look.", cron_expr="0 9 * * *")
    stage.script(again, says("Every day at nine."))
    second = stage.say("Look every day at nine.")
    shown = browser.get(address).content.decode()
    assert shown.count('class="made"') == 2
    assert 'aria-label="Look"' in shown
    assert appointments_made(stage.chat.owner, [first.pk, second.pk]).keys() == {first.pk, second.pk}
    stage.script(again, says("It exists."))
    stage.say("Look every day at nine.")
    assert CronJob.objects.filter(session=stage.chat).count() == 1, "the tool refuses an equal one"
    CronJob.objects.filter(session=stage.chat).delete()
    ScheduledMessage.objects.update(status="cancelled")
    assert 'class="made"' not in browser.get(address).content.decode(), "it shows what exists"
