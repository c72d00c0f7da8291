"""What people are told of outside of their conversations: by a real push service, by mail, in open pages."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from django.test import Client

from agent_core import addresses
from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelReply
from automations.models.health import SLOWED_AFTER
from sessions_app.channels import base, push
from sessions_app.channels.personal import FailureMail
from sessions_app.deliveries.notifications import FOLLOWED, SEEN_AFTER
from sessions_app.deliveries.send import send_next
from sessions_app.hints import DeliveryLane
from sessions_app.models import ConsentQuestion, Delivery, PushSubscription, Session, Turn, UserSettings
from tests.automations.jobs import made
from tests.automations.turn_kinds import test_isolated as isolated
from tests.automations.turn_kinds.test_bound import ran
from tests.conftest import new_person
from tests.inside import Inside, call, makes
from tests.mcp_servers import CERTIFICATE, names_resolve_here, tls_of_tests
from tests.sessions_app.deliveries.receivers import Receiver, http_receiver, mail_server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.6")]


def raw(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class Browser:
    """A browser with a push service that only this machine knows."""

    service: Receiver
    own: ec.EllipticCurvePrivateKey
    secret: bytes = b"sixteen bytes ok"

    def given(self, path: str = "/a") -> dict[str, str]:
        """What its script sends."""
        port = self.service.host.rpartition(":")[2]
        key, secret = (
            urlsafe_b64encode(each).decode() for each in (push._point(self.own.public_key()), self.secret)
        )
        return {"endpoint": f"https://pages.test:{port}{path}", "key": key, "secret": secret}

    def read(self) -> list[dict[str, str]]:
        """The pushes that it was given, decrypted with its own keys (RFC 8188, 8291)."""
        return [json.loads(self._decrypted(each.body)) for each in self.service.taken()]

    def _decrypted(self, body: bytes) -> bytes:
        salt, public, content = body[:16], body[21:86], body[86:]
        theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
        shared, mine = self.own.exchange(ec.ECDH(), theirs), push._point(self.own.public_key())
        common = push._derived(shared, self.secret, b"WebPush: info\0" + mine + public, 32)
        key, nonce = (
            push._derived(common, salt, b"Content-Encoding: " + name, size)
            for name, size in ((b"aes128gcm\0", 16), (b"nonce\0", 12))
        )
        return AESGCM(key).decrypt(nonce, content, None).removesuffix(b"\x02")


@pytest.fixture
def browser(inside: Inside, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    """Ada's browser."""
    names_resolve_here(monkeypatch)
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    addresses.trust.cache_clear()
    with http_receiver(tls=tls_of_tests([])) as service:
        settings.RONDO_WEBHOOK_HOSTS = ("pages.test",)
        found = Browser(service, ec.generate_private_key(ec.SECP256R1()))
        push.subscribe(inside.person.user, name="Firefox", **found.given())
        yield found
    addresses.trust.cache_clear()


def answered(inside: Inside, session: Session, *replies: Any) -> Turn:
    """A slot of an automation, and its turn."""
    turn = ran(inside, made.new(session), *(replies or (ModelReply(text="Your list is empty."),))).turn
    assert turn is not None
    return turn


def send_all() -> list[str]:
    """Send what is due once its time has come. What became of all that was ever told."""
    for lane in Delivery.objects.filter(state="pending").values("session_id", "channel").distinct():
        Delivery.objects.filter(state="pending", **lane).update(next_attempt_at=None)
        send_next(DeliveryLane(**lane))
    return [each.reason or each.last_error or each.state for each in Delivery.objects.order_by("pk")]


def wish(inside: Inside, **wishes: Any) -> None:
    UserSettings.objects.filter(pk=inside.person.user.pk).update(**wishes)


def test_the_example_of_the_standard_is_encrypted_as_there() -> None:
    """RFC 8291, appendix A."""
    number = int.from_bytes(raw("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
    key = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    found = push.encrypt(
        b"When I grow up, I want to be a watermelon", raw(key), raw("BTBZMqHH6r4Tts7J_aSIgg"),
        own=ec.derive_private_key(number, ec.SECP256R1()), salt=raw("DGv6ra1nlYgDCS1FRnbzlw"),
    )  # fmt: skip
    assert found == raw(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


def test_what_comes_unread_is_pushed_once_and_what_was_seen_is_not(inside: Inside, browser: Browser) -> None:
    session = inside.person.session(title="The list")
    inside.say(session, "hello")
    assert not Delivery.objects.exists(), "they wait for this answer themselves"
    answered(inside, session)
    told = Delivery.objects.get()
    assert told.next_attempt_at is not None
    assert told.next_attempt_at > told.created_at + SEEN_AFTER / 2, "a window in sight marks it as read first"
    assert send_all() == ["sent"]
    client = Client()
    client.force_login(inside.person.user)
    answered(inside, session)
    client.post(f"/sessions/{session.pk}/read/", {"seq": "1000"})
    assert send_all()[1:] == ["it was seen"]
    wish(inside, notify_text=True)
    inside.say(session, "go on", makes(call("erase", name="tape")))
    assert send_all()[2:] == ["sent"]
    [first, asked] = browser.read()
    assert first == {"session": str(session.pk), "title": "The list", "body": "Something new"}
    assert asked["body"] not in ("", "A question for you"), "its first words"
    [pushed, _] = browser.service.taken()
    token, key = (each.partition("=")[2] for each in pushed.headers["authorization"].split(", "))
    signed, _, signature = token.removeprefix("vapid t=").rpartition(".")
    signer = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw(key))
    numbers = (int.from_bytes(raw(signature)[at : at + 32]) for at in (0, 32))
    signer.verify(encode_dss_signature(*numbers), signed.encode(), ec.ECDSA(SHA256()))
    assert browser.given()["endpoint"].startswith(json.loads(raw(signed.split(".")[1]))["aud"])


def test_nothing_is_told_in_quiet_hours_and_then_the_newest_of_a_conversation(
    inside: Inside, browser: Browser
) -> None:
    now = datetime.now(UTC)
    wish(inside, notify_pages=True, quiet_from=now - timedelta(hours=1), quiet_to=now + timedelta(hours=1))
    session = inside.person.session()
    for _ in range(2):
        answered(inside, session)
    ways = Delivery.objects.filter(state="pending")
    assert sorted(ways.values_list("channel", flat=True)) == [
        "page",
        f"push:{PushSubscription.objects.get().pk}",
    ]
    for told in ways:
        assert told.next_attempt_at is not None
        assert timedelta(minutes=58) < told.next_attempt_at - now < timedelta(minutes=61)
    waits = "it waits for the end of quiet hours"
    assert sorted(send_all()) == sorted([FOLLOWED] * 2 + [waits] * 2)
    assert all(told.next_attempt_at and told.next_attempt_at > now + timedelta(minutes=58) for told in ways)
    wish(inside, quiet_from=None, quiet_to=None)
    assert sorted(send_all()) == sorted([FOLLOWED] * 2 + ["sent"] * 2)
    assert len(browser.service.taken()) == 1
    client = Client()
    client.force_login(inside.person.user)
    listed = client.get("/sessions/").content.decode()
    assert f'data-told="{Delivery.objects.get(channel="page", state="sent").pk}"' in listed
    mark = listed.rpartition('value="')[2].partition('"')[0]
    assert client.get("/sessions/", {"mark": mark}).status_code == 204, "the list is as it was"


def test_a_failure_is_told_once_for_its_cause_also_by_mail(
    inside: Inside, browser: Browser, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(base._internal, FailureMail.name, FailureMail())
    with mail_server() as server:
        settings.RONDO_MAIL_SERVER = {
            "host": "127.0.0.1", "port": server.port, "user": "", "password": "", "starttls": False, "tls": False,
        }  # fmt: skip
        wish(inside, notify_mail="ada@example.org")
        session, refused = inside.person.session(title="The list"), ModelRefused("no", reason="No such model")
        job = made.new(session)
        for _ in range(SLOWED_AFTER):
            ran(inside, job, refused)
            assert set(send_all()) == {"sent"}
    [letter, slowed] = server.letters
    assert "at most once an hour" in slowed.get_content()
    assert letter["To"] == "ada@example.org"
    assert all(each in letter.get_content() for each in ("No such model", "The list"))
    assert [each["body"] for each in browser.read()] == ["Something failed"] * 2


def test_a_question_of_background_work_is_told_once_until_it_is_answered(
    inside: Inside, browser: Browser
) -> None:
    erase, home = makes(call("erase", name="disk")), inside.person.session()
    for word in ("first", "second"):
        isolated.ran(
            inside, isolated.job_of(inside.person, word, home=home), erase, ModelReply(text="I may not.")
        )
    assert Delivery.objects.count() == 1, "the second question is about the same call"
    ConsentQuestion.objects.open().close("gone")
    assert send_all() == ["it was seen"]


def test_a_browser_that_has_gone_is_forgotten(inside: Inside, browser: Browser) -> None:
    session = inside.person.session()
    browser.service.set("/a", "410")
    push.subscribe(inside.person.user, name="Chrome", **browser.given("/b"))
    answered(inside, session)
    other = new_person("bob").user
    push.subscribe(other, name="Chrome", **browser.given("/b"))
    assert send_all() == ["the browser is not subscribed any more"] * 2, "bob is not told what is ada's"
    other.save()
    assert [each.user for each in PushSubscription.objects.all()] == [other]
    other.set_password("new")
    other.save()
    assert not PushSubscription.objects.exists()


def test_only_public_https_addresses_and_ten_browsers_are_kept(
    inside: Inside, browser: Browser, settings: Any
) -> None:
    client, other = Client(), Client()
    client.force_login(inside.person.user)
    other.force_login(new_person("bob").user)
    settings.RONDO_WEBHOOK_HOSTS = ()
    good = browser.given() | {"endpoint": "https://push.example.org/1"}
    for bad in (
        {"endpoint": "http://push.example.org/1"}, {"endpoint": "https://127.0.0.1/1"}, {"endpoint": ""},
        {"endpoint": "https://push.example.org/" + "x" * 1000}, {"key": "AAAA"}, {"secret": "é"}, {"secret": "AA"},
        {"key": good["key"] + "=" * 500}, {"secret": good["secret"] + "=" * 50}, {"key": good["key"] + "\0"},
    ):  # fmt: skip
        assert client.post("/account/browsers/", good | bad).status_code == 400
    assert PushSubscription.objects.count() == 1
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36"
    for number in range(push.MOST_BROWSERS + 1):
        given = good | {"endpoint": f"https://push.example.org/{number}"}
        answer = client.post("/account/browsers/", given, headers={"User-Agent": agent})
        assert answer.status_code == 204
    kept = PushSubscription.objects.order_by("pk")
    assert [each.endpoint[-2:].strip("/") for each in kept] == [str(each) for each in range(1, 11)]
    assert {each.name for each in kept} == {"Chrome on Linux"}
    first = kept[0].pk
    for who, left in ((other, 10), (client, 9)):
        who.post(f"/account/browsers/{first}/remove/")
        assert kept.all().count() == left
    for form, status in (
        ({"quiet_from": "22:00"}, 400), ({"quiet_from": "22:00", "quiet_to": "22:00"}, 400),
        ({"quiet_from": "22:00", "quiet_to": "07:00", "notify_pages": "on"}, 303), ({"notify_mail": "x"}, 400),
    ):  # fmt: skip
        assert client.post("/account/notifications/", form).status_code == status
    wishes = UserSettings.objects.get(user=inside.person.user)
    assert wishes.notify_pages
    night, noon = datetime(2026, 11, 28, 23, tzinfo=UTC), datetime(2026, 11, 28, 12, tzinfo=UTC)
    assert (
        wishes.quiet_until(night)
        == datetime(2026, 11, 29, 7, tzinfo=UTC)
        == wishes.quiet_until(night + timedelta(hours=4))
    )
    assert wishes.quiet_until(noon) is None
