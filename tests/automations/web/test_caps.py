"""Caps on the pages of an agent and of an automation, and what was used (rule 11.1)."""

from typing import Any

import pytest
from django.urls import reverse

from agent_core.types import Usage
from automations.jobs.edit import update_job
from automations.models import CronJob
from interfaces.web.appointments.toasts import planned
from interfaces.web.transcript import newest
from sessions_app.models import Agent
from sessions_app.spending.accounts import set_user_caps
from tests.automations.firing.test_caps import due
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.web.test_addresses import signed_in
from tests.automations.web.test_stale_forms import as_sent
from tests.conftest import Person
from tests.inside import Inside
from tests.sessions_app.spending.test_calls import PLENTY, says

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("11.1")]


def section(person: Person) -> Any:
    answer = signed_in(person).get("/agents/demo/")
    return next(each for each in answer.context["sections"] if each["about"].anchor == "spending")["part"]


def test_caps_are_set_on_the_page_of_an_agent_and_bad_ones_are_kept_in_the_form(inside: Inside) -> None:
    client, address = signed_in(inside.person), "/agents/demo/spending/"
    form = {"run_usd": "0.1", "day_tokens": str(PLENTY), "day_usd": ""}
    form |= {"revision": inside.person.agent.revision}
    for bad in ({"day_tokens": "many"}, {"day_tokens": "1" * 14}, {"run_usd": "much"}, {"month_usd": "-1"}):
        assert client.post(address, form | bad).status_code == 400, bad
        assert Agent.objects.get().limits == {}, bad
    assert client.post(address, form).status_code == 303
    assert Agent.objects.get().limits == {"run": {"usd": "0.10"}, "day": {"tokens": PLENTY}}
    inside.model.answer_with(says("Hello.", Usage(input_tokens=70, output_tokens=30, requests=1)))
    inside.say(inside.person.session(), "hello")
    part = section(inside.person)
    assert [f"100 of {PLENTY:,} tokens" in row["words"] for row in part["caps"]] == [False, True, False]
    assert (part["total"].calls, part["total"].cost.unpriced_tokens) == (1, 100)


def test_what_is_spent_is_a_minimum_where_a_model_has_no_price(inside: Inside) -> None:
    Agent.objects.update(limits={"day": {"usd": "5.00"}})
    inside.model.answer_with(says("Hello.", Usage(input_tokens=70, output_tokens=30, requests=1)))
    inside.say(inside.person.session(), "hello")
    part = section(inside.person)
    assert "unknown" in part["total"].words
    assert part["caps"][1]["words"].startswith("At least $0.00 of $5.00 a day spent.")
    page = signed_in(inside.person).get("/agents/demo/").content.decode()
    assert '<div id="spending-warnings"><p class="note warning">' in page
    model = page.partition('<section id="model"')[2].partition(">")[0]
    assert "#spending-warnings" in model, "it is shown with the answer to the form of the model"


def test_what_a_cap_stops_is_stopped_in_the_chat_and_has_no_next_run_on_the_pages(inside: Inside) -> None:
    session = inside.person.session()
    due(inside, due_job(session, limits={"run": {"tokens": 5_000}}))
    assert [chip for entry in newest(inside.person.user, session.pk).entries for chip in entry.chips] == [
        "Stopped"
    ]
    job = CronJob.objects.get()
    assert "Next run" not in planned(job, "is saved.").text
    update_job(job.pk, {"limits": {"run": None}})
    assert "Next run" in planned(job, "is saved.").text


def test_caps_in_dollars_are_set_in_the_form_of_an_automation(inside: Inside) -> None:
    session = inside.person.session()
    job, client = due_job(session, limits={"day": {"tokens": 5}}), signed_in(inside.person)
    address = reverse("change-automation", args=[session.pk, job.pk])
    form = as_sent(client, address)
    assert client.post(address, form | {"usd_day": "much"}).status_code != 303
    assert CronJob.objects.get().limits == {"day": {"tokens": 5}}
    saved = client.post(address, form | {"usd_day": "0.50", "tokens_day": "5"})
    assert saved.status_code < 400, saved.context["form"].errors
    assert CronJob.objects.get().limits == {"day": {"tokens": 5, "usd": "0.50"}}


def test_an_account_shows_its_caps_and_what_all_agents_used(inside: Inside) -> None:
    set_user_caps(inside.person.user.pk, {"month": {"usd": "12.50"}})
    answer = signed_in(inside.person).get("/account/")
    assert "$12.50" in answer.content.decode()
    assert answer.context["used"].calls == 0
