"""What a page says of a refused form, by the labels of its fields, and where a failed run is cured."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from automations.models import RunState
from interfaces.web.appointments.forms import LABELS, AutomationForm
from sessions_app.models import Agent
from tests.automations.jobs.made import new, past_run
from tests.automations.web.test_addresses import signed_in
from tests.automations.web.test_stale_forms import as_sent
from tests.conftest import Person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("part", "given", "name"),
    [
        (
            "connections",
            {"name": "mine", "provider": "openai-chat", "base_url": "http://10.0.0.1/"},
            "base_url",
        ),
        ("connections", {"name": "mine", "provider": "openai", "secret": "x"}, "secret"),
        ("spending", {"day_usd": "much"}, "limits.day.usd"),
        ("events", {"events_url": "nowhere"}, "events_url"),
    ],
)
def test_an_agents_page_names_the_field_by_its_label(
    person: Person, part: str, given: dict[str, str], name: str
) -> None:
    sent = {"revision": Agent.objects.get().revision} | given
    answer = signed_in(person).post(f"/agents/demo/{part}/", sent)
    [problem] = [each["outcome"].problem for each in answer.context["sections"] if each["outcome"].problem]
    assert problem.startswith(LABELS[name])
    assert name not in problem


def test_an_unknown_connection_is_refused_without_a_list_of_all_providers(person: Person) -> None:
    sent = {
        "revision": Agent.objects.get().revision,
        "model": "nowhere:gpt",
        "timezone": "UTC",
        "engine": "chat",
    }
    answer = signed_in(person).post("/agents/demo/model/", sent)
    [problem] = [each["outcome"].problem for each in answer.context["sections"] if each["outcome"].problem]
    assert "nowhere" in problem
    assert len(problem) < 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gate", "http://10.0.0.1/"),
        ("allow_tools", "no-such-tool"),
        ("usd_day", "much"),
        ("model", "nowhere:gpt"),
    ],
)
def test_a_refused_field_of_an_automation_says_why_beside_it(person: Person, field: str, value: Any) -> None:
    session = person.session()
    job, client = new(session, message="news", name="News"), signed_in(person)
    address = reverse("change-automation", args=[session.pk, job.pk])
    refused = client.post(address, as_sent(client, address) | {field: value}).context["form"]
    assert list(refused.errors) == [field]
    said = refused.errors[field][0]
    assert not said.lower().startswith(("gate.", "limits.", f"{field}:"))
    assert field in AutomationForm.base_fields


def test_a_failed_run_leads_to_the_section_that_cures_it(person: Person) -> None:
    session = person.session()
    job, client = new(session, message="news", name="News"), signed_in(person)
    for number, reason, place in (
        (1, "model_auth", "connections"),
        (2, "model_not_found", "model"),
        (3, "tool_hung", ""),
    ):
        run = past_run(job, number, RunState.FAILED, reason)
        page = client.get(reverse("run", args=[session.pk, run.pk])).content.decode()
        found = [each for each in ("connections", "model") if f'href="/agents/demo/#{each}"' in page]
        assert found == [place] * bool(place)
