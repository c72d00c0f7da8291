"""Scheduled messages over HTTP: made, shown, cancelled, refused (docs/automations.md)."""

import pytest

from automations.firing.fire_messages import fire_due_messages
from automations.models import ScheduledMessage
from sessions_app.models import Agent, Session
from tests.api.conftest import Caller, made, problem
from tests.automations.messages import a_worker, due, later, run_turn

pytestmark = [pytest.mark.django_db, pytest.mark.rule("8.1")]
ASK = {"send_at": "2099-01-01T09:00:00+01:00", "message_text": "Take the cake out."}


def at(session: str) -> str:
    return f"/api/sessions/{session}/scheduled-messages/"


def test_one_is_made_shown_listed_and_cancelled(ada: Caller) -> None:
    session = ada.session()
    answer = ada.post(at(session), ASK)
    message = made(answer)
    given = ASK | {"send_at": "2099-01-01T08:00:00Z", "replace_existing": False, "status": "pending"}
    assert (given | {"session": session, "session_id": session}).items() <= message.items()
    address = answer.headers["Location"]
    assert address == f"/api/scheduled-messages/{message['id']}/"
    assert ada.get(address).json() == message
    assert ada.get(address, If_None_Match=answer.headers["ETag"]).status_code == 304
    other = made(ada.post(at(session), ASK | {"replace_existing": True}))
    assert other["cancelled_ids"] == [message["id"]]
    listed = ada.get(at(session)).json()["results"]
    expected = [(message["id"], "cancelled"), (other["id"], "pending")]
    assert [(each["id"], each["status"]) for each in listed] == expected
    for _ in range(2):
        gone = ada.delete(f"/api/scheduled-messages/{other['id']}/")
        assert (gone.status_code, gone.json()["status"]) == (200, "cancelled")
        assert gone.json() == other | {"status": "cancelled"}


@pytest.mark.rule("8.2")
@pytest.mark.django_db(transaction=True)
def test_sent_messages_name_their_history_entry_and_cannot_be_cancelled(ada: Caller) -> None:
    session = Session.objects.get(pk=ada.session())
    message = later(session)
    due(message, ago=90)
    fire_due_messages()
    address = f"/api/scheduled-messages/{message.pk}/"
    run_turn(session, a_worker())
    problem(ada.delete(address), 409, "message_sent")
    shown = ada.get(address).json()
    [said] = ada.get(f"/api/sessions/{session.pk}/messages/").json()["results"]
    assert (shown["status"], shown["sent_message_id"]) == ("sent", said["id"])
    assert shown["sent_at"] is not None
    told = ada.get(f"/api/runs/{said['metadata']['source']['run_id']}/").json()
    assert (told["state"], told["turn"], told["rendered_prompt"]) == ("succeeded", said["turn"], None)
    failed = later(session)
    ScheduledMessage.objects.mark_failed([failed.pk], "It could not be delivered.")
    problem(ada.delete(f"/api/scheduled-messages/{failed.pk}/"), 409, "message_failed")
    shown = ada.get(f"/api/scheduled-messages/{failed.pk}/").json()
    assert shown["last_error"] == "It could not be delivered."


@pytest.mark.django_db(transaction=True)
def test_a_message_for_a_unified_thread_goes_to_the_primary(ada: Caller) -> None:
    thread = ada.session()
    own = made(ada.post(at(thread), ASK))
    ada.patch("/api/agents/demo/", {"unified_session": True})
    primary = Agent.objects.get(name="demo", owner=ada.user).sessions.get(type="primary")
    message = made(ada.post(at(thread), ASK))
    assert message["session_id"] == str(primary.pk)
    for session in (thread, str(primary.pk)):
        listed = {each["id"] for each in ada.get(at(session)).json()["results"]}
        assert message["id"] in listed
    assert own["id"] in {each["id"] for each in ada.get(at(thread)).json()["results"]}, (
        "it is still the thread's"
    )
