"""The alert rules of deploy/: each condition is made real in a running server, scraped, and given to the rule file."""

import signal
import time
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from django.db import transaction
from django.db.models.functions import Now

from automations.jobs.clock import notify_beats
from automations.models import JobClock, RunRecord, RunState
from sessions_app.models import Delivery, DeliveryState, Turn, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.queue.threads import MOST_WAITING
from tests.automations.jobs.made import EVERY_SECOND, new
from tests.config.operations.watching import (
    PROMTOOL,
    Scrape,
    Story,
    Watched,
    asked_by,
    expressions,
    needs_promtool,
    rules,
    shown_in,
)
from tests.conftest import Person
from tests.fleet import until
from tests.talk import ended
from tests.tokens import token_of

pytestmark = [pytest.mark.full, pytest.mark.processes]

AGE = "rondo_beat_last_round_age_seconds"
OVERDUE = "rondo_overdue_seconds"
FAILED_ATTEMPTS = 'rondo_delivery_attempts_failed_total{channel="webhook"}'
SEVEN_MINUTES = timedelta(minutes=7)


def use_up_a_budget(watched: Watched, person: Person) -> Scrape:
    """A turn that takes longer than its policy allows."""
    person.agent.policy = {"timeout_seconds": 1, "max_attempts": 1}
    person.agent.save()
    turn = receive(person.session().pk, MessageInput(content="[[hold:for-ever]]"))
    until(lambda: ended(turn))
    assert turn.error_code == "timeout"
    return watched.until('rondo_turn_limits_reached_total{limit="timeout"}', 1)


def fail_in_one_run(watched: Watched, person: Person) -> Scrape:
    """One run, all of whose six attempts fail, since the model answers 500: three are repeats, as nothing was done."""
    new(person.session(), message="[[fail:500]]", schedule=EVERY_SECOND, max_runs=1, max_retry=2)
    for attempt in range(2, 7):
        waiting = RunRecord.objects.filter(state=RunState.QUEUED, attempt=attempt, not_before__isnull=False)
        until(waiting.exists)
        assert float(watched.scrape()["rondo_failing_automations"]) == (attempt > 3), "three attempts count"
        waiting.update(not_before=Now())  # nobody waits for five minutes here
        notify_beats()
    until(RunRecord.objects.filter(state=RunState.FAILED, attempt=6).exists)
    return watched.until("rondo_failing_automations", 1)


def fail_in_three_runs(watched: Watched, person: Person) -> Scrape:
    """Three runs of one automation, each with one attempt, which the model refuses."""
    session = person.session()
    new(session, message="[[fail:400]]", schedule=EVERY_SECOND, max_runs=3)
    failed = RunRecord.objects.filter(session=session, state=RunState.FAILED)
    until(lambda: failed.count() == 3)
    watched.until("rondo_failing_automations", 2)
    return watched.until('rondo_turn_limits_reached_total{limit="model_unavailable"}', 6)


def lose_a_letter(watched: Watched, person: Person, temper: str) -> Scrape:
    """A webhook whose receiver says that the address is gone (410), or fails at each attempt (500)."""
    session = person.session(channel="webhook", address=watched.receiver.set(f"/{temper}", temper))
    receive(session.pk, MessageInput(content="hello"))
    lost = Delivery.objects.filter(state=DeliveryState.FAILED)
    until(lost.filter(session=session).exists)
    return watched.until('rondo_open_deliveries{state="failed"}', lost.count())


def fill_a_queue(watched: Watched, person: Person) -> Scrape:
    """One message more than may wait, while no worker lives."""
    address = f"{watched.url}/api/sessions/{person.session().pk}/messages/"
    headers = {"Authorization": f"Token {token_of(person.user)}"}
    with httpx2.Client(headers=headers, timeout=20) as http:
        answers = [http.post(address, json={"content": f"{n}"}).status_code for n in range(MOST_WAITING + 1)]
    assert (set(answers[:-1]), answers[-1]) == ({202}, 429)
    return watched.until('rondo_queue_full_total{queue="session"}', 1)


def answer_with_errors(watched: Watched) -> tuple[Scrape, dict[str, float]]:
    """Requests that are answered with 503, and what they add to each counter in a second."""
    before, began = watched.scrape(), time.monotonic()
    for _ in range(50):
        assert httpx2.get(f"{watched.url}/readyz", timeout=20).status_code == 503
    after, seconds = watched.scrape(), time.monotonic() - began
    requests = [name for name in after if name.startswith("rondo_http_requests_total")]
    return after, {name: (float(after[name]) - float(before.get(name, 0))) / seconds for name in requests}


def wait_long(watched: Watched) -> Scrape:
    """Messages that nobody began for seven minutes."""
    Turn.objects.filter(state=TurnState.QUEUED).update(queued_at=Now() - SEVEN_MINUTES)
    return watched.until('rondo_oldest_queued_turn_seconds{lane="turns"}', 400)


def start_slowly(watched: Watched) -> Scrape:
    """A worker takes them at last."""
    watched.fleet.worker()
    until(lambda: not Turn.objects.filter(state=TurnState.QUEUED).exists())
    return watched.until("rondo_turn_wait_seconds_count", MOST_WAITING)


def _has_no_worker(scrape: Scrape) -> bool:
    """Both say so: a scrape reads them one after the other, and the worker may become lost in between."""
    return {float(scrape["rondo_workers"]), float(scrape['rondo_ready{check="workers"}'])} == {0}


def make_all_real(watched: Watched, person: Person) -> tuple[Scrape, dict[str, Scrape], dict[str, float]]:
    """A scrape of a quiet server, by alert one in which its condition is true, and how errors go on in a second."""
    answer_with_errors(watched)  # the first error of a route makes its counter
    worker, beat = watched.fleet.worker(), watched.fleet.beat()
    quiet = watched.until("rondo_beat_rounds_total", 1)
    loud = {
        "RondoBudgetReached": use_up_a_budget(watched, person),
        "RondoAutomationFailing": fail_in_one_run(watched, person),
        "RondoModelFails": fail_in_three_runs(watched, person),
        "RondoDeadLetter": lose_a_letter(watched, person, "410"),
    }
    lose_a_letter(watched, person, "500")
    loud["RondoDeliveriesFail"] = watched.until(FAILED_ATTEMPTS, 7)
    worker.kill()
    no_worker = watched.when(_has_no_worker, "no worker is seen")
    loud |= {"RondoNoWorker": no_worker, "RondoNotReady": no_worker}
    loud["RondoHttpErrors"], growth = answer_with_errors(watched)
    loud["RondoQueueFull"] = fill_a_queue(watched, person)
    loud |= {"RondoQueueLong": wait_long(watched), "RondoTurnsStartSlowly": start_slowly(watched)}
    beat.kill()
    no_beat = watched.when(lambda scrape: float(scrape["rondo_beats"]) == 0, "no beat is seen")
    return quiet, loud | {"RondoBeatSilent": no_beat}, growth


@pytest.mark.rule("10.1")
@pytest.mark.timeout(180)
def test_each_condition_fires_its_alert_and_quiet_fires_none(
    watched: Watched, person_with_server: Person, tmp_path: Path
) -> None:
    quiet, loud, errors = make_all_real(watched, person_with_server)
    assert {rule["alert"] for rule in rules()} == {*loud, "RondoDown"}
    shown = shown_in([quiet, *loud.values()])
    for expression in (*expressions(), *(rule["expr"] for rule in rules())):
        assert asked_by(expression) <= shown, expression
    if PROMTOOL is None:
        pytest.skip("each name and label is there; whether it fires is for promtool, which is not installed")
    assert Story(before=quiet, after=quiet).fires(tmp_path) == set()
    assert Story(before=quiet, after=quiet, up=False).fires(tmp_path) == {"RondoDown"}
    for alert, scrape in loud.items():
        growth = errors if alert == "RondoHttpErrors" else {}
        assert alert in Story(before=quiet, after=scrape, growth=growth).fires(tmp_path), alert
    last = Story(before=quiet, after=loud["RondoTurnsStartSlowly"])
    assert last.unanswered(expressions(), tmp_path) == []  # no panel stays empty


def grown(watched: Watched, series: str) -> tuple[Scrape, float]:
    """A scrape after the series has grown by four seconds, and its growth in a second. Beats have reasons to work."""
    first, began = watched.scrape(), time.monotonic()

    def is_higher(scrape: Scrape) -> bool:
        notify_beats()
        return float(scrape[series]) >= float(first[series]) + 4

    last = watched.when(is_higher, f"{series} has grown", 15)
    return last, (float(last[series]) - float(first[series])) / (time.monotonic() - began)


@needs_promtool
@pytest.mark.rule("10.1")
def test_a_beat_that_hangs_is_silent_although_its_process_is_there(watched: Watched, tmp_path: Path) -> None:
    """Nothing is due, so only the missing rounds tell."""
    watched.fleet.worker()
    beat = watched.fleet.beat()
    quiet = watched.until("rondo_beat_rounds_total", 1)
    beat.signal(signal.SIGSTOP)
    hung, growth = grown(watched, AGE)
    assert (float(hung["rondo_beats"]), float(hung[OVERDUE])) == (1, 0)
    assert Story(before=quiet, after=hung, growth={AGE: growth}).fires(tmp_path) == {"RondoBeatSilent"}


@needs_promtool
@pytest.mark.rule("10.1")
def test_a_beat_that_works_and_does_not_fire_is_silent(
    watched: Watched, person: Person, tmp_path: Path
) -> None:
    """Somebody holds the row that is due, so the beat finishes its rounds without it."""
    watched.fleet.worker()
    watched.fleet.beat()
    quiet = watched.until("rondo_beat_rounds_total", 1)
    job = new(person.session(), schedule=EVERY_SECOND)
    with transaction.atomic():
        JobClock.objects.select_for_update().get(job=job)
        late, growth = grown(watched, OVERDUE)
    assert float(late["rondo_beats"]) == 1
    assert float(late[AGE]) < 4
    assert Story(before=quiet, after=late, growth={OVERDUE: growth}).fires(tmp_path) == {"RondoBeatSilent"}


@pytest.mark.rule("10.1")
def test_requests_are_counted_by_route_and_clients_choose_no_label(watched: Watched) -> None:
    for path in ("/nothing/secret-1", "/api/sessions/secret-2/", "/healthz"):
        httpx2.request("PURGE" if path == "/healthz" else "GET", watched.url + path, timeout=20)
    shown = watched.scrape()
    assert shown['rondo_http_requests_total{method="GET",route="none",status="4xx"}'] == "2.0"
    assert shown['rondo_http_requests_total{method="other",route="/healthz",status="4xx"}'] == "1.0"
    assert shown['rondo_http_request_duration_seconds_count{method="GET",route="none"}'] == "2.0"
    assert not [series for series in shown if "secret" in series or "PURGE" in series]
