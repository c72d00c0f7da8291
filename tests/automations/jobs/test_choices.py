"""Models, length, tools of one automation (rule 11.7); equal automations are refused (rule 11.8)."""

import json
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from agent_core import models
from automations import selectors
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import update_job
from automations.models import CronJob
from sessions_app.agents.edit import update_agent
from sessions_app.models import Connection, Message, Session
from tests.agent_core.planner.plans import says
from tests.api.conftest import Caller
from tests.automations.jobs.made import DAILY, EVERY, code_of, new, overdue
from tests.automations.turn_kinds.test_bound import ran
from tests.automations.web.test_addresses import signed_in
from tests.automations.web.test_stale_forms import as_sent
from tests.conftest import Person
from tests.deletion import caller
from tests.inside import Inside, Script, call, makes
from tests.tokens import new_token

pytestmark = [pytest.mark.rule("11.7"), pytest.mark.django_db(transaction=True)]

CHOSEN: dict[str, Any] = {"model": "cheap", "fallback_model": "dear", "max_output_tokens": 500}
CHOSEN |= {"allow_tools": ["current_time", "edit_document"]}
CHOSEN |= {"gate": {"kind": "http_changed", "url": "https://example.org/", "pointer": "/a"}}
OTHERS: dict[str, Any] = {"model": "dear", "fallback_model": "cheap", "max_output_tokens": None, "gate": None}
OTHERS |= {"allow_tools": ["current_time"], "name": "Else", "message": "else", "overlap": "queue"}
OTHERS |= {"timeout_seconds": 60, "ping_url": "https://example.org/ping"}


@pytest.fixture(autouse=True)
def cheap() -> Script:
    found = Script()
    models.register("cheap", lambda: found)
    models.register("dear", Script)
    return found


def test_an_automation_asks_its_own_model_and_talk_asks_the_agents(inside: Inside, cheap: Script) -> None:
    session = inside.person.session()
    update_agent(inside.person.agent.pk, {"model_settings": {"max_tokens": 900}})
    job = new(session, schedule=EVERY, **CHOSEN | {"gate": None})
    assert ran(inside, job).state == "succeeded"
    inside.say(session, "And now?")
    assert (len(cheap.calls), len(inside.model.calls)) == (1, 1)
    assert (cheap.calls[0].settings.max_tokens, inside.model.calls[0].settings.max_tokens) == (500, 900)
    update_job(job.pk, {"max_output_tokens": 2_000})
    ran(inside, job)
    assert cheap.calls[1].settings.max_tokens == 900, "of two limits the lower one holds"


def test_a_run_that_waits_keeps_the_model_with_which_it_was_fired(inside: Inside, cheap: Script) -> None:
    job = new(inside.person.session(), schedule=EVERY, model="cheap")
    overdue(job)
    fire_due_jobs()
    update_job(job.pk, {"model": ""})
    inside.run_all()
    assert len(cheap.calls) == 1


def test_its_turns_are_offered_the_named_tools_with_the_agents_rights(inside: Inside, cheap: Script) -> None:
    update_agent(inside.person.agent.pk, {"allow_tools": ["cron"]})
    tools = ["current_time", "fetch_url"]
    job = new(inside.person.session(), schedule=EVERY, model="cheap", allow_tools=tools)
    fetch = call("fetch_url", "2", url="https://example.org/")
    cheap.answer_with(makes(call("cron", action="list"), fetch), says("No."))
    assert ran(inside, job).state == "succeeded"
    assert {tool.name for tool in cheap.calls[0].tools} == set(tools)
    results = [each for row in Message.objects.filter(role="tool") for each in row.parts["results"]]
    outcomes = [each["outcome"] for each in results]
    assert outcomes == ["failed", "refused"], "cron does not exist; fetch_url needs a yes"


def by_the_api(person: Person, job: CronJob, name: str, value: Any) -> None:
    answer = caller(person).patch(f"/api/automations/{job.pk}/", {name: value})
    assert answer.status_code == 200, answer.content


def by_the_form(person: Person, job: CronJob, name: str, value: Any) -> None:
    address = f"/sessions/{job.session_id}/automations/{job.pk}/"
    typed = ", ".join(value) if isinstance(value, list) else "" if value is None else value
    client = signed_in(person)
    assert client.post(address, as_sent(client, address) | {name: typed}).status_code == 303


def by_the_admin(_person: Person, job: CronJob, name: str, value: Any) -> None:
    client = Client()
    client.force_login(get_user_model().objects.get(username="root"))
    address = reverse("admin:automations_cronjob_change", args=[job.pk])
    widgets = [each for each in client.get(address).context["adminform"].form if each.name != "session"]
    shown = {each.html_name: each.field.widget.format_value(each.value()) for each in widgets}
    filled = {key: at for key, at in shown.items() if at not in (None, "", [])}
    sent = {key: at[0] if isinstance(at, list) else at for key, at in filled.items()}
    typed = "" if value is None else json.dumps(value) if isinstance(value, list) else value
    assert client.post(address, sent | {"enabled": "on", name: typed}).status_code == 302


@pytest.mark.parametrize("by", [by_the_api, by_the_form, pytest.param(by_the_admin, marks=pytest.mark.full)])
def test_a_change_of_one_field_changes_it_alone(person: Person, by: Callable[..., None]) -> None:
    """Complaint 10."""
    get_user_model().objects.create_superuser("root", password="pw")
    for name, value in OTHERS.items():
        job = new(person.session(), name="Look", **CHOSEN)
        before = selectors.automation(person.user, job.pk)
        by(person, job, name, value)
        after = selectors.automation(person.user, job.pk)
        values = (
            (each.name, getattr(before, each.name), getattr(after, each.name)) for each in fields(after)
        )
        assert {field for field, old, new in values if old != new} == {name, "revision"}
        assert getattr(after, name) == value


def test_the_form_leaves_a_gate_that_it_does_not_show_as_it_is(person: Person) -> None:
    job = new(person.session(), name="Look")
    CronJob.objects.filter(pk=job.pk).update(gate={"kind": "of a plugin"}, allow_tools=[])
    by_the_form(person, job, "name", "Else")
    job.refresh_from_db()
    assert (job.name, job.gate, job.allow_tools) == ("Else", {"kind": "of a plugin"}, [])


@pytest.mark.parametrize("token_reaches", ["everything", "the agent"])
def test_a_limited_token_uses_the_connections_of_its_agent_alone(person: Person, token_reaches: str) -> None:
    about = {"name": "mine", "provider": "openai-chat", "base_url": "https://example.org"}
    Connection.objects.create(owner=person.user, **about)
    limit = {} if token_reaches == "everything" else {"agent": person.agent}
    caller = Caller(user=person.user, token=new_token(person.user, "read", "schedule", **limit))
    body = {"message": "go", "schedule": EVERY, "model": "mine:cheap"}
    made = caller.post(f"/api/sessions/{person.session().pk}/automations/", body)
    assert made.status_code == (400 if limit else 201), made.content
    job = new(person.session())
    answer = caller.patch(f"/api/automations/{job.pk}/", {"model": "mine:cheap"})
    assert answer.status_code == (400 if limit else 200)


def test_what_the_owner_may_not_use_is_refused_when_saved(person: Person) -> None:
    unusable: dict[str, list[Any]] = {
        "model": ["no such model", "missing:gpt"],
        "fallback_model": ["missing:gpt"],
        "max_output_tokens": [0, 10**9],
        "allow_tools": [["fetch_urls"], ["docs__search"], ["current_time"] * 51],
    }
    session = person.session()
    job = new(session)
    for given in ({name: value} for name, values in unusable.items() for value in values):
        code = f"bad_{next(iter(given))}"
        assert code_of(partial(new, session, **given)) == code_of(partial(update_job, job.pk, given)) == code


@pytest.mark.rule("11.8")
def test_two_spellings_of_a_cron_schedule_are_the_same(person: Person) -> None:
    same = {"0 9 * * *": "00 9 * * 0-6", "0 9 * * 1-5": "0 09 * * mon-fri"}
    other = {"0 9 1 * 1": "0 9 1 * *", "0 9 * * 1#1": "0 9 * * 1#2", "0 9 L * *": "0 9 31 * *"}
    other["0,30 9 * * *"] = "*/30 9 * * *"  # which is no fixed time, when the clocks change
    for first, second in (same | other).items():
        session, given = person.session(), {"kind": "cron", "timezone": "UTC"}
        new(session, schedule=given | {"expr": first})
        again = partial(new, session, schedule=given | {"expr": second}, allow_duplicate=False)
        if first in same:
            assert code_of(again) == "duplicate_automation"
        else:
            again()


@pytest.mark.rule("11.8")
def test_a_second_automation_with_equal_words_and_times_is_refused(person: Person, session: Session) -> None:
    """Complaint 15."""
    job = new(session, message="Drink  water", schedule=EVERY)
    again = partial(new, session, message="drink water ", allow_duplicate=False)
    for schedule in (EVERY, EVERY | {"seconds": 60}):
        assert code_of(partial(again, schedule=schedule)) == "duplicate_automation"
    for other in ({"schedule": DAILY}, {"message": "Drink tea"}, {"allow_duplicate": True}):
        new(session, **{"message": "Drink water", "schedule": EVERY, "allow_duplicate": False} | other)
    new(person.session(), message="Drink water", schedule=EVERY, allow_duplicate=False)
    CronJob.objects.filter(pk=job.pk).delete()
    api = caller(person)
    path, body = f"/api/sessions/{session.pk}/automations/", {"message": "Drink tea", "schedule": EVERY}
    assert api.post(path, body).json()["code"] == "duplicate_automation"
    assert api.post(path, body | {"allow_duplicate": True}).status_code == 201
