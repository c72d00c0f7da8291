"""Hooks: other systems post messages with a token, at most once each, and answers go where the hook says."""

import hashlib
import json
import logging
import os
import subprocess
import time
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import timedelta
from hmac import digest
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db.models.functions import Now
from django.test import Client

from sessions_app.hooks.edit import MOST_HOOKS, token_of
from sessions_app.hooks.inbound import LONGEST_ID, LONGEST_SENDER, MOST_SKEW
from sessions_app.models import Hook, IdempotencyKey, Session, Turn, TurnState
from sessions_app.queue.receive import LONGEST_MESSAGE
from sessions_app.sessions.delete import delete_agent, delete_session
from sessions_app.sessions.open import archive
from tests.api.conftest import Caller, Window, for_each, made, problem
from tests.api.places import belongings
from tests.docs.pages import blocks, section
from tests.past import ago, prune_all
from tests.races import UPDATE, gate

pytestmark = [pytest.mark.django_db, pytest.mark.rule("2.1")]

PLACE = "https://chat.invalid/42"
ELSEWHERE = {"channel": "webhook", "address": PLACE}


def signature(token: str, message_id: str, timestamp: str, body: bytes) -> str:
    """As the docs say it, made by hand."""
    text = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(digest(token.encode(), text, hashlib.sha256)).decode()


@dataclass(kw_only=True)
class Poster:
    """Another system, with what it was given: an id and a token."""

    id: str
    token: str
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    def __call__(self, body: Any = None, *, signed: bool = False, **given: Any) -> Any:
        """Post; headers as keywords, None leaves one out."""
        raw = body if isinstance(body, bytes) else json.dumps({"content": "hello"} | (body or {})).encode()
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Webhook-Id": "one",
            "Webhook-Timestamp": str(int(time.time())),
        } | {name.replace("_", "-"): value for name, value in given.items()}
        if signed:
            parts = str(headers["Webhook-Id"]), str(headers["Webhook-Timestamp"]), raw
            headers["Webhook-Signature"] = signature(self.token, *parts)
        return self.client.post(
            f"/api/hooks/{self.id}/messages/",
            raw,
            content_type="application/json",
            headers={name: value for name, value in headers.items() if value is not None},
        )


def hook(caller: Caller, agent: str = "demo", **fields: Any) -> Poster:
    """A new hook of the caller's agent."""
    answer = made(caller.post(f"/api/agents/{agent}/hooks/", {"name": "CI"} | fields))
    return Poster(id=answer["id"], token=answer["token"])


@pytest.fixture
def session(ada: Caller) -> str:
    return ada.session()


@pytest.fixture
def ci(ada: Caller, session: str) -> Poster:
    """A hook of Ada's session."""
    return hook(ada, session=session)


def accepted(response: Any) -> Turn:
    assert response.status_code == 202, response.content
    body = response.json()
    turn = Turn.objects.get(pk=body["turn"])
    assert body == {"turn": turn.pk, "session": str(turn.session_id), "state": body["state"]}
    assert body["state"] in TurnState.values
    assert response.headers["Location"] == f"/api/turns/{turn.pk}/"
    return turn


def test_a_message_becomes_a_turn_that_says_whence_it_came(ada: Caller, ci: Poster, session: str) -> None:
    turn = accepted(ci({"content": "build 7 failed", "sender": "builder"}))
    assert (str(turn.session_id), turn.kind, turn.on_busy) == (session, "message", "enqueue")
    via = {"hook": ci.id, "name": "CI", "sender": "builder", "as_person": False}
    assert turn.input.message == {"via": via}
    row = Session.objects.get(pk=session)
    assert turn.input.route == {"channel": "web", "chat_id": row.chat_id, "meta": {}}
    assert accepted(hook(ada)()).session.type == "primary", "a hook without a session"


def test_a_hook_on_a_unified_thread_posts_to_the_primary(ada: Caller, ci: Poster) -> None:
    first = accepted(ci())
    agent = ada.patch("/api/agents/demo/", {"unified_session": True}).json()
    assert accepted(ci()).pk == first.pk, "said before the mode was on"
    second = accepted(ci(Webhook_Id="two"))
    assert str(second.session_id) == agent["primary_session"]
    assert accepted(ci(Webhook_Id="two")).pk == second.pk


def test_the_same_id_and_body_are_one_turn_and_another_body_is_refused(ci: Poster) -> None:
    first = accepted(ci({"sender": "a", "on_busy": "reject"}))
    later = str(int(time.time()) + 7)
    again = ci(b'{"on_busy": "reject",  "sender":"a", "content":"hello"}', Webhook_Timestamp=later)
    assert accepted(again).pk == first.pk
    for other in ({"content": "bye"}, {"sender": "b"}, {"on_busy": "enqueue"}):
        problem(ci({"sender": "a", "on_busy": "reject"} | other), 422, "idempotency_mismatch")
    assert Turn.objects.count() == 1


def test_an_id_belongs_to_its_hook(ada: Caller, ci: Poster, session: str) -> None:
    longest = "x" * LONGEST_ID
    turns = {accepted(poster(Webhook_Id=longest)).pk for poster in (ci, hook(ada, session=session), ci)}
    assert len(turns) == 2
    key = f"hook:{ci.id}:one"
    by_person = ada.post(f"/api/sessions/{session}/messages/", {"content": "hello"}, Idempotency_Key=key)
    assert accepted(ci()).pk != by_person.json()["id"]


def test_a_message_needs_an_id_and_a_timestamp_of_these_minutes(ci: Poster) -> None:
    ages = (-MOST_SKEW - 20, MOST_SKEW + 20)
    stale = [str(int(time.time()) + age) for age in ages]
    for wrong in (*stale, None, "", "now", "-1", "1e9", "9" * 13, "1.5", "٣", " 1"):
        refused = ci(Webhook_Timestamp=wrong)
        problem(refused, 401, "stale_request")
        assert refused.headers["WWW-Authenticate"] == "Bearer"
    for wrong in (None, "", "x" * (LONGEST_ID + 1), "tab\there", "ümlaut"):
        problem(ci(Webhook_Id=wrong), 400, "bad_webhook_id")
    assert not Turn.objects.exists()
    for near in (-MOST_SKEW + 20, MOST_SKEW - 20):
        accepted(ci(Webhook_Id=f"near {near}", Webhook_Timestamp=str(int(time.time()) + near)))


@pytest.mark.rule("10.0")
def test_hooks_of_an_inactive_owner_are_refused_until_reactivation(ada: Caller, session: str) -> None:
    poster = hook(ada, session=session, as_person=True)
    owner = get_user_model().objects.filter(pk=Session.objects.get(pk=session).owner_id)
    first = accepted(poster(Webhook_Id="before"))
    owner.update(is_active=False)
    unknown = Poster(id="unknown", token=poster.token)()
    for refused in (poster(), poster(Webhook_Id="before"), poster(Authorization=None, signed=True)):
        problem(refused, 401, "not_authenticated")
        assert refused.json()["detail"] == unknown.json()["detail"]
    assert list(Turn.objects.all()) == [first]
    owner.update(is_active=True)
    accepted(poster())


def test_who_has_not_the_token_learns_nothing(ada: Caller, ci: Poster) -> None:
    off = hook(ada, name="off")
    ada.patch(f"/api/hooks/{off.id}/", {"enabled": False})
    other = hook(ada, name="other")
    refusals = [
        ci(Authorization=None),
        ci(Authorization="Bearer"),
        ci(Authorization="Bearer rin_wrong"),
        ci(Authorization=f"Bearer {ci.token[:-1]}"),
        ci(Authorization=f"Bearer {other.token}"),
        ci(Authorization=f"Bearer {Hook.objects.get(pk=ci.id).token_sha256}"),
        ci(Authorization=f"Token {ci.token}"),
        ci(Authorization=f"Token {ada.token}"),
        ci(Authorization=f"Bearer {ada.token}"),
        ci(Authorization="Bearer ümlaut"),
        ci(Authorization=None, Webhook_Signature="v1,wrong"),
        ci(Authorization=None, Webhook_Signature="ümlaut"),
        Poster(id="unknown", token=ci.token)(),
        Poster(id="x" * 500, token=ci.token)(),
        Poster(id="unknown", token=token_of(Hook(pk="unknown")))(),
        Poster(id="unknown", token=token_of(Hook(pk="unknown")))(signed=True, Authorization=None),
        off(),
        off(Webhook_Timestamp="0", Webhook_Id=None),
        off(signed=True, Authorization=None),
    ]
    for each in refusals:
        problem(each, 401, "not_authenticated")
        assert each.headers["WWW-Authenticate"] == "Bearer"
    assert len({each.content for each in refusals}) == 1
    assert not Turn.objects.exists()


@pytest.mark.parametrize(
    ("beside", "code"), [({}, "bad_signature"), ({"Authorization": None}, "not_authenticated")]
)
def test_a_signature_is_for_the_message_that_it_signs_with_and_without_the_token(
    ci: Poster, beside: dict[str, Any], code: str
) -> None:
    accepted(ci(signed=True, **beside))
    now = str(int(time.time()))
    right = signature(ci.token, "one", now, b'{"content": "hello"}')
    same = beside | {"Webhook_Timestamp": now, "Webhook_Signature": f"v1a,other {right}"}
    accepted(ci(**same))
    for changed in (
        {"Webhook_Timestamp": str(int(now) + 1)},
        {"Webhook_Id": "two"},
        {"Webhook_Signature": right.removeprefix("v1,")},
        {"Webhook_Signature": "v1,"},
    ):
        problem(ci(**same | changed), 401, code)
    problem(ci({"content": "changed"}, **same), 401, code)
    old = str(int(now) - MOST_SKEW - 20)
    problem(ci(signed=True, Webhook_Timestamp=old, **beside), 401, "stale_request")
    assert Turn.objects.count() == 1


def test_a_hook_may_ask_for_signatures_which_hold_as_long_as_the_secret_key(
    ada: Caller, settings: Any
) -> None:
    poster = hook(ada, signed=True)
    problem(poster(), 401, "bad_signature")
    accepted(poster(signed=True))
    ada.patch(f"/api/hooks/{poster.id}/", {"signed": False})
    accepted(poster())
    settings.SECRET_KEY = "another one, of the same length or so, for the rest of this test"
    accepted(poster(signed=True))
    problem(poster(signed=True, Authorization=None), 401, "not_authenticated")


def test_a_bad_body_is_refused_and_leaves_nothing(ci: Poster) -> None:
    def check(body: Any, status: int, code: str) -> None:
        problem(ci(body), status, code)
        assert not Turn.objects.exists()
        assert Hook.objects.get().last_used_at is None

    rows: list[Any] = [
        ({"content": ""}, 400, "empty_message"),
        ({"content": "x" * (LONGEST_MESSAGE + 1)}, 400, "message_too_long"),
        ({"content": 5}, 400, "bad_input"),
        ({"on_busy": "wait"}, 400, "bad_input"),
        ({"on_busy": "inject"}, 400, "bad_on_busy"),
        ({"sender": "two\nlines"}, 400, "bad_sender"),
        ({"sender": "x" * (LONGEST_SENDER + 1)}, 400, "bad_input"),
        (b"", 400, "bad_input"),
        (b'{"content": "a", "content": "b"}', 400, "malformed_body"),
        (b'{"content": "' + b"x" * 1024 * 1024 + b'"}', 413, "too_large"),
    ]
    for_each(rows, check)
    accepted(ci())


def test_on_busy_is_the_posters_choice(ci: Poster) -> None:
    running = accepted(ci())
    Turn.objects.filter(pk=running.pk).update(state=TurnState.RUNNING)
    problem(ci({"on_busy": "reject"}, Webhook_Id="two"), 409, "session_busy")
    assert accepted(ci(Webhook_Id="three")).on_busy == "enqueue"
    problem(ci({"on_busy": "interrupt"}, Webhook_Id="four"), 400, "bad_on_busy")
    running.refresh_from_db()
    assert running.cancel_requested_at is None
    Hook.objects.update(as_person=True)
    accepted(ci({"on_busy": "interrupt"}, Webhook_Id="five"))
    running.refresh_from_db()
    assert running.cancel_requested_at is not None


def test_what_waits_is_bounded_for_strangers_first(ada: Caller, ci: Poster, session: str) -> None:
    first = accepted(ci())
    waiting = [Turn(session_id=session, kind="message", lane="turns", content=str(n)) for n in range(18)]
    Turn.objects.bulk_create(waiting)
    accepted(ci(Webhook_Id="the twentieth"))
    refused = ci(Webhook_Id="one more")
    problem(refused, 429, "too_many_waiting")
    assert refused.headers["Retry-After"] == "10"
    assert accepted(ci()).pk == first.pk  # what was taken is known
    address = f"/api/sessions/{session}/messages/"
    assert ada.post(address, {"content": "the person's own"}).status_code == 202
    waiting = [Turn(session_id=session, kind="message", lane="turns", content=str(n)) for n in range(79)]
    Turn.objects.bulk_create(waiting)
    problem(ada.post(address, {"content": "the hundred and first"}), 429, "too_many_waiting")
    other = ada.session()
    assert ada.post(f"/api/sessions/{other}/messages/", {"content": "elsewhere"}).status_code == 202
    assert Turn.objects.filter(session_id=session).count() == 100


def test_an_archived_session_takes_nothing(ada: Caller, ci: Poster, session: str) -> None:
    archive(Session.objects.get(pk=session).pk)
    problem(ci(), 409, "session_closed")
    problem(ada.post("/api/agents/demo/hooks/", {"name": "x", "session": session}), 409, "session_closed")


def test_an_id_is_known_for_longer_than_its_timestamp_holds(ci: Poster, settings: Any) -> None:
    settings.RONDO_KEEP_TURNS_PER_SESSION, settings.RONDO_KEEP_TURNS_DAYS = 1, 1
    sent = str(int(time.time()))
    first = accepted(ci(Webhook_Timestamp=sent))
    accepted(ci(Webhook_Id="two"))

    def pruned(ended: float) -> bool:
        """Whether the first turn goes when it ended this many seconds ago, and the other one later."""
        past = {"state": TurnState.SUCCEEDED, "finished_at": ago(ended / 86_400)}
        Turn.objects.update(**past | {"queued_at": ago(ended / 86_400)})
        prune_all()
        return not Turn.objects.filter(pk=first.pk).exists()

    assert not pruned(2 * MOST_SKEW)  # taken while its timestamp lay ahead, and again when it lay behind
    assert accepted(ci(Webhook_Timestamp=sent)).pk == first.pk
    assert pruned(2 * 3600)
    problem(ci(Webhook_Timestamp=str(int(sent) - 2 * 3600)), 401, "stale_request")


@pytest.mark.django_db(transaction=True)
def test_creating_a_hook_fails_when_its_session_is_deleted_meanwhile(ada: Caller) -> None:
    session = ada.session()
    row = Session.objects.get(pk=session)
    with gate(row, UPDATE) as held:  # as a delete holds it
        held.start(lambda: ada.post("/api/agents/demo/hooks/", {"name": "CI", "session": session}))
        held._holder.execute("DELETE FROM sessions_app_session WHERE id = %s", [row.pk])
        held._holder.commit()
        [refused] = held.open()
    problem(refused, 409, "conflict")
    assert not Hook.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_hooks_of_a_deleted_session_or_agent_are_gone(ada: Caller) -> None:
    session = ada.session()
    gone, stays = hook(ada, session=session), hook(ada)
    assert delete_session(Session.objects.get(pk=session).pk).deleted
    problem(gone(), 401, "not_authenticated")
    accepted(stays())
    assert delete_agent(Session.objects.get().agent_id).deleted
    assert not Hook.objects.exists()


def test_a_use_is_noted_once_a_minute(ci: Poster) -> None:
    accepted(ci())
    first = Hook.objects.get().last_used_at
    assert first is not None
    accepted(ci(Webhook_Id="two"))
    assert Hook.objects.get().last_used_at == first
    Hook.objects.update(last_used_at=Now() - timedelta(minutes=2))
    accepted(ci(Webhook_Id="three"))
    now = Hook.objects.get().last_used_at
    assert now is not None
    assert now > first


def test_valid_posts_count_by_hook_and_others_by_address(ada: Caller, ci: Poster, settings: Any) -> None:
    settings.RONDO_THROTTLE = (3, 60)
    other = hook(ada)
    wrong = Poster(id=ci.id, token="rin_wrong")
    for number in range(3):
        accepted(ci(Webhook_Id=str(number)))
    refused = ci(Webhook_Id="4")
    problem(refused, 429, "throttled")
    assert int(refused.headers["Retry-After"]) > 0
    accepted(other())
    for _ in range(3):
        problem(wrong(), 401, "not_authenticated")
    problem(wrong(), 429, "throttled")
    problem(Poster(id="unknown", token="x")(), 429, "throttled")
    accepted(other(Webhook_Id="two"))
    assert Turn.objects.count() == 5


def test_a_poster_may_read_nothing(ada: Caller, ci: Poster) -> None:
    turn = accepted(ci())
    for address in (f"/api/turns/{turn.pk}/", f"/api/hooks/{ci.id}/", "/api/sessions/"):
        read = ci.client.get(address, headers={"Authorization": f"Bearer {ci.token}"})
        problem(read, 401, "not_authenticated")
    assert ada.get(f"/api/turns/{turn.pk}/").status_code == 200
    browser = Client(raise_request_exception=False)
    browser.force_login(ada.user)
    problem(Poster(id=ci.id, token="x", client=browser)(), 401, "not_authenticated")


def test_hooks_are_made_shown_changed_and_deleted(ada: Caller, session: str) -> None:
    given = {"name": "CI", "session": session, "signed": True} | ELSEWHERE
    answer = ada.post("/api/agents/demo/hooks/", given)
    shown = made(answer)
    token = shown.pop("token")
    assert (len(token), token[:4]) == (47, "rin_")
    address = f"/api/hooks/{shown['id']}/"
    assert answer.headers["Location"] == address
    assert answer.headers["Cache-Control"] == "no-store"
    defaults = {"as_person": False, "allow_tools": [], "enabled": True, "revision": 1}
    assert (given | defaults).items() <= shown.items()
    assert ada.get(address).headers["ETag"] == answer.headers["ETag"]
    assert [each["id"] for each in ada.get("/api/agents/demo/hooks/").json()["results"]] == [shown["id"]]
    changes = {"name": "builds", "channel": "", "address": "", "signed": False}
    changes |= {"as_person": True, "enabled": False}
    changed = ada.patch(address, changes, If_Match=answer.headers["ETag"])
    assert changed.status_code == 200, changed.content
    assert changed.json().items() >= {**changes, "channel": None, "address": None, "revision": 2}.items()
    problem(ada.patch(address, {"name": "x"}, If_Match=answer.headers["ETag"]), 412, "revision_conflict")
    problem(ada.delete(address, If_Match=answer.headers["ETag"]), 412, "revision_conflict")
    assert ada.delete(address, If_Match=changed.headers["ETag"]).status_code == 204
    problem(ada.get(address), 404, "not_found")


def test_using_a_hook_changes_its_etag_but_blocks_no_edit(ada: Caller, ci: Poster) -> None:
    address = f"/api/hooks/{ci.id}/"
    before = ada.get(address).headers["ETag"]
    accepted(ci())
    after = ada.get(address, If_None_Match=before)
    assert after.status_code == 200
    assert after.json()["last_used_at"]
    assert ada.patch(address, {"name": "x"}, If_Match=before).status_code == 200


def test_a_hook_whose_channel_is_gone_can_be_disabled(ada: Caller) -> None:
    poster = hook(ada)
    Hook.objects.update(channel="gone", address="42")
    assert ada.patch(f"/api/hooks/{poster.id}/", {"enabled": False}).status_code == 200
    problem(ada.patch(f"/api/hooks/{poster.id}/", {"address": "43"}), 400, "bad_channel")
    assert ada.patch(f"/api/hooks/{poster.id}/", {"channel": "", "address": ""}).status_code == 200


def test_a_hook_leads_into_a_conversation_of_its_agent(ada: Caller, bob: Caller) -> None:
    ada.agent("other")
    for session in (ada.session("other"), bob.session()):
        problem(ada.post("/api/agents/demo/hooks/", {"name": "x", "session": session}), 404, "not_found")
    agent_id = Session.objects.get(agent__name="other", type="primary").agent_id
    inner = Session.objects.create(
        agent_id=agent_id, owner=ada.user, key="heartbeat:other", type="heartbeat", channel="heartbeat"
    )
    given = {"name": "x", "session": str(inner.pk)}
    refused = problem(ada.post("/api/agents/other/hooks/", given), 400, "internal_session")
    assert refused["errors"].keys() == {"session"}
    problem(ada.patch(f"/api/hooks/{hook(ada).id}/", {"session": str(inner.pk)}), 400, "bad_input")


def test_an_agent_has_so_many_hooks(ada: Caller) -> None:
    ada.agent("other")
    for number in range(MOST_HOOKS):
        hook(ada, name=f"{number}")
    problem(ada.post("/api/agents/demo/hooks/", {"name": "x"}), 409, "too_many_hooks")
    hook(ada, agent="other")


def test_a_new_token_takes_the_old_ones_place(ada: Caller, ci: Poster) -> None:
    first = accepted(ci())
    answer = ada.post(f"/api/hooks/{ci.id}/token/")
    assert answer.status_code == 200
    assert (answer.json()["revision"], answer.headers["Cache-Control"]) == (2, "no-store")
    problem(ci(), 401, "not_authenticated")
    problem(ci(signed=True, Authorization=None), 401, "not_authenticated")
    renewed = Poster(id=ci.id, token=answer.json()["token"])
    assert accepted(renewed()).pk == first.pk
    accepted(renewed(signed=True, Authorization=None))


def test_a_hook_is_created_once_and_its_token_not_stored(ada: Caller) -> None:
    asked = "/api/agents/demo/hooks/", {"name": "CI"}
    first, again = (ada.post(*asked, Idempotency_Key="one") for _ in range(2))
    assert again.json() == made(first)
    assert again.headers["ETag"] == first.headers["ETag"]
    assert Hook.objects.count() == 1
    assert first.json()["token"] not in IdempotencyKey.objects.get().body
    ada.delete(first.headers["Location"])
    problem(ada.post(*asked, Idempotency_Key="one"), 404, "not_found")


def test_the_token_is_stored_logged_and_shown_nowhere(
    ada: Caller, ci: Poster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = [
        ci(),
        ci({"content": ""}, Webhook_Id="two"),
        ci(Webhook_Signature="v1,wrong"),
        ci(Webhook_Timestamp="1"),
        ci(b"{"),
        ci(Authorization=f"Bearer {ci.token} "),
        ada.get(f"/api/hooks/{ci.id}/"),
        ada.get("/api/agents/demo/hooks/"),
        ada.patch(f"/api/hooks/{ci.id}/", {"name": "x"}),
    ]
    secret = ci.token.removeprefix("rin_")
    for each in answers:
        assert secret not in each.content.decode() + str(each.headers)
    assert secret not in caplog.text
    assert not belongings({secret.encode()})
    assert belongings({Hook.objects.get().token_sha256.encode()})


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_the_command_of_the_page_signs_a_post(window: Window) -> None:
    [command] = blocks(section("channels.md", "Inbound webhooks"), "sh")
    made = window.http.post("/api/agents/demo/hooks/", json={"name": "CI"}).json()
    given = {"RONDO": window.site.url, "HOOK": made["id"], "HOOK_TOKEN": made["token"]}
    answer = json.loads(subprocess.check_output(["bash", "-euc", command], env=os.environ | given))
    assert Turn.objects.get(pk=answer["turn"]).content == "Build 8 is green."
