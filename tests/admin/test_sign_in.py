"""Signing in with a password: refused before it costs anything, counted by account and address over all processes."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models import F
from django.test import Client

from interfaces.http import sign_in
from sessions_app.models import Allowance
from tests.fleet import until

pytestmark = pytest.mark.django_db  # all that is counted is in rows, so web processes share it

HOME, FAR = "192.0.2.1", "198.51.100.7"


def attempt(password: str, name: str = "boss", address: str = FAR, **headers: str) -> Any:
    data = {"username": name, "password": password, "next": "/admin/"}
    return Client().post("/admin/login/", data, REMOTE_ADDR=address, headers=headers)


def pass_time(delta: timedelta) -> None:
    """As if this time had passed."""
    Allowance.objects.update(full_at=F("full_at") - delta)
    AccessAttempt.objects.update(attempt_time=F("attempt_time") - delta)


def test_the_old_password_cannot_be_guessed_where_one_changes_it(boss: User) -> None:
    client = Client()
    client.force_login(boss)
    guess = {"old_password": "wrong", "new_password1": "Zaphod-4711", "new_password2": "Zaphod-4711"}
    answers = [client.post("/admin/password_change/", guess).status_code for _ in range(21)]
    assert answers == [200] * 20 + [429]
    right = guess | {"old_password": "right"}
    for address in ("/admin/password_change/", "/account/password/"):
        assert client.post(address, right).status_code == 429
    pass_time(timedelta(minutes=1))
    assert client.post("/admin/password_change/", right).status_code == 302
    boss.refresh_from_db()
    assert boss.check_password("Zaphod-4711")


def test_failed_sign_ins_lock_an_account_for_that_address_only(boss: User) -> None:
    answers = [attempt("wrong") for _ in range(12)]
    assert [answer.status_code for answer in answers] == [200] * 9 + [429] * 3
    assert answers[-1].headers["Retry-After"] == "900"
    assert "Too many attempts with a password" in answers[-1].content.decode()
    assert attempt("right").status_code == 429  # the right one helps nobody there
    page = Client().post("/sign-in/", {"username": "boss", "password": "right"}, REMOTE_ADDR=FAR)
    assert page.status_code == 429, "at the other page"
    assert attempt("right", address=HOME).status_code == 302  # the real one comes in from elsewhere
    pass_time(timedelta(minutes=1))
    assert attempt("wrong").status_code == 429  # trying on does not make it longer
    pass_time(timedelta(minutes=14, seconds=1))
    assert attempt("right").status_code == 302


def test_tricks_do_not_count_anew(boss: User) -> None:
    for number in range(10):
        # the form reads both names as `boss`
        name = " boss " if number % 2 else "\N{FULLWIDTH LATIN SMALL LETTER B}oss"
        headers = {"X_Forwarded_For": f"203.0.113.{number}", "User_Agent": f"browser {number}"}
        attempt("wrong", name=name, **headers)
    assert attempt("right").status_code == 429
    pass_time(timedelta(hours=1))
    for number in range(10):
        attempt("wrong", address=f"2001:db8:0:1::{number}")
    assert attempt("right", address="2001:db8:0:1:ffff::1").status_code == 429
    assert attempt("right", address="2001:db8:0:2::1").status_code == 302


def test_sign_ins_are_limited_by_address_before_hashing_a_password(
    boss: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = []
    check = User.check_password

    def counted(self: User, password: str) -> bool:
        hashed.append(password)
        return check(self, password)

    monkeypatch.setattr(get_user_model(), "check_password", counted)
    answers = [attempt("wrong", name="boss" if number % 5 else f"user{number}") for number in range(9)]
    answers += [attempt("wrong", name=f"nobody{number}") for number in range(20)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == 9
    assert 1 <= int(refused[0].headers["Retry-After"]) <= 60
    before = len(hashed)
    assert attempt("right").status_code == 429
    assert len(hashed) == before
    assert attempt("right", address=HOME).status_code == 302
    pass_time(timedelta(seconds=3))
    assert attempt("right").status_code == 302


def test_a_name_of_any_length_is_a_wrong_one(boss: User) -> None:
    for name in ("x" * 10_000, "x" * 256, "é" * 200, "boss\0"):
        assert attempt("wrong", name=name).status_code == 200
    assert max(map(len, AccessAttempt.objects.values_list("username", flat=True))) == 150
    assert attempt("right").status_code == 302


def test_an_operator_unlocks_an_account_and_no_password_is_kept(boss: User) -> None:
    for _ in range(10):
        attempt("almost-right-4711")
    assert attempt("right").status_code == 429
    assert AccessAttempt.objects.exists()
    assert "almost-right-4711" not in str(list(AccessAttempt.objects.values()))
    call_command("axes_reset_username", "boss")
    assert attempt("right").status_code == 302


def test_more_at_a_time_than_one_are_not_hashed(boss: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "WAIT_SECONDS", 0.01)
    with sign_in._hashing:
        assert attempt("right").status_code == 429
    assert attempt("right").status_code == 302


def test_attempts_from_many_addresses_take_few_threads_of_a_process(
    boss: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits keeps a request's thread: others would find none."""
    monkeypatch.setattr(sign_in, "WAIT_SECONDS", 60.0)
    answers: list[int] = []

    def wait_for_a_turn() -> None:
        answers.append(sign_in._acquire_hashing())

    with sign_in._hashing:
        waiting = [threading.Thread(target=wait_for_a_turn, daemon=True) for _ in range(3)]
        for each in waiting:
            each.start()
        until(lambda: sign_in._waiting._value == 0)
        for number in range(5):
            assert attempt("right", address=f"192.0.2.{number}").status_code == 429
        assert answers == []
        for _ in waiting:  # each has its turn
            sign_in._hashing.release()
            until(lambda: sign_in._hashing._value == 0)
    for each in waiting:
        each.join(60)
    assert answers == [True] * 3
    assert attempt("right", address=FAR).status_code == 302
