"""What a session says leaves the server, to a real web server; and its owner's program is told what failed."""

import json
import re
import threading
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.exceptions import ModelRefused
from agent_core.text.formats import utc_text
from automations.models import JobClock, RunRecord, RunState
from sessions_app.agents.edit import update_agent
from sessions_app.channels import base, webhook
from sessions_app.channels.mail import Email
from sessions_app.channels.webhook import secret_of, signature
from sessions_app.deliveries import outbox, system_events
from sessions_app.deliveries.send import send_next
from sessions_app.deliveries.system_events import LIMIT_DATA, EventName, report_event
from sessions_app.exceptions import BadInput, NotDead
from sessions_app.hints import DeliveryLane
from sessions_app.models import (
    Agent,
    Delivery,
    DeliveryState,
    Event,
    Message,
    OnBusy,
    Session,
    Turn,
    TurnInput,
)
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.open import change_chat, open_session
from tests.admin.conftest import make_job
from tests.agent_core.planner.plans import says
from tests.api.conftest import Caller, new_caller, problem
from tests.automations.jobs.made import EVERY_SECOND, new
from tests.automations.messages import due, later
from tests.conftest import Person
from tests.fleet import until
from tests.inside import Inside, call, listening, makes
from tests.races import in_thread
from tests.sessions_app.deliveries.receivers import Receiver
from tests.talk import fresh

pytestmark = pytest.mark.rule("9.3")
PAST = "2026-01-01T00:00:00Z"


def states(session: Session) -> list[str]:
    return list(Delivery.objects.filter(session=session).order_by("id").values_list("state", flat=True))


def lane_of(session: Session, channel: str = "webhook") -> DeliveryLane:
    return DeliveryLane(session_id=session.pk, channel=channel)


def sent(session: Session, channel: str = "webhook") -> list[str]:
    """Send all that the session has to send, without waiting between the attempts; what became of it."""
    while "pending" in states(session):
        Delivery.objects.filter(state="pending").update(next_attempt_at=None)
        assert send_next(lane_of(session, channel))
    return states(session)


def told_by(person: Person, address: str, **more: Any) -> Session:
    session: Session = person.session(channel="webhook", address=address, **more)
    return session


def handed_over(session: Session, count: int = 1, address: str = "", **fields: Any) -> list[Delivery]:
    """Deliveries of one message, as commits write them."""
    message = Message.objects.filter(session=session).first() or Message.objects.create(
        session=session, seq=1, role="assistant", content="words"
    )
    rows = [
        Delivery(
            session=session, session_key=session.key, message=message, idempotency_key=f"k{n}{session.pk}",
            channel=session.channel, address=address or session.chat_id, **fields,
        )
        for n in range(count)
    ]  # fmt: skip
    return Delivery.objects.bulk_create(rows)


def test_an_answer_is_posted_signed_by_the_standard_scheme(inside: Inside, receiver: Receiver) -> None:
    session = told_by(inside.person, f"{receiver.url}/in?a=b")
    turn = inside.say(session, "What do you say?")
    assert sent(session) == ["sent"]
    [got] = receiver.requests
    answer = Message.objects.filter(turn=turn, role="assistant").get()
    assert (got.path, got.data["text"]) == ("/in?a=b", answer.content)
    assert got.headers["content-type"] == "application/json"
    assert json.loads(got.body).keys() == {"type", "timestamp", "data"}
    about = {"agent": "demo", "session": str(session.pk), "turn": turn.pk, "seq": answer.seq, "run": None}
    about |= {"kind": "message", "state": "succeeded"}
    assert {name: got.data[name] for name in about} == about
    secret, stamp = webhook.secret_of(inside.person.agent.pk), int(got.headers["webhook-timestamp"])
    assert got.headers["webhook-signature"] == signature(secret, got.key, stamp, got.body)
    assert got.headers["rondo-attempt"] == "1"
    event = Event.objects.get(type="delivery")
    assert event.content == {
        "delivery": Delivery.objects.get().pk, "seq": answer.seq, "channel": "webhook", "state": "sent",
        "attempt": 1, "error": None,
    }  # fmt: skip
    inside.say(inside.person.session(), "on the web")
    assert Delivery.objects.count() == 1, "what is said on the web leaves no delivery"


def test_the_same_signature_is_what_the_scheme_publishes() -> None:
    """The example of the Standard Webhooks specification."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    given = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert given == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.rule("4.9")
def test_automations_and_scheduled_messages_are_delivered_before_any_person_wrote(
    inside: Inside, receiver: Receiver
) -> None:
    session = told_by(inside.person, f"{receiver.url}/in")
    JobClock.objects.filter(job=make_job(session)).update(next_run_at=Now())
    inside.beat()
    due(later(session, "Take the cake out."))
    inside.beat()
    assert sent(session) == ["sent"] * 2
    job, message = receiver.requests
    assert (job.data["kind"], message.data["kind"]) == ("automation", "scheduled_message")
    assert job.data["source"]["kind"] == "automation"
    assert job.data["run"] == Turn.objects.get(kind="automation").origin_run
    assert message.data["text"] == "Take the cake out."
    assert fresh(session).last_route is None, "neither of them is a person"


def test_a_failed_delivery_retries_in_order_with_the_same_key(receiver: Receiver, person: Person) -> None:
    session = told_by(person, receiver.set("/in", "500", "half", "take"))
    handed_over(session, 2)
    assert send_next(lane_of(session))
    assert not send_next(lane_of(session)), "the next one waits behind it, and it for its time"
    assert sent(session) == ["sent", "sent"]
    assert [each.temper for each in receiver.requests] == ["500", "half", "take", "take"]
    first, again, third, other = receiver.requests
    assert first.key == again.key == third.key != other.key
    assert [each.headers["rondo-attempt"] for each in receiver.requests] == ["1", "2", "3", "1"]
    trouble = Event.objects.filter(type="delivery", content__state="pending").order_by("id")
    expected = ["the receiver answered 500", "the receiver closed the connection in the middle of its answer"]
    assert [each.content["error"] for each in trouble] == expected


@pytest.mark.parametrize(
    ("temper", "attempts", "error"),
    [("500", 3, "the receiver answered 500"), ("redirect", 1, "redirects to another address"), ("410", 1, "410"),
     ("413", 1, "413")],
)  # fmt: skip
def test_an_exhausted_or_refused_delivery_can_be_sent_again_where_the_session_is_then(
    inside: Inside, receiver: Receiver, temper: str, attempts: int, error: str
) -> None:
    session = told_by(inside.person, receiver.set("/in", temper))
    inside.say(session, "hello")
    assert sent(session) == ["failed"]
    assert [each.path for each in receiver.requests] == ["/in"] * attempts, "nobody follows a redirect"
    dead = Delivery.objects.get()
    assert error in dead.last_error
    assert (dead.attempts, dead.next_attempt_at) == (attempts, None)
    change_chat(session.pk, address=f"{receiver.url}/new")
    outbox.send_again(dead.pk)
    assert sent(session) == ["sent"]
    assert [each.path for each in receiver.taken()] == ["/new"]
    assert {each.key for each in receiver.requests} == {dead.idempotency_key}
    with pytest.raises(NotDead, match="sent"):
        outbox.send_again(dead.pk)
    assert (fresh(session).last_route or {})["chat_id"] == f"{receiver.url}/new"


def test_private_addresses_are_refused_unless_the_operator_named_them(
    receiver: Receiver, person: Person, settings: Any
) -> None:
    session = told_by(person, f"{receiver.url}/in")
    handed_over(session)
    settings.RONDO_WEBHOOK_HOSTS = ()  # it was named when the session was opened
    assert sent(session) == ["failed"]
    assert "not a public address" in Delivery.objects.get().last_error
    assert receiver.requests == []


def test_of_many_senders_at_once_one_gets_the_head(receiver: Receiver, person: Person) -> None:
    session = told_by(person, f"{receiver.url}/in")
    rows = handed_over(session, 20)
    start = threading.Barrier(6)

    def send() -> None:
        start.wait()
        while states(session).count("sent") < len(rows):
            send_next(lane_of(session))

    for thread, _ in [in_thread(send) for _ in range(6)]:
        thread.join(60)
    assert [each.key for each in receiver.requests] == [row.idempotency_key for row in rows]


def test_a_stale_sender_settles_nothing(receiver: Receiver, person: Person, settings: Any) -> None:
    """Its claim ran out while it hung, and another one sent it."""
    settings.RONDO_DELIVERY_SECONDS = 20
    session = told_by(person, receiver.set("/in", "hang500", "take"))
    handed_over(session)
    stale, _ = in_thread(lambda: send_next(lane_of(session)))
    until(lambda: receiver.requests)
    assert not send_next(lane_of(session)), "it is being sent"
    Delivery.objects.update(next_attempt_at=PAST)  # as if its time were over
    assert send_next(lane_of(session))
    delivered = Delivery.objects.get()
    receiver.released.set()
    stale.join(20)
    now = Delivery.objects.get()
    assert (now.state, now.attempts, now.ended_at) == ("sent", 2, delivered.ended_at)
    assert Event.objects.filter(type="delivery").count() == 1


def test_a_slow_channel_is_not_sent_beside_itself(person: Person, settings: Any) -> None:
    """Longer than its time: the claim is renewed meanwhile, and the text goes out once."""
    settings.RONDO_DELIVERY_SECONDS = 0.1
    sending, go = threading.Event(), threading.Event()

    class Slow(Email):
        name = "slow"

        def send(self, parcel: Any) -> None:
            sending.set()
            assert go.wait(60)

    base.register(Slow())
    try:
        session = person.session(key="slow:ada@example.org")
        handed_over(session)
        sender, came = in_thread(lambda: send_next(lane_of(session, "slow")))
        assert sending.wait(20)
        for _ in range(2):  # renewed again and again
            claimed_until = Delivery.objects.get().next_attempt_at
            until(Delivery.objects.filter(next_attempt_at__gt=claimed_until).exists)
            assert not send_next(lane_of(session, "slow"))
        go.set()
        sender.join(20)
    finally:
        base.unregister("slow")
    assert (came, states(session)) == ([True], ["sent"])


def test_an_injected_message_is_answered_at_its_origin_too(inside: Inside, receiver: Receiver) -> None:
    session = inside.person.session()
    route = {"channel": "webhook", "chat_id": f"{receiver.url}/guest", "meta": {}}

    def write() -> None:
        guest = receive(session.pk, MessageInput(content="also this"))
        Turn.objects.filter(pk=guest.pk).update(metadata=TurnInput(route=route).to_json())

    inside.model.answer_with(makes(call("listen")), says("Done."))
    with listening(write):
        inside.say(session, "Look around.")
    assert Turn.objects.get(content="also this").state == "merged"
    assert sent(session) == ["sent"]
    assert [each.path for each in receiver.requests] == ["/guest"]


def test_an_answer_follows_a_session_that_moved_during_its_turn(inside: Inside, receiver: Receiver) -> None:
    session = told_by(inside.person, f"{receiver.url}/old")

    def move() -> None:
        receive(session.pk, MessageInput(content="and then?", on_busy=OnBusy.ENQUEUE))
        change_chat(session.pk, address=f"{receiver.url}/new")

    inside.model.answer_with(makes(call("listen")), says("Done."))
    with listening(move):
        inside.say(session, "Look around.")
    assert sent(session) == ["sent", "sent"]
    assert [each.path for each in receiver.requests] == ["/new", "/new"]
    assert session.last_route is not None
    assert session.last_route["chat_id"] == f"{receiver.url}/new"


def test_a_delivery_to_an_unserved_channel_fails_visibly(inside: Inside, session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(channel="pigeon", chat_id="7")
    inside.say(session, "hello")
    assert sent(session, "pigeon") == ["failed"]
    assert Delivery.objects.get().last_error == "the channel 'pigeon' is not set up"


@pytest.mark.rule("4.9")
def test_an_unserved_channel_or_address_is_refused_when_set(person: Person, settings: Any) -> None:
    settings.RONDO_WEBHOOK_HOSTS = ("10.0.0.7:8080",)
    refused: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"channel": "pigeon"}, "bad_channel", "'pigeon' is not set up; use one of: "),
        ({"key": "pigeon:7"}, "bad_channel", "RONDO_PLUGINS"),
        ({"channel": "email", "address": "ada@example.org"}, "bad_channel", "EMAIL_URL"),
        ({"channel": "notify", "address": "team"}, "bad_channel", "RONDO_NOTIFY"),
        ({"channel": "webhook", "address": ""}, "bad_address", ""),
        ({"channel": "webhook", "address": "https://x/" + "a" * 2_000}, "bad_address", ""),
        ({"channel": "web", "address": "https://example.org/"}, "bad_address", "stay on the server"),
        ({"key": "webhook:1"}, "bad_address", ""),
        ({"channel": "webhook", "address": "http://10.0.0.7/in"}, "bad_address", "RONDO_WEBHOOK_HOSTS"),
    )
    for given, code, words in refused:
        with pytest.raises(BadInput) as refusal:
            open_session(person.agent, **given)
        assert refusal.value.code == code, given
        assert words in str(refusal.value), given
    assert not Session.objects.filter(type="sub").exists()
    open_session(person.agent, channel="webhook", address="http://10.0.0.7:8080/in")
    session = open_session(person.agent, key="webhook:https://hooks.example/in")
    assert (session.channel, session.chat_id) == ("webhook", "https://hooks.example/in")
    with pytest.raises(BadInput, match="not a public"):
        change_chat(session.pk, address="http://192.168.0.1/")


def test_an_observer_that_fails_sends_nothing_again(receiver: Receiver, person: Person) -> None:
    session = told_by(person, f"{receiver.url}/in")
    handed_over(session)

    def broken(delivery: Delivery) -> None:
        raise RuntimeError("a bug")

    outbox.on_settled(broken)
    try:
        assert send_next(lane_of(session))
    finally:
        outbox._observers.remove(broken)
    assert states(session) == ["sent"]


def test_deliveries_behind_a_dead_receiver_fail_after_one_attempt(
    receiver: Receiver, person: Person, settings: Any
) -> None:
    settings.RONDO_DELIVERY_RETRY_SECONDS = (60, 60)
    session = told_by(person, receiver.set("/in", "500"))
    handed_over(session, 3)
    assert send_next(lane_of(session))
    assert states(session) == ["pending"] * 3
    Delivery.objects.update(next_attempt_at=None, handed_over_at=PAST)
    while send_next(lane_of(session)):
        pass
    assert states(session) == ["failed"] * 3
    assert len(receiver.requests) == 4


def test_a_parcel_that_kills_whoever_sends_it_is_given_up(receiver: Receiver, person: Person) -> None:
    session = told_by(person, f"{receiver.url}/in")
    handed_over(session, attempts=3)
    assert send_next(lane_of(session))
    assert states(session) == ["failed"]
    assert receiver.requests == []


def test_a_redelivery_waits_for_what_is_being_sent(receiver: Receiver, person: Person, settings: Any) -> None:
    settings.RONDO_DELIVERY_SECONDS = 20
    session = told_by(person, receiver.set("/in", "hang", "take"))
    dead, _ = handed_over(session, 2)
    Delivery.objects.filter(pk=dead.pk).update(state="failed", last_error="gone")
    sender, _ = in_thread(lambda: send_next(lane_of(session)))
    until(lambda: receiver.requests)
    outbox.send_again(dead.pk)
    assert not send_next(lane_of(session)), "two of a lane are never under way at once"
    receiver.released.set()
    sender.join(30)
    assert send_next(lane_of(session))
    assert states(session) == ["sent", "sent"]


WORDS = "a secret of the conversation"
TIME = re.compile(r'"(\d{4}-\d\d-\d\dT[^"]*)"')


def test_a_failed_run_a_dead_letter_and_a_used_up_budget_are_posted_once_each(
    inside: Inside, receiver: Receiver
) -> None:
    events_url = receiver.set("/events", "500", "take")
    bounds = {"max_attempts": 1, "max_tool_calls": 1}
    update_agent(inside.person.agent.pk, {"events_url": events_url, "policy": bounds})
    session = inside.person.session()
    job = new(session, name="n", message=WORDS, schedule=EVERY_SECOND, max_runs=1)
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    inside.beat(ModelRefused(WORDS))
    run = RunRecord.objects.get(job=job, state=RunState.FAILED)
    used_up = inside.say(session, WORDS, *(makes(call("count", name=name)) for name in ("a", "b")))
    assert sent(session, "events") == ["sent"] * 2
    away = inside.person.session(channel="webhook", address=receiver.set("/gone", "410"))
    inside.say(away, WORDS)
    assert send_next(lane_of(away))
    assert sent(away, "events") == ["failed", "sent"]
    posts = [each for each in receiver.requests if each.path == "/events"]
    bodies = [json.loads(each.body) for each in posts if each.temper == "take"]
    assert sorted(body["type"] for body in bodies) == ["budget.reached", "delivery.failed", "run.failed"]
    budget, lost, failed = (body["data"] for body in sorted(bodies, key=lambda body: str(body["type"])))
    assert (failed["run"], failed["automation"], failed["attempts"]) == (run.pk, job.pk, 1)
    assert (failed["reason"], failed["scheduled_for"]) == ("model_refused", utc_text(run.scheduled_for))
    assert (budget["turn"], budget["limit"]) == (used_up.pk, used_up.error_code)
    assert used_up.error_code == "max_tool_calls"
    assert set(LIMIT_DATA) <= set(budget)
    dead = Delivery.objects.get(session=away, channel="webhook", state=DeliveryState.FAILED)
    assert dead.message is not None
    assert (lost["failed_delivery"], lost["turn"], lost["run"]) == (dead.pk, dead.message.turn_id, None)
    assert WORDS.encode() not in b"".join(each.body for each in posts)
    times = [TIME.findall(each.body.decode()) for each in posts]
    assert all(times)
    assert {time[-1] for found in times for time in found} == {"Z"}
    refused, again = [each for each in posts if each.key == f"run.failed_{run.pk}"]
    assert (refused.temper, again.temper) == ("500", "take")
    stamp = int(again.headers["webhook-timestamp"])
    secret = secret_of(inside.person.agent.pk)
    assert again.headers["webhook-signature"] == signature(secret, again.key, stamp, again.body)


def test_an_event_is_written_once_and_only_so_many_wait(person: Person, monkeypatch: Any) -> None:
    session = person.session()
    report_event(session.pk, EventName.RUN_FAILED, {"run": "1"}, of="1")
    assert not Delivery.objects.exists(), "the agent names no address"
    Agent.objects.update(events_url="https://example.org/events")
    monkeypatch.setattr(system_events, "MOST_WAITING", 3)
    for of in (1, 1, 2, 3, 4):
        report_event(session.pk, EventName.RUN_FAILED, {"run": str(of)}, of=str(of))
    assert [each.event for each in Delivery.objects.order_by("pk")] == [
        {"type": "run.failed", "data": {"run": str(of)}} for of in (1, 2, 3)
    ]


def test_the_loss_of_an_event_is_no_event_and_it_can_be_sent_again(person: Person) -> None:
    session = person.session()
    Agent.objects.update(events_url="https://example.org/events")
    report_event(session.pk, EventName.RUN_FAILED, {"run": "1"}, of="1")
    Delivery.objects.update(state=DeliveryState.FAILED, last_error="the receiver answered 500")
    [lost] = Delivery.objects.all()
    outbox.notify_settled(lost)
    assert Delivery.objects.count() == 1
    assert outbox.send_again(lost.pk).state == DeliveryState.PENDING


@pytest.mark.django_db(transaction=True)
def test_the_address_is_checked_and_sessions_cannot_take_the_channel() -> None:
    ada: Caller = new_caller("ada")
    ada.agent()
    for bad in ("http://127.0.0.1/x", "ftp://example.org/", "https://u:p@example.org/"):
        problem(ada.patch("/api/agents/demo/", {"events_url": bad}), 400, "bad_events_url")
    for unreadable in (5, "x" * 2001):
        problem(ada.patch("/api/agents/demo/", {"events_url": unreadable}), 400, "bad_input")
    good = ada.patch("/api/agents/demo/", {"events_url": "https://example.org/events"})
    assert good.json()["events_url"] == "https://example.org/events"
    session = {"agent": "demo", "key": "events:1", "channel": "events", "address": "https://example.org/"}
    problem(ada.post("/api/sessions/", session), 400, "bad_channel")
    listed = ada.session()
    report_event(Agent.objects.get().sessions.get(pk=listed).pk, EventName.RUN_FAILED, {"run": "1"}, of="1")
    [shown] = ada.get(f"/api/sessions/{listed}/deliveries/").json()["results"]
    assert (shown["event"], shown["channel"], shown["seq"]) == ("run.failed", "events", None)
    assert ada.patch("/api/agents/demo/", {"events_url": ""}).json()["events_url"] == ""
