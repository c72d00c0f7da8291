"""Requests are counted by user or address, over all web processes; what is too much is told when to come again."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client

from sessions_app.limits.request_rate import MOST_FORGOTTEN, Rate, count_request, take_allowance
from sessions_app.models import Allowance
from tests.api.conftest import Caller, new_caller, problem

pytestmark = pytest.mark.django_db  # the clock of a transaction stands still, so nothing comes back by itself


@pytest.fixture
def three(settings: Any) -> Any:
    """Three requests a minute."""
    settings.RONDO_THROTTLE = (3, 60)
    return settings


def later(seconds: float) -> None:
    """As if this time had passed."""
    Allowance.objects.update(full_at=F("full_at") - timedelta(seconds=seconds))


@pytest.fixture
def fresh(db: None) -> Caller:
    """Somebody who has asked for nothing yet."""
    return new_caller("carol")


def test_excess_requests_are_refused_and_told_when_to_retry_and_others_are_not(
    three: Any, fresh: Caller, nobody: Client
) -> None:
    for _ in range(3):
        assert fresh.get("/api/agents/").status_code == 200
    refused = fresh.get("/api/agents/")
    problem(refused, 429, "throttled")
    assert refused.headers["Retry-After"] == "20"
    problem(fresh.post("/api/agents/", {"name": "x"}), 429, "throttled")
    assert new_caller("dave").get("/api/agents/").status_code == 200
    problem(nobody.get("/api/agents/"), 401, "not_authenticated")
    later(19)
    problem(fresh.get("/api/agents/"), 429, "throttled")
    later(1)
    assert fresh.get("/api/agents/").status_code == 200
    problem(fresh.get("/api/agents/"), 429, "throttled")


def test_requests_without_a_token_are_counted_by_their_real_address(three: Any, nobody: Client) -> None:
    for number in range(3):
        forged = {"X-Forwarded-For": f"198.51.100.{number}"}
        problem(nobody.get("/api/agents/", headers=forged), 401, "not_authenticated")
    problem(nobody.get("/api/agents/", headers={"X-Forwarded-For": "198.51.100.9"}), 429, "throttled")
    problem(nobody.get("/api/agents/", headers={"Authorization": "Token wrong"}), 429, "throttled")
    problem(nobody.get("/api/schema/"), 429, "throttled")
    problem(nobody.get("/api/agents/", REMOTE_ADDR="192.0.2.1"), 401, "not_authenticated")
    for number in range(3):
        nobody.get("/api/agents/", REMOTE_ADDR=f"2001:db8:0:1::{number}")
    problem(nobody.get("/api/agents/", REMOTE_ADDR="2001:db8:0:1:ffff::1"), 429, "throttled")
    problem(nobody.get("/api/agents/", REMOTE_ADDR="2001:db8:0:2::1"), 401, "not_authenticated")


def test_each_counted_response_says_what_is_left(three: Any, fresh: Caller, nobody: Client) -> None:
    left = []
    for path in ("/api/agents/", "/api/nothing-of-hers/", "/v1/models", "/api/sessions/x/", "/api/sessions/"):
        answer = fresh.get(path)
        if "RateLimit" in answer.headers:  # an address that does not exist is answered by no view
            assert answer.headers["RateLimit-Policy"] == '"requests";q=3;w=60'
            left.append(answer.headers["RateLimit"])
        else:
            assert answer.status_code == 404
    assert left == ['"requests";r=2;t=20', '"requests";r=1;t=40', '"requests";r=0;t=60']
    refused = fresh.get("/api/agents/")
    problem(refused, 429, "throttled")
    assert fresh.get("/v1/models").json()["error"]["code"] == "rate_limit_exceeded"
    assert (refused.headers["RateLimit"], refused.headers["Retry-After"]) == ('"requests";r=0;t=60', "20")
    later(25)
    assert fresh.get("/api/agents/").headers["RateLimit"] == '"requests";r=0;t=55'
    assert nobody.get("/api/agents/").headers["RateLimit"] == '"requests";r=2;t=20'  # a 401 is counted, too
    assert "RateLimit" not in nobody.get("/healthz").headers


def test_health_pages_and_without_a_limit_all_are_not_counted(
    three: Any, fresh: Caller, nobody: Client
) -> None:
    for _ in range(5):
        assert nobody.get("/healthz").status_code == 200
        assert nobody.get("/metrics").status_code == 200
    three.RONDO_THROTTLE = None
    answer = fresh.get("/api/agents/")
    assert (answer.status_code, "RateLimit" in answer.headers) == (200, False)
    assert not Allowance.objects.exists()


@pytest.mark.parametrize(("limit", "seconds"), [(1, 1), (7, 60), (1200, 60), (3, 86_400)])
def test_as_many_as_the_rate_says_are_allowed_at_once(limit: int, seconds: int) -> None:
    rate = Rate(limit=limit, seconds=seconds)
    counted = [count_request("user:1", rate) for _ in range(limit)]
    assert [each.remaining for each in counted] == list(range(limit))[::-1]
    assert {each.wait for each in counted} == {0.0}
    assert take_allowance("user:1", rate) == pytest.approx(seconds / limit, abs=0.001)
    later(seconds / limit + 0.001)
    assert take_allowance("user:1", rate) == 0
    assert take_allowance("user:1", rate) > 0


def test_rows_that_say_nothing_any_more_are_forgotten(db: None) -> None:
    rate = Rate(limit=3, seconds=60)
    for number in range(MOST_FORGOTTEN + 50):
        Allowance.objects.create(key=f"address:{number}", full_at=Now() - timedelta(hours=1))
    take_allowance("user:1", rate)
    assert Allowance.objects.count() == 51
    take_allowance("user:2", rate)
    assert set(Allowance.objects.values_list("key", flat=True)) == {"user:1 3/60", "user:2 3/60"}


@pytest.mark.django_db(transaction=True)
def test_concurrent_requests_are_counted_together_exactly() -> None:
    rate = Rate(limit=40, seconds=86_400)

    def is_allowed(_number: int) -> bool:
        try:
            return take_allowance("user:1", rate) == 0
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(is_allowed, range(60))) == 40


def test_pages_share_the_limit_of_the_api(three: Any, fresh: Caller, client: Client) -> None:
    client.force_login(fresh.user)
    assert fresh.get("/api/agents/").status_code == 200
    for _ in range(2):
        assert client.get("/account/").status_code == 200
    refused = [
        client.get("/account/"),
        client.post("/sessions/new/", {"agent": "demo"}),
        client.get("/no-such-page/"),
        client.get("/upcoming/", headers={"HX-Request": "true"}),
    ]
    assert {answer.status_code for answer in refused} == {429}
    assert {answer.headers["Retry-After"] for answer in refused} == {"20"}
    problem(fresh.get("/api/agents/"), 429, "throttled")
    stranger = Client()
    assert [stranger.get("/sign-in/").status_code for _ in range(4)] == [200, 200, 200, 429]
    later(20)
    assert client.get("/account/").headers["RateLimit"] == '"requests";r=0;t=60'
