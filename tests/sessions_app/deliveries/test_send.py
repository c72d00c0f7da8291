"""What a session says leaves the server: by real workers, to a real web server and a real mail server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.fire_messages import fire_due_messages
from automations.jobs.edit import NewJob, create_job
from automations.models import JobClock
from sessions_app.deliveries import outbox, signing_key
from sessions_app.deliveries.send import send_next
from sessions_app.exceptions import BadInput, NotDead, SessionsError
from sessions_app.hints import DeliveryLane
from sessions_app.models import Delivery, DeliveryState, Event, Message, OnBusy, Session, Turn
from sessions_app.sessions.delete import delete_session
from sessions_app.sessions.open import change_chat, open_session
from sessions_app.turns.receive import MessageInput, receive
from tests.automations.messages import due, later
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.sessions_app.deliveries.receivers import MailServer, Received, Receiver
from tests.talk import ended, say

pytestmark = pytest.mark.rule("9.3")


def states(session: Session) -> list[str]:
    return list(Delivery.objects.filter(session=session).order_by("id").values_list("state", flat=True))


def settled(session: Session, count: int = 1) -> list[str]:
    """The states of the session's deliveries, once so many are there and nothing is on the way any more."""

    def look() -> list[str]:
        found = states(session)
        return found if len(found) == count and not {"pending", "sending"} & set(found) else []

    return list(until(look, 40))


def told_by(person: Person, address: str, **more: Any) -> Session:
    session: Session = person.session(channel="webhook", address=address, **more)
    return session


def test_an_answer_is_posted_signed_by_the_standard_scheme(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = told_by(person, f"{receiver.url}/in?a=b")
    post.worker()
    turn = say(session, "What do you say?")
    assert settled(session) == ["sent"]
    [got] = receiver.requests
    answer = Message.objects.filter(turn=turn, role="assistant").get()
    assert (got.path, got.data["text"]) == ("/in?a=b", answer.content)
    assert {name: got.data[name] for name in ("agent", "session", "turn", "kind", "state", "seq", "run")} == {
        "agent": "demo",
        "session": str(session.pk),
        "turn": turn.pk,
        "kind": "message",
        "state": "succeeded",
        "seq": answer.seq,
        "run": None,
    }
    key = base64.b64decode(signing_key.secret_of(person.agent.pk).removeprefix("whsec_"))
    signed = f"{got.key}.{got.headers['webhook-timestamp']}.".encode() + got.body
    by = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert got.headers["webhook-signature"] == f"v1,{by}"
    assert got.headers["rondo-attempt"] == "1"
    event = Event.objects.get(type="delivery")
    assert event.content == {
        "delivery": Delivery.objects.get().pk, "seq": answer.seq, "channel": "webhook", "state": "sent",
        "attempt": 1, "error": None,
    }  # fmt: skip


def test_what_is_said_on_the_web_leaves_no_delivery(post: Fleet, person: Person) -> None:
    post.worker()
    say(person.session(), "hello")
    assert not Delivery.objects.exists()


def test_an_automation_answers_where_a_person_wrote_last(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = told_by(person, f"{receiver.url}/in")
    post.worker()
    say(session, "hello")
    job = create_job(
        NewJob(session_id=session.pk, message="check the repo", schedule={"kind": "every", "seconds": 3600})
    )
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    fire_due_jobs()
    until(lambda: Turn.objects.filter(session=session, kind="automation", state="succeeded").exists())
    assert settled(session, 2) == ["sent", "sent"]
    [_, got] = receiver.requests
    assert got.data["kind"] == "automation"
    assert got.data["source"]["kind"] == "automation"
    assert got.data["run"] == Turn.objects.get(kind="automation").origin_run


@pytest.mark.rule("4.9")
def test_automations_and_scheduled_messages_are_delivered_before_any_person_wrote(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = told_by(person, f"{receiver.url}/in")
    post.worker()
    job = create_job(
        NewJob(session_id=session.pk, message="check the repo", schedule={"kind": "every", "seconds": 3600})
    )
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    fire_due_jobs()
    assert settled(session) == ["sent"]
    message = later(session, "Take the cake out.")
    due(message)
    fire_due_messages()
    assert settled(session, 2) == ["sent", "sent"]
    assert [each.data["kind"] for each in receiver.requests] == ["automation", "scheduled_message"]
    assert receiver.requests[1].data["text"] == "Take the cake out."
    session.refresh_from_db()
    assert session.last_route is None, "neither of them is a person"


def test_a_queued_automation_follows_its_session_to_a_new_address(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = told_by(person, f"{receiver.url}/old")
    job = create_job(
        NewJob(session_id=session.pk, message="check the repo", schedule={"kind": "every", "seconds": 3600})
    )
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    fire_due_jobs()
    change_chat(session.pk, address=f"{receiver.url}/new")
    post.worker()
    assert settled(session) == ["sent"]
    assert [each.path for each in receiver.requests] == ["/new"]


def test_a_failed_turns_closure_is_delivered_too(
    post: Fleet, receiver: Receiver, model_server: Any, person_with_server: Person
) -> None:
    session = told_by(person_with_server, f"{receiver.url}/in")
    post.worker()
    turn = say(session, "[[fail:402]]")
    assert turn.state == "failed"
    assert settled(session) == ["sent"]
    assert receiver.requests[0].data["state"] == "failed"
    assert receiver.requests[0].data["text"].startswith("The turn failed")


def test_a_failed_delivery_retries_in_order_with_the_same_key(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = told_by(person, receiver.set("/in", "500", "half", "take"))
    for text in ("one", "two"):
        receive(session.pk, MessageInput(content=f"Say only: {text}", on_busy=OnBusy.ENQUEUE))
    post.worker()
    assert settled(session, 2) == ["sent", "sent"]
    assert [each.temper for each in receiver.requests] == ["500", "half", "take", "take"]
    first, again, third, other = receiver.requests
    assert first.key == again.key == third.key != other.key
    assert [each.headers["rondo-attempt"] for each in receiver.requests] == ["1", "2", "3", "1"]
    assert [each.data["seq"] for each in (third, other)] == sorted({third.data["seq"], other.data["seq"]})
    trouble = Event.objects.filter(type="delivery", content__state="pending").order_by("id")
    assert [each.content["error"] for each in trouble] == [
        "the receiver answered 500",
        "the receiver closed the connection in the middle of its answer",
    ]


def test_an_exhausted_delivery_fails_and_can_be_sent_again(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = told_by(person, receiver.set("/in", "500"))
    post.worker()
    say(session, "hello")
    assert settled(session) == ["failed"]
    dead = Delivery.objects.get()
    assert (dead.attempts, dead.last_error, dead.next_attempt_at) == (3, "the receiver answered 500", None)
    receiver.set("/in", "take")
    outbox.send_again(dead.pk)
    assert settled(session) == ["sent"]
    assert {each.key for each in receiver.requests} == {dead.idempotency_key}
    with pytest.raises(NotDead, match="sent"):
        outbox.send_again(dead.pk)


@pytest.mark.parametrize(
    ("temper", "error"), [("redirect", "redirects to another address"), ("410", "410"), ("413", "413")]
)
def test_a_permanent_error_fails_the_delivery_at_once(
    post: Fleet, receiver: Receiver, person: Person, temper: str, error: str
) -> None:
    session = told_by(person, receiver.set("/in", temper))
    post.worker()
    say(session, "hello")
    assert settled(session) == ["failed"]
    assert error in Delivery.objects.get().last_error
    assert [each.path for each in receiver.requests] == ["/in"], "nobody follows"


def test_a_late_receiver_gets_the_same_delivery_and_key_again(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = told_by(person, receiver.set("/in", "late", "take"))
    post.worker()
    say(session, "hello")
    assert settled(session) == ["sent"]
    receiver.released.set()  # only now the first one answers 200
    late, again = receiver.taken()
    assert (late.key, late.body) == (again.key, again.body)
    assert Delivery.objects.get().attempts == 2


def test_a_place_that_hangs_holds_up_nobody_else(
    post: Fleet, receiver: Receiver, person: Person, telegram: None
) -> None:
    hanging = [told_by(person, receiver.set(f"/hang{n}", "hang")) for n in range(12)]
    post.environ |= {"RONDO_DELIVERY_SECONDS": "30"}
    post.worker()
    for session in hanging:
        say(session, "hello")
    until(lambda: len(receiver.requests) == 4, what="as many as one place may have are being sent")
    gone = {str(each.data["session"]) for each in receiver.requests}
    for session in [each for each in hanging if str(each.pk) not in gone][:3]:
        assert delete_session(session.pk).deleted, "a lane that is waited with may end without being sent"
        hanging.remove(session)
    other = person.session(channel="telegram", address="42")
    say(other, "hello")
    assert settled(other) == ["sent"], "another place is served while the first one hangs"
    say(person.session(), "and turns run")
    assert len(receiver.requests) == 4, "and no more of it than that"
    receiver.released.set()
    for session in hanging:
        assert settled(session) == ["sent"]


def test_private_addresses_are_refused_unless_the_operator_named_them(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    post.environ["RONDO_WEBHOOK_HOSTS"] = ""
    session = told_by(person, f"{receiver.url}/in")  # named here, and since then taken from the workers
    post.worker()
    say(session, "hello")
    assert settled(session) == ["failed"]
    assert "not a public address" in Delivery.objects.get().last_error
    assert receiver.requests == []


def test_a_delivery_keeps_its_key_when_its_worker_dies_sending(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = told_by(person, receiver.set("/in", "hang", "take"))
    worker = post.worker()
    say(session, "hello")
    until(lambda: receiver.requests)
    worker.kill()
    assert states(session) == ["sending"]
    post.worker()
    assert settled(session) == ["sent"]
    assert [each.temper for each in receiver.requests] == ["hang", "take"]
    assert receiver.requests[0].key == receiver.requests[1].key


def test_a_worker_that_dies_between_commit_and_sending_loses_nothing(
    post: Fleet, receiver: Receiver, person: Person, broker: Any
) -> None:
    """The hint is lost: the sweep of another worker finds the row."""
    session = told_by(person, f"{receiver.url}/in")
    message = Message.objects.create(session=session, seq=1, role="assistant", content="words")
    Session.objects.filter(pk=session.pk).update(last_seq=1)
    Delivery.objects.create(
        session=session, session_key=session.key, message=message, idempotency_key="k", channel="webhook",
        address=f"{receiver.url}/in",
    )  # fmt: skip
    post.worker()
    assert settled(session) == ["sent"]
    assert [each.key for each in receiver.requests] == ["k"]


def test_two_workers_send_each_once_and_each_sessions_in_order(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    sessions = [told_by(person, f"{receiver.url}/s{n}") for n in range(4)]
    for number in range(6):
        for session in sessions:
            receive(session.pk, MessageInput(content=f"message {number}", on_busy=OnBusy.ENQUEUE))
    post.worker()
    post.worker()
    for session in sessions:
        assert settled(session, 6) == ["sent"] * 6
    for number in range(4):
        got = receiver.taken(f"/s{number}")
        assert len({each.key for each in got}) == len(got) == 6
        assert [each.data["seq"] for each in got] == sorted(each.data["seq"] for each in got)


def test_of_many_senders_at_once_one_gets_the_head(receiver: Receiver, person: Person, settings: Any) -> None:
    settings.RONDO_WEBHOOK_HOSTS = [receiver.host]
    session = told_by(person, f"{receiver.url}/in")
    message = Message.objects.create(session=session, seq=1, role="assistant", content="words")
    rows = [
        Delivery(
            session=session, session_key=session.key, message=message, idempotency_key=f"k{n}",
            channel="webhook", address=f"{receiver.url}/in",
        )
        for n in range(20)
    ]  # fmt: skip
    Delivery.objects.bulk_create(rows)
    lane = DeliveryLane(session_id=session.pk, channel="webhook")
    start = threading.Barrier(6)

    def send() -> None:
        start.wait()
        while states(session).count("sent") < len(rows):
            send_next(lane)
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [each.key for each in receiver.requests] == [f"k{n}" for n in range(20)]


def test_a_stale_sender_settles_nothing(receiver: Receiver, person: Person, settings: Any) -> None:
    """Its claim ran out while it hung, and another one sent it."""
    settings.RONDO_WEBHOOK_HOSTS = [receiver.host]
    session = told_by(person, receiver.set("/in", "hang500", "take"))
    message = Message.objects.create(session=session, seq=1, role="assistant", content="words")
    Delivery.objects.create(
        session=session, session_key=session.key, message=message, idempotency_key="k", channel="webhook",
        address=f"{receiver.url}/in",
    )  # fmt: skip
    lane = DeliveryLane(session_id=session.pk, channel="webhook")

    def hang() -> None:
        send_next(lane)
        connection.close()

    stale = threading.Thread(target=hang)
    stale.start()
    until(lambda: receiver.requests)
    assert not send_next(lane), "it is being sent"
    Delivery.objects.update(next_attempt_at="2026-01-01T00:00:00Z")  # as if its time were over
    assert send_next(lane)
    sent = Delivery.objects.get()
    receiver.released.set()
    stale.join(20)
    now = Delivery.objects.get()
    assert (now.state, now.attempts, now.ended_at) == ("sent", 2, sent.ended_at)
    assert Event.objects.filter(type="delivery").count() == 1


def test_an_injected_message_is_answered_at_its_origin_too(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = person.session()
    post.worker()
    host = receive(session.pk, MessageInput(content='use tool wait with {"name": "w"}'))
    until((post.folder / "w.calls").exists)
    guest = receive(session.pk, MessageInput(content="also this"))
    Turn.objects.filter(pk=guest.pk).update(
        metadata={"route": {"channel": "webhook", "chat_id": f"{receiver.url}/guest", "meta": {}}}
    )
    (post.folder / "w.go").touch()
    until(lambda: ended(host))
    until(lambda: ended(guest))
    assert guest.state == "merged"
    assert settled(session) == ["sent"]
    assert [each.path for each in receiver.requests] == ["/guest"]


def test_an_answer_is_mailed_once_the_mail_server_accepts_it(
    post: Fleet, mail: MailServer, person: Person, settings: Any
) -> None:
    from sessions_app.channels import base
    from sessions_app.channels.mail import Email

    base.register(Email())
    try:
        session = person.session(channel="email", address="ada@example.org")
        with pytest.raises(BadInput, match="is not an e-mail address"):
            person.session(channel="email", address="ada")
    finally:
        base.unregister("email")
    mail.refuse = "451 come again"
    post.worker(EMAIL_URL=f"smtp://127.0.0.1:{mail.port}", DEFAULT_FROM_EMAIL="rondo@example.org")
    turn = say(session, "What do you say?")
    until(lambda: Delivery.objects.filter(attempts__gte=1, state="pending").first())
    assert Delivery.objects.get().last_error == "the mail server answered 451"
    mail.refuse = ""
    assert settled(session) == ["sent"]
    [letter] = mail.letters
    answer = Message.objects.get(turn=turn, role="assistant").content
    assert letter.get_content().strip() == answer.strip()
    assert (letter["To"], letter["From"]) == ("ada@example.org", "rondo@example.org")
    assert letter["Rondo-Delivery"] == Delivery.objects.get().idempotency_key
    assert letter["Message-ID"].startswith(f"<{Delivery.objects.get().idempotency_key}@")


def test_a_delivery_to_an_unserved_channel_fails_visibly(post: Fleet, person: Person) -> None:
    session = person.session()
    Session.objects.filter(pk=session.pk).update(channel="pigeon", chat_id="7")
    post.worker()
    say(session, "hello")
    assert settled(session) == ["failed"]
    assert Delivery.objects.get().last_error == "the channel 'pigeon' is not set up"


def test_a_session_that_moves_takes_its_dead_letters_along(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = told_by(person, receiver.set("/old", "410"))
    post.worker()
    say(session, "hello")
    assert settled(session) == ["failed"]
    change_chat(session.pk, address=f"{receiver.url}/new")
    outbox.send_again(Delivery.objects.get().pk)
    assert settled(session) == ["sent"]
    assert [each.path for each in receiver.taken()] == ["/new"]
    session.refresh_from_db()
    assert session.last_route is not None
    assert session.last_route["chat_id"] == f"{receiver.url}/new"


def test_deleting_a_session_closes_what_was_not_sent(post: Fleet, receiver: Receiver, person: Person) -> None:
    session = told_by(person, receiver.set("/in", "410"))
    post.worker()
    say(session, "hello")
    assert settled(session) == ["failed"]
    assert delete_session(session.pk).deleted
    row = Delivery.objects.get()
    assert (row.state, row.reason, row.message_id) == (DeliveryState.CLOSED, "session_deleted", None)
    with pytest.raises(SessionsError):
        outbox.send_again(row.pk)


def test_the_same_signature_is_what_the_scheme_publishes() -> None:
    """The example of the Standard Webhooks specification."""
    from sessions_app.channels.webhook import signature

    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    given = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert given == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_payload_is_json_that_says_what_it_is(post: Fleet, receiver: Receiver, person: Person) -> None:
    session = told_by(person, f"{receiver.url}/in")
    post.worker()
    say(session, "hello")
    settled(session)
    got: Received = receiver.requests[0]
    assert got.headers["content-type"] == "application/json"
    assert json.loads(got.body).keys() == {"type", "timestamp", "data"}


def test_a_session_needs_an_address_its_channel_knows(person: Person) -> None:
    for given in (
        "",
        "example.org",
        "ftp://example.org/",
        "https://example.org/\n",
        "https://x/" + "a" * 2_000,
    ):
        with pytest.raises(BadInput):
            open_session(person.agent, channel="webhook", address=given)
    with pytest.raises(BadInput, match="its messages stay on the server"):
        open_session(person.agent, channel="web", address="https://example.org/")
    with pytest.raises(BadInput):
        open_session(person.agent, key="webhook:1")
    assert not Session.objects.filter(channel="webhook").exists()
    named = open_session(person.agent, key="webhook:https://example.org/in")
    assert (named.channel, named.chat_id) == ("webhook", "https://example.org/in")


@pytest.mark.rule("4.9")
def test_an_unserved_channel_or_address_is_refused_when_set(person: Person, settings: Any) -> None:
    settings.RONDO_WEBHOOK_HOSTS = ("10.0.0.7:8080",)
    refused: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"channel": "pigeon"}, "bad_channel", "'pigeon' is not set up; use one of: "),
        ({"key": "pigeon:7"}, "bad_channel", "RONDO_PLUGINS"),
        ({"channel": "email", "address": "ada@example.org"}, "bad_channel", "EMAIL_URL"),
        ({"channel": "notify", "address": "team"}, "bad_channel", "RONDO_NOTIFY"),
        (
            {"channel": "webhook", "address": "http://10.0.0.7/in"},
            "bad_address",
            "'10.0.0.7' is not a public",
        ),
        ({"channel": "webhook", "address": "http://127.0.0.1:8000/"}, "bad_address", "RONDO_WEBHOOK_HOSTS"),
        ({"channel": "webhook", "address": "http://[::1]:8000/"}, "bad_address", "public"),
        ({"channel": "webhook", "address": "http://LOCALHOST.:8000/"}, "bad_address", "public"),
        ({"channel": "webhook", "address": "http://a.localhost:8000/"}, "bad_address", "public"),
    )
    for given, code, words in refused:
        with pytest.raises(BadInput) as refusal:
            open_session(person.agent, **given)
        assert refusal.value.code == code, given
        assert words in str(refusal.value), given
    assert not Session.objects.filter(type="sub").exists()
    open_session(person.agent, channel="webhook", address="http://10.0.0.7:8080/in")
    session = open_session(person.agent, channel="webhook", address="https://hooks.example/in")
    with pytest.raises(BadInput, match="not a public"):
        change_chat(session.pk, address="http://192.168.0.1/")


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


def test_a_full_worker_sends_all_the_same(post: Fleet, receiver: Receiver, person: Person) -> None:
    """Its slots are busy with turns; sending and trying again need none, and no broker."""
    session = told_by(person, receiver.set("/in", "500", "take"))
    post.worker(1)
    gate = receive(person.session().pk, MessageInput(content='use tool wait with {"name": "g"}'))
    until((post.folder / "g.calls").exists)
    handed_over(session)
    assert settled(session) == ["sent"]
    assert len(receiver.requests) == 2
    (post.folder / "g.go").touch()
    until(lambda: ended(gate))


@pytest.fixture
def email() -> Iterator[None]:
    """The channel, in this process, where addresses are given."""
    from sessions_app.channels import base
    from sessions_app.channels.mail import Email

    base.register(Email())
    yield
    base.unregister(Email.name)


@pytest.mark.usefixtures("email")
def test_a_slow_channel_is_not_sent_beside_itself(post: Fleet, mail: MailServer, person: Person) -> None:
    """Longer than its time and than a claim holds: the claim is kept, and the letter goes out once."""
    session = person.session(key="email:ada@example.org")
    handed_over(session)
    mail.delay = 9.0
    for _ in range(2):
        post.worker(EMAIL_URL=f"smtp://127.0.0.1:{mail.port}", RONDO_DELIVERY_SECONDS="1")
    until(lambda: mail.letters, 60)
    assert settled(session) == ["sent"]
    assert len(mail.letters) == 1


def test_an_observer_that_fails_sends_nothing_again(
    receiver: Receiver, person: Person, settings: Any
) -> None:
    settings.RONDO_WEBHOOK_HOSTS = [receiver.host]
    session = told_by(person, f"{receiver.url}/in")
    handed_over(session)

    def broken(delivery: Delivery) -> None:
        raise RuntimeError("a bug")

    outbox.on_settled(broken)
    try:
        assert send_next(DeliveryLane(session_id=session.pk, channel="webhook"))
    finally:
        outbox._observers.remove(broken)
    assert states(session) == ["sent"]


def test_deliveries_behind_a_dead_receiver_fail_after_one_attempt(
    receiver: Receiver, person: Person, settings: Any
) -> None:
    settings.RONDO_WEBHOOK_HOSTS, settings.RONDO_DELIVERY_RETRY_SECONDS = [receiver.host], (60, 60)
    session = told_by(person, receiver.set("/in", "500"))
    handed_over(session, 3)
    lane = DeliveryLane(session_id=session.pk, channel="webhook")
    assert send_next(lane)
    assert states(session) == ["pending"] * 3
    Delivery.objects.update(next_attempt_at=None, handed_over_at="2026-01-01T00:00:00Z")
    while send_next(lane):
        pass
    assert states(session) == ["failed"] * 3
    assert len(receiver.requests) == 4


def test_a_parcel_that_kills_whoever_sends_it_is_given_up(
    receiver: Receiver, person: Person, settings: Any
) -> None:
    settings.RONDO_DELIVERY_RETRY_SECONDS = (1, 1)
    session = told_by(person, f"{receiver.url}/in")
    handed_over(session, attempts=3)
    assert send_next(DeliveryLane(session_id=session.pk, channel="webhook"))
    assert states(session) == ["failed"]
    assert receiver.requests == []


def test_a_redelivery_waits_for_what_is_being_sent(receiver: Receiver, person: Person, settings: Any) -> None:
    settings.RONDO_WEBHOOK_HOSTS, settings.RONDO_DELIVERY_SECONDS = [receiver.host], 20
    session = told_by(person, receiver.set("/in", "hang"))
    dead, _ = handed_over(session, 2)
    Delivery.objects.filter(pk=dead.pk).update(state="failed", last_error="gone")
    lane = DeliveryLane(session_id=session.pk, channel="webhook")

    def hang() -> None:
        send_next(lane)
        connection.close()

    sender = threading.Thread(target=hang)
    sender.start()
    until(lambda: receiver.requests)
    outbox.send_again(dead.pk)
    assert not send_next(lane), "two of a lane are never under way at once"
    receiver.released.set()
    sender.join(30)
    receiver.set("/in", "take")
    assert send_next(lane)
    assert states(session) == ["sent", "sent"]


def test_an_answer_follows_a_session_that_moved_during_its_turn(
    post: Fleet, receiver: Receiver, person: Person
) -> None:
    session = told_by(person, f"{receiver.url}/old")
    post.worker()
    turns = [
        receive(session.pk, MessageInput(content='use tool wait with {"name": "m"}')),
        receive(session.pk, MessageInput(content="and then?", on_busy=OnBusy.ENQUEUE)),
    ]
    until((post.folder / "m.calls").exists)
    change_chat(session.pk, address=f"{receiver.url}/new")
    (post.folder / "m.go").touch()
    for turn in turns:
        until(lambda turn=turn: ended(turn))  # type: ignore[misc]
    assert settled(session, 2) == ["sent", "sent"]
    assert [each.path for each in receiver.requests] == ["/new", "/new"]
    session.refresh_from_db()
    assert session.last_route is not None
    assert session.last_route["chat_id"] == f"{receiver.url}/new"
