"""Model calls under caps and their accounts: what is charged, what a cap stops and what owners are told (rule 11.1)."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from agent_core.connections import hooks
from agent_core.exceptions import CapReached, ModelRefused, ModelUnavailable
from agent_core.llm.protocol import ModelReply
from agent_core.prices import use_own_prices
from agent_core.spending import Account, Amount, Budget, Price
from agent_core.types import Usage
from sessions_app.agents import budgets
from sessions_app.agents.budgets import account_of
from sessions_app.agents.edit import update_agent
from sessions_app.connections.usable import usable
from sessions_app.deliveries.system_events import LIMIT_DATA
from sessions_app.models import (
    Agent,
    Connection,
    Delivery,
    MailboxEvent,
    Message,
    Reservation,
    Spending,
    Turn,
    TurnState,
    UserLimits,
)
from sessions_app.spending import accounts
from sessions_app.spending.accounts import CapState, set_user_caps
from sessions_app.spending.caps import DAY, MONTH, PERIODS, RUN, cap_rows, period_of
from tests.automations.web.test_addresses import signed_in
from tests.conftest import new_person
from tests.inside import MODEL, Inside, call, during, listening
from tests.races import UPDATE, gate, only_rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("11.1")]

USED = Usage(input_tokens=70, output_tokens=30, requests=1)
PLENTY = 10**9


def says(text: str, usage: Usage = USED) -> ModelReply:
    return ModelReply(text=text, usage=usage)


def cap(inside: Inside, **periods: Any) -> None:
    inside.person.agent.limits = periods
    Agent.objects.filter(pk=inside.person.agent.pk).update(limits=periods)


def today(inside: Inside) -> Spending:
    """What the agent has spent today."""
    day, _ = period_of("day", inside.person.agent.timezone, datetime.now(UTC))
    return Spending.objects.get(pk=f"agent:{inside.person.agent.pk}:day:{day}")


@pytest.fixture
def priced() -> Iterator[None]:
    """The scripted model costs a dollar for a million tokens that it reads, and two for those that it writes."""
    use_own_prices({f"rondo:{MODEL}": Price(input=Decimal("0.000001"), output=Decimal("0.000002"))})
    yield
    use_own_prices({})


def test_a_call_costs_two_statements_under_caps_and_none_without(inside: Inside) -> None:
    session, counts = inside.person.session(), []
    for limits in ({}, {"day": {"tokens": PLENTY}, "month": {"usd": "5.00"}, "run": {"tokens": PLENTY}}):
        cap(inside, **limits)
        inside.say(session, "the first turn of a process reads more")
        with CaptureQueriesContext(connection) as queries:
            assert inside.say(session, "hello").state == TurnState.SUCCEEDED
        counts.append([each["sql"] for each in queries if not each["sql"].startswith(("BEGIN", "COMMIT"))])
    plain, capped = counts
    assert len(capped) == len(plain) + 2
    assert not any(
        "rondo_reserve" in each or "spending" in each for each in plain[:-1] if "limits" not in each
    )


def test_a_turn_is_charged_what_it_used_and_stores_its_cost(inside: Inside, priced: None) -> None:
    cap(inside, day={"tokens": PLENTY})
    UserLimits.objects.create(user=inside.person.user, limits={"month": {"usd": "1.00"}})
    inside.model.answer_with(says("Hello."))
    turn = inside.say(inside.person.session(), "hello")
    assert turn.usage == {"input_tokens": 70, "output_tokens": 30, "requests": 1, "usd": "0.000130"}
    assert {
        row.key.rpartition(":")[0]: (row.spent_tokens, row.spent_micro_usd) for row in Spending.objects.all()
    } == {
        f"agent:{inside.person.agent.pk}:day": (100, 130),
        f"user:{inside.person.user.pk}:month": (100, 130),
    }
    assert not Reservation.objects.exists()
    page = signed_in(inside.person).get(f"/sessions/{turn.session_id}/").content.decode()
    assert "100 tokens, $0.0001" in page


FREE = ModelRefused("no")
FREE.is_free = True


@pytest.mark.parametrize(
    ("reply", "share"),
    [
        pytest.param(FREE, "nothing", id="it surely reached no model"),
        pytest.param(ModelRefused("no"), "all", id="it may have reached one"),
        pytest.param(ModelUnavailable("silent"), "all", id="the model fell silent"),
        pytest.param(ValueError("a bug"), "all", id="a bug"),
        pytest.param(says("Hi.", Usage(requests=1)), "all", id="the provider counts nothing"),
        pytest.param(says("Hi.", Usage(input_tokens=70)), "all", id="the provider counts the request alone"),
        pytest.param(says("Hi.", Usage(input_tokens=-70, output_tokens=30)), "all", id="a count is negative"),
        pytest.param(says("Hi.", Usage(input_tokens=10**30)), "all", id="a count is no count of tokens"),
    ],
)
def test_a_call_of_unknown_cost_is_charged_in_full(inside: Inside, reply: Any, share: str) -> None:
    cap(inside, day={"tokens": PLENTY})
    Agent.objects.update(policy={"max_attempts": 1})
    reserved: list[int] = []
    inside.model.answer_with(during(lambda: reserved.append(today(inside).reserved_tokens), reply))
    turn = inside.say(inside.person.session(), "hello")
    assert turn.state == (TurnState.SUCCEEDED if isinstance(reply, ModelReply) else TurnState.FAILED)
    assert reserved[0] > 0
    assert today(inside).spent_tokens == (0 if share == "nothing" else reserved[0])
    assert today(inside).reserved_tokens == 0


def test_a_message_that_a_cap_stops_gets_a_turn_that_says_which_and_until_when(inside: Inside) -> None:
    cap(inside, day={"tokens": 500})
    session = inside.person.session()
    turn = inside.say(session, "hello")
    assert (turn.state, turn.error_code) == (TurnState.FAILED, "budget")
    assert inside.model.calls == []
    for part in ("demo", "500 of 500 tokens", "Raise it to"):
        assert part in turn.error, part
    assert "anew" not in turn.error, "tomorrow it does not fit either"
    assert [each.role for each in Message.objects.filter(session=session)] == ["user", "assistant"]
    update_agent(inside.person.agent.pk, {"limits": {"day": None}})
    assert inside.say(session, "again").state == TurnState.SUCCEEDED


def test_what_was_said_before_a_cap_stands_with_a_closure(inside: Inside) -> None:
    cap(inside, day={"tokens": PLENTY})
    session = inside.person.session()
    first = ModelReply(
        text="I will look.",
        calls=(call("listen"),),
        usage=Usage(input_tokens=PLENTY, output_tokens=1, requests=1),
    )
    with listening(lambda: None):
        inside.model.answer_with(first)
        turn = inside.say(session, "hello")
    assert (turn.state, turn.error_code) == (TurnState.FAILED, "budget")
    assert turn.usage["requests"] == 1
    said = [(each.role, each.content) for each in Message.objects.filter(session=session).order_by("seq")]
    assert ("assistant", "I will look.") in said
    assert said[-1][0] == "assistant"
    assert turn.error in said[-1][1]


def test_a_later_request_of_a_turn_is_bounded_by_what_its_provider_counted(inside: Inside) -> None:
    """So a cap does not stop a long turn for its prompt, which was counted already."""
    cap(inside, run={"tokens": PLENTY})
    reserved: list[int] = []

    def note() -> None:
        reserved.append(Reservation.objects.get().tokens)

    with listening(lambda: "heard"):
        first = ModelReply(text="", calls=(call("listen"),), usage=USED)
        inside.model.answer_with(during(note, first), during(note, says("Done.")))
        assert inside.say(inside.person.session(), "hello").state == TurnState.SUCCEEDED
    assert reserved[1] < reserved[0] / 2


def test_the_sweep_settles_what_a_dead_worker_left(inside: Inside) -> None:
    """Another worker has taken the turn over while its model was asked."""
    cap(inside, day={"tokens": PLENTY})

    def lose() -> None:
        Turn.objects.filter(state=TurnState.RUNNING).update(claim=uuid.uuid4())
        left.append(today(inside).reserved_tokens)
        assert budgets.settle_abandoned() == 1

    left: list[int] = []
    inside.model.answer_with(during(lose, says("Too late.")))
    with pytest.raises(Exception, match="no longer owns"):
        inside.say(inside.person.session(), "hello")
    assert today(inside).spent_tokens == left[0] > 0
    assert today(inside).reserved_tokens == 0
    assert budgets.settle_abandoned() == 0


def test_owners_are_told_once_of_80_and_100_percent(inside: Inside) -> None:
    cap(inside, day={"tokens": 10**6})
    Agent.objects.update(events_url="https://example.org/events")
    session = inside.person.session()
    for used, news in ((810_000, ["budget_near"]), (10, []), (190_000, ["budget_reached"]), (1, [])):
        MailboxEvent.objects.all().delete()
        inside.model.answer_with(says("Hello.", Usage(input_tokens=used, output_tokens=1)))
        inside.say(session, "hello")
        inside.model.replies.clear()
        assert list(MailboxEvent.objects.values_list("event_type", flat=True)) == news
    events: list[Any] = [each.event for each in Delivery.objects.filter(channel="events").order_by("pk")]
    assert [(each["type"], each["data"]["scope"]) for each in events] == [
        ("budget.near", "agent"),
        ("budget.reached", "agent"),
    ]
    assert events[1]["data"]["cap"] == {"tokens": 10**6, "usd": None}
    assert set(events[1]["data"]) == set(LIMIT_DATA)


def test_each_owner_whose_agents_use_a_capped_connection_of_the_server_is_told_once(inside: Inside) -> None:
    house = Connection.objects.create(name="house", provider="openai-chat", limits={"day": {"tokens": 100}})
    for name, model, fallback in (
        ("bob", "house:m", ""),
        ("eve", "offline", "house:m"),
        ("dan", "offline", ""),
    ):
        new_person(name, model=model, fallback_model=fallback, events_url="https://example.org/events")
    own = new_person("own", model="house:m")
    Connection.objects.create(owner=own.user, name="house", provider="openai-chat")
    turn = Turn(pk=1, claim=uuid.uuid4(), origin_run="r:1")
    account, budget = account_of(turn, inside.person.agent, {}), usable(house).budget
    assert budget is not None
    for tokens in (85, 15, 1):
        amount = Amount(tokens=tokens)
        with suppress(CapReached):
            hooks.reserve(account, (budget,), amount)(amount)
    told = MailboxEvent.objects.order_by("pk").values_list("target__agent__owner__username", "event_type")
    assert sorted(told) == [
        (who, what) for who in ("ada", "bob", "eve") for what in ("budget_near", "budget_reached")
    ]
    assert not MailboxEvent.objects.filter(detail__contains="100").exists(), "amounts are the operator's"
    events = Delivery.objects.filter(session__agent__owner__username__in=["bob", "eve"])
    assert [(each.event["data"]["turn"], each.event["data"]["cap"]) for each in events] == [(None, None)] * 4  # type: ignore[index]


def test_a_cap_in_a_zone_whose_data_are_gone_counts_by_utc_and_costs_no_answer(inside: Inside) -> None:
    cap(inside, day={"tokens": 100_000})
    Agent.objects.update(timezone="Mars/Olympus")
    session = inside.person.session()
    inside.model.answer_with(says("Hello.", Usage(input_tokens=99_998, output_tokens=1)))
    assert inside.say(session, "hello").state == TurnState.SUCCEEDED
    assert MailboxEvent.objects.get().event_type == "budget_near"
    refused = inside.say(session, "hello")
    assert (refused.error_code, "UTC" in refused.error) == ("budget", True)
    page = signed_in(inside.person).get(f"/agents/{inside.person.agent.name}/")
    assert page.status_code == 200


def test_a_cap_that_was_changed_is_told_of_anew(inside: Inside) -> None:
    """It is set, set to the same, and raised."""
    changes: list[Callable[[Any], object]] = [
        lambda limits: update_agent(inside.person.agent.pk, {"limits": limits}),
        lambda limits: set_user_caps(inside.person.user.pk, limits),
    ]
    session, used = inside.person.session(), Usage(input_tokens=100_000, output_tokens=1)
    for change in changes:
        before, told = MailboxEvent.objects.count(), []
        for most in (100_000, 100_000, 200_000):
            change({"day": {"tokens": most}})
            inside.say(session, "hello", says("Hello.", used))
            inside.model.replies.clear()
            told.append(MailboxEvent.objects.count() - before)
        assert told == [1, 1, 2]
        change({"day": None})


def test_what_cannot_be_told_costs_no_answer_and_is_told_later(inside: Inside) -> None:
    cap(inside, day={"tokens": 100_000})
    session = inside.person.session()
    with only_rows(MailboxEvent, "false"):
        inside.model.answer_with(says("Hello.", Usage(input_tokens=80_000, output_tokens=1)))
        assert inside.say(session, "hello").state == TurnState.SUCCEEDED
        assert today(inside).told == 0
    inside.say(session, "hello", says("Hello.", Usage(input_tokens=1, output_tokens=1)))
    assert MailboxEvent.objects.get().event_type == "budget_near"


NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def account(turn: int = 1) -> Account:
    return Account(turn=turn, claim=str(uuid.uuid4()), runs=("r:1",), agent=1, owner=1)


def caps(tokens: int | None, micro_usd: int | None = None, *, scopes: tuple[str, ...] = ("agent",)) -> Any:
    """The same caps for a run, a day and a month of each of these."""
    limits = {period: {"tokens": tokens, "usd": micro_usd and f"{micro_usd / 1e6}"} for period in PERIODS}
    budgets = [Budget(scope=scope, subject="1", name=scope, limits=limits) for scope in scopes]
    return cap_rows(budgets, NOW, ["r:1"])


def sums(*names: str) -> list[int]:
    rows = Spending.objects.values_list(*names)
    return [max(column) for column in zip(*rows, strict=True)]


def test_a_call_is_reserved_in_all_caps_or_in_none() -> None:
    wide, narrow = caps(1_000), caps(50, scopes=("user",))
    refused = accounts.reserve(account(), Amount(tokens=60), [*wide, *narrow])
    assert isinstance(refused, CapState)
    assert refused.cap["scope"] == "user"
    assert not refused.is_held
    assert sums("reserved_tokens") == [0]
    assert not Reservation.objects.exists()


def test_room_that_others_have_reserved_is_only_held() -> None:
    given = caps(100)
    first = accounts.reserve(account(), Amount(tokens=80), given)
    assert isinstance(first, int)
    second = accounts.reserve(account(), Amount(tokens=80), given)
    assert isinstance(second, CapState)
    assert second.is_held
    accounts.settle(first, Amount(tokens=20))
    assert isinstance(accounts.reserve(account(), Amount(tokens=80), given), int)


def test_two_calls_at_one_instant_do_not_both_get_the_last_room() -> None:
    given = caps(100)
    assert isinstance(accounts.reserve(account(), Amount(tokens=0), given), int)
    row = Spending.objects.order_by("key").first()
    assert row is not None
    with gate(row, UPDATE) as held:
        for _ in range(2):
            held.start(lambda: accounts.reserve(account(), Amount(tokens=60), given))
        came = held.open()
    assert sorted(isinstance(each, CapState) for each in came) == [False, True]


def test_a_reservation_is_settled_once_and_a_late_settlement_changes_nothing() -> None:
    made = accounts.reserve(account(), Amount(tokens=80), caps(100))
    assert isinstance(made, int)
    assert accounts.abandoned() == [made], "no such turn runs"
    accounts.settle(made, None)
    assert accounts.settle(made, Amount(tokens=1)) == []
    assert sums("spent_tokens", "reserved_tokens") == [80, 0]


@pytest.mark.parametrize(
    ("tokens", "percents"),
    [([79], []), ([80], [80]), ([80, 5], [80, 80]), ([100], [100]), ([40, 45, 15], [80, 100])],
)
def test_caps_that_are_nearly_spent_are_named_for_the_day_and_not_for_the_run(
    tokens: list[int], percents: list[int]
) -> None:
    """They are named until it is stored that they were told."""
    found = []
    for each in tokens:
        made = accounts.reserve(
            account(), Amount(tokens=each), [row for row in caps(100) if row["period"] != MONTH]
        )
        assert isinstance(made, int)
        crossed = accounts.settle(made, None)
        assert {each.cap["period"] for each in crossed} <= {DAY}
        found += [each.percent for each in crossed]
    assert found == percents


def test_a_model_without_a_price_counts_tokens_only() -> None:
    given = caps(None, 10)
    assert isinstance(accounts.reserve(account(), Amount(tokens=10, micro_usd=11), given), CapState)
    assert isinstance(accounts.reserve(account(), Amount(tokens=10**9), given), int)


def test_the_database_refuses_negative_sums() -> None:
    for column in ("spent_tokens", "spent_micro_usd", "reserved_tokens", "reserved_micro_usd"):
        with pytest.raises(IntegrityError):
            Spending.objects.create(key=column, **{column: -1})


def test_the_periods_begin_by_the_clock_of_the_zone() -> None:
    limits = {period: {"tokens": 1} for period in PERIODS}
    at = datetime(2026, 10, 31, 23, 30, tzinfo=UTC)  # November in Berlin, where it is winter by now

    def rows(zone: str) -> dict[str, tuple[str, str | None]]:
        budget = Budget(scope="agent", subject="7", name="a", limits=limits, zone=zone)
        return {row["period"]: (row["key"], row["ends_at"]) for row in cap_rows([budget], at, ["r:1"])}

    assert rows("Europe/Berlin") == {
        RUN: ("agent:7:run:r:1", None),
        DAY: ("agent:7:day:2026-11-01", "2026-11-01T23:00:00+00:00"),
        MONTH: ("agent:7:month:2026-11", "2026-11-30T23:00:00+00:00"),
    }
    assert rows("UTC")[MONTH] == ("agent:7:month:2026-10", "2026-11-01T00:00:00+00:00")
    assert rows("Mars/Olympus") == rows("UTC"), "data of a zone may be gone"


def test_a_cap_of_no_dollars_is_not_reached_by_calls_that_cost_nothing() -> None:
    given = cap_rows([Budget(scope="agent", subject="1", limits={DAY: {"usd": "0"}})], NOW, ["r:1"])
    made = accounts.reserve(account(), Amount(tokens=80), given)
    assert isinstance(made, int)
    assert accounts.settle(made, Amount(tokens=80)) == []
